"""Who says what in the zoo of this process? Signatures, trusted keys, and the log that is chained."""

from typing import TYPE_CHECKING

from modelkeeper.zoo.records import Record
from modelkeeper.zoo.zoo import Zoo

if TYPE_CHECKING:
    from modelkeeper.zoo.care.audit import Audited
    from modelkeeper.zoo.trust import Trust, TrustedKey


class LocalTrust:
    """What a coordinator answers of signatures, keys and its log."""

    zoo: Zoo

    def evidence(self, record: Record) -> bytes | None:
        """The evidence that a model was registered with, or None."""
        return self.zoo.evidence(record)

    def signature(self, record: Record) -> bytes | None:
        """What somebody signed of a model, or None."""
        return self.zoo.signature(record)

    def audit(self, since: str = "") -> "Audited":
        """Verify the chained log of the zoo, and compare it with the catalog: see `zoo.care.audit`."""
        from modelkeeper.signing.chain import Head
        from modelkeeper.zoo.care.audit import audit

        return audit(self.zoo.catalog, Head.read(since) if since else None)

    def trusted_keys(self) -> "list[TrustedKey]":
        """The public keys that the zoo trusts, and those that it did."""
        return self._trust.listed()

    def trust_key(self, line: str, name: str = "", *, user: str = "") -> "TrustedKey":
        """Trust a public key."""
        from modelkeeper.signing import PublicKey

        public, said = PublicKey.read(line)
        return self._trust.add(public, name or said or public.id[:16], user)

    def revoke_key(self, key: str, *, user: str = "") -> "TrustedKey":
        """Trust a public key no more."""
        return self._trust.revoke(key, user)

    @property
    def _trust(self) -> "Trust":
        from modelkeeper.zoo.trust import Trust

        return Trust(self.zoo.catalog)
