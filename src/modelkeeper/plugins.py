"""Which parts can others add, and which are there? Names at once, code when it is asked for.

    POLICIES.names()               built in, registered in this process, and of installed packages
    POLICIES.add("mine", policy)   a part for this process
    POLICIES.get("mine")           the part; its module is imported now, not before
    FRONTENDS.offers("keras", ...) all that packages offer under a name, where several may serve

A package adds a part by an entry point in its pyproject.toml, found when a name is asked for that is not
built in.

    [project.entry-points."modelkeeper.policies"]
    mine = "my_package.policies:MINE"

One that cannot be used is named with its package, and others still work. Who asked for it gets an error, and
as that may be a client far away, it is in the log as well; who asked for any that serves gets a warning.

What a part must be able to do, its own package says: `policy.selection.base`, `zoo.files.stores`,
`frontends.protocol`. Settings need the names, so this module imports next to nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from modelkeeper.errors import InvalidSetting
from modelkeeper.lasting import cached_property
from modelkeeper.logs import logger
from modelkeeper.text import one_line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class Registry:
    """Parts of one kind by name. Safe to use from several threads."""

    def __init__(
        self, what: str, group: str, built_in: Mapping[str, str], *, replaceable: bool = False
    ) -> None:
        """Name the kind of part.

        Args:
            what: What errors and warnings call a part: the setting that names it, if there is one.
            group: The entry points by which packages add one.
            built_in: Where the parts of modelkeeper are: "module:attribute" by name.
            replaceable: May a part that is added in this process have the name of a built-in one?
        """
        self.what, self.group, self.built_in = what, group, dict(built_in)
        self._replaceable = replaceable
        self._added: dict[str, object] = {}
        self._unusable: set[EntryPoint] = set()  # those that a warning has named

    def __contains__(self, name: object) -> bool:
        """Is there a part of this name? Nothing is imported for the answer."""
        return isinstance(name, str) and (name in self.built_in or name in self.names())

    def names(self) -> tuple[str, ...]:
        """The names of all parts, in alphabetical order."""
        return tuple(sorted({*self.built_in, *self._added, *(entry.name for entry in self._installed)}))

    def add(self, name: str, part: object) -> None:
        """Add a part for this process; one that was added before under this name is replaced.

        Raises:
            InvalidSetting: A built-in part has this name.
        """
        if name in self.built_in and not self._replaceable:
            raise InvalidSetting(self.what, repr(name), "this name is built in; choose another")
        self._added[name] = part

    def remove(self, name: str) -> None:
        """Remove a part that was added in this process; one that is not there is no error."""
        self._added.pop(name, None)

    def added(self) -> tuple[object, ...]:
        """The parts that were added in this process, the latest first (a replacement takes the old place)."""
        return tuple(reversed(list(self._added.values())))

    def get(self, name: str) -> object:
        """The part of this name: the built-in one if there is one.

        Raises:
            InvalidSetting: There is none, or the package that offers it is broken.
        """
        if name in self.built_in:
            import pkgutil

            return pkgutil.resolve_name(self.built_in[name])
        if name in self._added:
            return self._added[name]
        entry = self._entry(name)
        if entry is None:
            raise self.unknown(name)
        try:
            return entry.load()
        except Exception as error:  # foreign code may fail in any way, and must not end the process
            raise self.broken(name, f"{type(error).__name__}: {error}") from error

    def offers(self, name: str, problem: Callable[[object], str]) -> "Iterator[tuple[EntryPoint, object]]":
        """Load the parts that packages offer under a name; for one that cannot be used, there is one warning.

        Args:
            name: Several packages may offer parts under one name.
            problem: Says what is wrong with a part; "": it can be used.
        """
        for entry in self._installed:
            if entry.name != name or entry in self._unusable:
                continue
            try:
                part = entry.load()
                reason = problem(part)
            except Exception as error:  # noqa: BLE001 (importing foreign code may raise anything)
                reason = f"{type(error).__name__}: {error}"
            if not reason:
                yield entry, part
            else:
                self._unusable.add(entry)
                self.warn(entry, reason)

    def warn(self, entry: "EntryPoint", reason: str) -> None:
        """Warn that what a package offers by an entry point cannot be used."""
        import warnings

        text = f"the {self.what} {_source(entry)} cannot be used: {reason}"
        warnings.warn(one_line(f"{text}. Update or uninstall that package."), RuntimeWarning, stacklevel=4)

    def unknown(self, name: str) -> InvalidSetting:
        """The error that there is no part of this name."""
        return InvalidSetting(self.what, repr(name), f"choose one of {', '.join(self.names())}")

    def broken(self, name: str, reason: str) -> InvalidSetting:
        """The error that the part of this name cannot be used; it is logged, too."""

        entry = None if name in self._added else self._entry(name)
        source = _source(entry) if entry is not None else f"{name}, added in this process,"
        logger().warning("the %s %s cannot be used: %s", self.what, source, reason)
        others = ", ".join(other for other in self.names() if other != name)
        where = entry.value if entry is not None else "added in this process"
        return InvalidSetting(
            self.what,
            repr(name),
            f"it cannot be used ({reason}). Mend it ({where}), or choose one of {others}",
        )

    def _entry(self, name: str) -> "EntryPoint | None":
        return next((entry for entry in self._installed if entry.name == name), None)

    @cached_property
    def _installed(self) -> "tuple[EntryPoint, ...]":
        """The entry points of installed packages, but for built-in parts; looked for once: it takes time."""
        from importlib.metadata import entry_points

        declared = sorted(entry_points(group=self.group), key=lambda entry: (entry.name, entry.value))
        return tuple(entry for entry in declared if entry.value not in self.built_in.values())


def _source(entry: "EntryPoint") -> str:
    """An entry point as its package declares it, and the name of that package."""
    package = f" of {entry.dist.name}" if entry.dist is not None else ""
    return f"{entry.name} = {entry.value}{package}"


POLICIES = Registry(
    "policy",
    "modelkeeper.policies",
    {
        "benefit": "modelkeeper.policy.selection.benefit:BENEFIT",
        "buckets": "modelkeeper.policy.selection.buckets:BUCKETED",
    },
)
