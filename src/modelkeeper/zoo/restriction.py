"""Which models may lend, by who answers for them? Said by a query, by the settings of a zoo, and by listings.

    Restriction(owners=("ada",), signed=True)
    Restriction.of(query), Restriction.of(settings)        they have fields of the same names

A query can ask for less than its zoo allows, never for more: each restriction holds for itself. How names are
understood, `whose` says.
"""

from typing import Any, Self

from msgspec import Struct

from modelkeeper.text import enumeration


class Restriction(Struct, frozen=True, kw_only=True):
    """Which models may lend. What is left out does not restrict; all that is given must hold."""

    owners: tuple[str, ...] = ()  # names or ids, one of which is the owner
    projects: tuple[str, ...] = ()  # likewise
    signed: bool = False  # by a key that is trusted, and not revoked
    licences: tuple[str, ...] = ()  # SPDX expressions, one of which is the licence

    @classmethod
    def of(cls, said: Any) -> Self:
        """What a query or settings say of it."""
        return cls(**{name: getattr(said, name) for name in cls.__struct_fields__})

    def __bool__(self) -> bool:
        return bool(self.owners or self.projects or self.signed or self.licences)

    def __str__(self) -> str:
        parts = (
            f"of {enumeration(self.owners, 'or')}" if self.owners else "",
            f"of project {enumeration(self.projects, 'or')}" if self.projects else "",
            "with a trusted signature" if self.signed else "",
            f"with licence {enumeration(self.licences, 'or')}" if self.licences else "",
        )
        return ", ".join(part for part in parts if part)
