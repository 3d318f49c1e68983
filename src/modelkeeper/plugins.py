"""Which parts can others add, and which are there? Names at once, code when it is asked for.

    POLICIES.names()               built in, registered in this process, and of installed packages
    POLICIES.add("mine", policy)   a part for this process
    POLICIES.get("mine")           the part; its module is imported now, not before

A package adds a part by an entry point in its pyproject.toml, found when a name is asked for that is not
built in. One that cannot be loaded is reported in the log, and to whoever asked for it; others still work.

    [project.entry-points."modelkeeper.policies"]
    mine = "my_package.policies:MINE"

What a part must be able to do, its own package says: `policy.selection.base`, `zoo.stores`. Settings need the
names, so this module imports next to nothing.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from modelkeeper.errors import InvalidSetting

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Registry:
    """Parts of one kind by name. Safe to use from several threads."""

    def __init__(self, what: str, group: str, built_in: Mapping[str, str]) -> None:
        """Name the kind of part.

        Args:
            what: The setting that names a part, as errors call it.
            group: The entry points by which packages add one.
            built_in: Where the parts of modelkeeper are: "module:attribute" by name.
        """
        self.what, self.group, self.built_in = what, group, dict(built_in)
        self._added: dict[str, object] = {}

    def __contains__(self, name: object) -> bool:
        """Is there a part of this name? Nothing is imported for the answer."""
        return isinstance(name, str) and (
            name in self.built_in or name in self._added or name in self._installed
        )

    def names(self) -> tuple[str, ...]:
        """The names of all parts, in alphabetical order."""
        return tuple(sorted({*self.built_in, *self._added, *self._installed}))

    def add(self, name: str, part: object) -> None:
        """Add a part for this process; one that was added before under this name is replaced.

        Raises:
            InvalidSetting: A built-in part has this name.
        """
        if name in self.built_in:
            raise InvalidSetting(self.what, repr(name), "this name is built in; choose another")
        self._added[name] = part

    def remove(self, name: str) -> None:
        """Remove a part that was added in this process; one that is not there is no error."""
        self._added.pop(name, None)

    def get(self, name: str) -> object:
        """The part of this name.

        Raises:
            InvalidSetting: There is none, or the package that offers it is broken.
        """
        if name in self.built_in:
            import pkgutil

            return pkgutil.resolve_name(self.built_in[name])
        if name in self._added:
            return self._added[name]
        if name not in self._installed:
            raise self.unknown(name)
        try:
            return self._installed[name].load()
        except Exception as problem:  # foreign code may fail in any way, and must not end ours
            raise self.broken(name, f"{type(problem).__name__}: {problem}") from problem

    def unknown(self, name: str) -> InvalidSetting:
        """The error that there is no part of this name."""
        return InvalidSetting(self.what, repr(name), f"choose one of {', '.join(self.names())}")

    def broken(self, name: str, reason: str) -> InvalidSetting:
        """The error that the part of this name cannot be used; it is logged, too."""
        import logging

        value = self._installed[name].value if name in self._installed else "added in this process"
        logging.getLogger("modelkeeper").warning(
            "the %s %r (%s) cannot be used: %s", self.what, name, value, reason
        )
        others = ", ".join(other for other in self.names() if other != name)
        return InvalidSetting(
            self.what,
            repr(name),
            f"it cannot be used ({reason}). Mend it ({value}), or choose one of {others}",
        )

    @cached_property
    def _installed(self) -> "dict[str, EntryPoint]":
        """What installed packages offer; looked for once, as it takes milliseconds."""
        from importlib.metadata import entry_points

        return {entry.name: entry for entry in entry_points(group=self.group)}


POLICIES = Registry(
    "policy",
    "modelkeeper.policies",
    {
        "benefit": "modelkeeper.policy.selection.benefit:BENEFIT",
        "buckets": "modelkeeper.policy.selection.buckets:BUCKETED",
    },
)
