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

import itertools
from typing import TYPE_CHECKING, Any, cast

from modelkeeper.errors import UnknownFramework
from modelkeeper.frontends.protocol import Frontend
from modelkeeper.plugins import Registry

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from modelkeeper.graph import Graph

FRONTENDS = Registry(
    "front end",
    "modelkeeper.frontends",
    {  # in the order in which they are asked: a Keras model on PyTorch is a torch.nn.Module as well
        "keras": "modelkeeper.frontends.keras.frontend:FRONTEND",
        "onnx": "modelkeeper.frontends.onnx.frontend:FRONTEND",
        "torch": "modelkeeper.frontends.torch.frontend:FRONTEND",
    },
    replaceable=True,
)


def frontend_for(model: object) -> Frontend:
    """The front end that takes a model.

    Raises:
        UnknownFramework: None does.
    """
    packages = sorted({_package(base) for base in type(model).__mro__})
    built_in = map(FRONTENDS.get, filter(packages.__contains__, FRONTENDS.built_in))
    for part in itertools.chain(FRONTENDS.added(), built_in):
        frontend = cast(Frontend, part)
        if frontend.takes(model):
            return frontend
    for package in packages:
        for entry, part in FRONTENDS.offers(package, _problem):
            frontend = cast(Frontend, part)
            if _takes(entry, frontend, model):
                return frontend
    raise UnknownFramework(type(model).__qualname__, FRONTENDS.names())


def _package(kind: type) -> str:
    """The package that a class is of; one of a front end of ours counts as its framework's."""
    return kind.__module__.removeprefix("modelkeeper.frontends.").partition(".")[0]


def register(frontend: Frontend) -> None:
    """Add a front end to this process. It is asked before all others, and replaces one of the same name.

    Raises:
        TypeError: It lacks a part of what `protocol.Frontend` asks for.
    """
    if problem := _problem(frontend):
        raise TypeError(f"{type(frontend).__qualname__} is no front end: {problem}")
    unregister(frontend.name)  # so that it is the latest
    FRONTENDS.add(frontend.name, frontend)


def unregister(name: str) -> None:
    """Take out again what `register` added under a name, if anything."""
    FRONTENDS.remove(name)


def describe(frontend: Frontend, model: Any, example_inputs: Any = None) -> "Graph":
    """The graph of a model, without its weights.

    Raises:
        CannotDescribe: The model did not run on the inputs there were; the message says what to pass.
    """
    from modelkeeper.tracing.describe import describe as describe_trace

    return describe_trace(frontend.trace(model, example_inputs))


def _problem(part: object) -> str:
    """What an object lacks to be a front end; "" if nothing."""
    needed = ("name", "runner", "trials", "takes", "trace", "read", "load", "example")
    missing = [name for name in needed if not hasattr(part, name)]
    return f"it has no {', '.join(missing)}" if missing else ""


def _takes(entry: "EntryPoint", frontend: Frontend, model: object) -> bool:
    """Does a front end of a package take a model? One that raises does not, and a warning says so."""
    try:
        return frontend.takes(model)
    except Exception as error:  # noqa: BLE001 (foreign code may raise anything)
        FRONTENDS.warn(entry, f"it raised {type(error).__name__}: {error}")
        return False
