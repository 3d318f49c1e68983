"""Front ends: one object per framework, each with the same methods. See `protocol` for what they promise.

    frontend = frontend_for(model)                   which one takes this model?
    describe(frontend, model, inputs)    -> Graph    the model without its weights
    frontend.read(model)                 -> names and arrays, without copying where possible
    frontend.load(model, weights)        -> the model with these weights, all or nothing
    frontend.example(shape, dtype)       -> an example input of that framework

Importing a front end imports its framework; `frontend_for` imports just the one that a model needs.
"""

from modelkeeper.frontends.protocol import Frontend
from modelkeeper.frontends.registry import describe, frontend_for, register, unregister

__all__ = ["Frontend", "describe", "frontend_for", "register", "unregister"]
