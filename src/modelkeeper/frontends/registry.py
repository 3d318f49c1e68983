"""Which front end takes this model? Found by name, imported when a model of its framework comes.

    frontend = frontend_for(model)              once, at the edge; then it is handed down
    graph = describe(frontend, model, inputs)

A package adds a front end by an entry point in its metadata. The name is the package whose classes models of
the framework derive from, the value is a Frontend object (see `protocol`):

    [project.entry-points."modelkeeper.frontends"]
    keras = "modelkeeper_keras:FRONTEND"

Only when a model derives from a class of that package is the front end imported, and with it the framework.
An entry point that cannot be used is reported with a warning that names it, and others go on working.
In a test or a notebook, `register(frontend)` does; what was registered is asked first, whatever its name.
"""

import warnings
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from modelkeeper.errors import UnknownFramework
from modelkeeper.frontends.protocol import Frontend

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from modelkeeper.graph import Graph

GROUP = "modelkeeper.frontends"
# Those that are there even where the metadata of installed packages is not: package -> module:attribute.
BUILT_IN = {"torch": "modelkeeper.frontends.torch.frontend:FRONTEND"}
_registered: dict[str, Frontend] = {}  # by name


def frontend_for(model: object) -> Frontend:
    """The front end that takes a model.

    Raises:
        UnknownFramework: None does.
    """
    for frontend in reversed(list(_registered.values())):
        if frontend.takes(model):
            return frontend
    packages = dict.fromkeys(base.__module__.partition(".")[0] for base in type(model).__mro__)
    for package in packages:
        if package in BUILT_IN:
            frontend = _built_in(BUILT_IN[package])
            if frontend.takes(model):
                return frontend
    for entry in entry_points():
        if entry.name in packages and entry.value not in BUILT_IN.values():
            third_party = _load(entry)
            if third_party is not None and _takes(entry, third_party, model):
                return third_party
    known = dict.fromkeys([*BUILT_IN, *(entry.name for entry in entry_points()), *_registered])
    raise UnknownFramework(type(model).__qualname__, tuple(known))


def register(frontend: Frontend) -> None:
    """Add a front end to this process. It is asked before all others, and replaces one of the same name.

    Raises:
        TypeError: It lacks a part of what `protocol.Frontend` asks for.
    """
    if missing := _missing(frontend):
        raise TypeError(f"{type(frontend).__qualname__} is no front end: it has no {', '.join(missing)}")
    unregister(frontend.name)
    _registered[frontend.name] = frontend


def unregister(name: str) -> None:
    """Take out again what `register` added under a name, if anything."""
    _registered.pop(name, None)


def describe(frontend: Frontend, model: Any, example_inputs: Any = None) -> "Graph":
    """The graph of a model, without its weights.

    Raises:
        CannotDescribe: The model did not run on the inputs there were; the message says what to pass.
    """
    from modelkeeper.tracing.describe import describe as describe_trace

    return describe_trace(frontend.trace(model, example_inputs))


@lru_cache
def entry_points() -> tuple["EntryPoint", ...]:
    """The front ends that installed packages declare, by their names in order."""
    from importlib.metadata import entry_points as declared

    return tuple(sorted(declared(group=GROUP), key=lambda entry: (entry.name, entry.value)))


@lru_cache
def _built_in(value: str) -> Frontend:
    module, _, attribute = value.partition(":")
    frontend: Frontend = getattr(import_module(module), attribute)
    return frontend


@lru_cache
def _load(entry: "EntryPoint") -> Frontend | None:
    """The front end of an entry point; None, with one warning, if it cannot be used."""
    try:
        frontend = entry.load()
    except Exception as error:  # noqa: BLE001 (importing a third party's code may raise anything)
        problem = f"{type(error).__name__}: {error}"
    else:
        missing = _missing(frontend)
        if not missing:
            return cast(Frontend, frontend)
        problem = f"it has no {', '.join(missing)}"
    _warn(entry, problem)
    return None


def _takes(entry: "EntryPoint", frontend: Frontend, model: object) -> bool:
    try:
        return frontend.takes(model)
    except Exception as error:  # noqa: BLE001 (a third party's code may raise anything)
        _warn(entry, f"it raised {type(error).__name__}: {error}")
        return False


def _warn(entry: "EntryPoint", problem: str) -> None:
    package = f" of {entry.dist.name}" if entry.dist is not None else ""
    text = f"the front end {entry.name} = {entry.value}{package} cannot be used: {problem}"
    warnings.warn(f"{text}. Update or uninstall that package.", RuntimeWarning, stacklevel=4)


def _missing(frontend: object) -> list[str]:
    parts = ("name", "runner", "trials", "takes", "trace", "read", "load", "example")
    return [part for part in parts if not hasattr(frontend, part)]
