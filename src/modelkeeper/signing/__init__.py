"""Who says so? Keys, manifests of models, signatures on them, and entries that are chained to each other."""

from modelkeeper.signing.envelope import Signed, opened, sign, verify
from modelkeeper.signing.keys import Key, PublicKey, load_key, new_key, save_key
from modelkeeper.signing.manifest import Manifest, SignedParent

__all__ = [
    "Key",
    "Manifest",
    "PublicKey",
    "Signed",
    "SignedParent",
    "load_key",
    "new_key",
    "opened",
    "save_key",
    "sign",
    "verify",
]
