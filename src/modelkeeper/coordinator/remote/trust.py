"""Who signed what, whose keys count, is the log whole? What a coordinator behind HTTP is asked of that."""

import re

import msgspec

from modelkeeper.coordinator.remote.calls import Calls
from modelkeeper.coordinator.wire import TrustRequest
from modelkeeper.errors import InvalidKey
from modelkeeper.zoo.care.audit import Audited
from modelkeeper.zoo.records import Record
from modelkeeper.zoo.trust import TrustedKey


class RemoteTrust:
    """The part of a `RemoteCoordinator` that is about signatures, keys and the log."""

    _calls: Calls

    def evidence(self, record: Record) -> bytes | None:
        """The evidence that a model was registered with, or None."""
        return self._calls.ask("GET", f"/models/{record.id}/evidence", bytes | None)  # type: ignore[arg-type]

    def signature(self, record: Record) -> bytes | None:
        """What somebody signed of a model, or None."""
        return self._calls.ask("GET", f"/models/{record.id}/signature", bytes | None)  # type: ignore[arg-type]

    def audit(self, since: str = "") -> Audited:
        """Verify the chained log of the zoo, and compare it with the catalog: see `zoo.care.audit`."""
        params = {"since": since} if since else {}
        return self._calls.ask("GET", "/audit", Audited, params=params, timeout=3600.0)

    def trusted_keys(self) -> list[TrustedKey]:
        """The public keys that the zoo trusts, and those that it did."""
        return self._calls.ask("GET", "/keys", list[TrustedKey])

    def trust_key(self, line: str, name: str = "", *, user: str = "") -> TrustedKey:
        """Trust a public key."""
        body = msgspec.json.encode(TrustRequest(line=line, name=name))
        return self._calls.ask("POST", "/keys", TrustedKey, body=body)

    def revoke_key(self, key: str, *, user: str = "") -> TrustedKey:
        """Trust a public key no more."""
        if re.fullmatch(r"[0-9a-f]{4,64}", key) is None:  # it becomes part of a path
            raise InvalidKey(repr(key[:80]), "it is no id of a key", "modelkeeper key list shows them.")
        return self._calls.ask("DELETE", f"/keys/{key}", TrustedKey)
