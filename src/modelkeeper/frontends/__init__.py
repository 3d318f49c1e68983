"""Front ends: one module per framework, each with the same functions.

    describe(model, example_inputs=None) -> Graph    the model without its weights
    read(model)                          -> names and arrays, without copying where possible
    load(model, weights)                 writes weights in place, all or nothing
    example(shape, dtype)                -> a tensor of that framework, for `example_inputs`

Importing a front end imports its framework; `frontend_for` imports just the one that a model needs.
"""

from importlib import import_module
from types import ModuleType

from modelkeeper.errors import UnknownFramework

# The package that defines a model's base class -> the front end that takes it.
_FRONTENDS = {"torch": "modelkeeper.frontends.torch"}


def frontend_for(model: object) -> ModuleType:
    """The front end whose framework this model comes from."""
    for base in type(model).__mro__:
        name = _FRONTENDS.get(base.__module__.partition(".")[0])
        if name is not None:
            frontend = import_module(name)
            if isinstance(model, frontend.MODEL):
                return frontend
    raise UnknownFramework(type(model).__qualname__, tuple(_FRONTENDS))


__all__ = ["frontend_for"]
