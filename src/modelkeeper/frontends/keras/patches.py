"""How does one thread listen to what Keras does, while others go on as ever?

Keras dispatches a call on symbolic tensors through a few class attributes and functions. They are replaced
while somebody listens, once for all threads, by ones that ask whether the current thread is listening; the
last listener puts the originals back. Who listens is a `Listener`: it is told of operations, of layers, of
random numbers.
"""

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Protocol

import keras
from keras.src import backend, ops
from keras.src.backend.common import global_state
from keras.src.backend.common import keras_tensor as tensor_module
from keras.src.backend.common.keras_tensor import any_symbolic_tensors
from keras.src.layers import layer as layer_module
from keras.src.layers.layer import Layer
from keras.src.ops import operation as operation_module
from keras.src.ops.operation import Operation

Patch = tuple[Any, str, Any, Any]  # whose, which attribute, what it was, what it is meanwhile
FILTERING = "traceback_filtering"  # Keras' own setting for this thread: it wraps every call, which takes time
# Functions that are no operations, or that do with symbolic tensors what they should as they are.
_NOT_ROUTED = {"shape", "is_tensor", "any_symbolic_tensors", "compute_output_spec", "vectorized_map", "cond"}
_DRAWS = ("normal", "randint", "truncated_normal", "uniform")  # they take a shape first

_here = threading.local()
_lock = threading.Lock()
_listeners = 0


class Listener(Protocol):
    """What is told of everything that the current thread does with symbolic tensors."""

    def operation(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operation is called; what it returns."""

    def layer(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A layer is called; what it returns."""

    def build(self, layer: Any) -> None:
        """A layer is about to be built because it is called. May raise."""

    def draw(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Random numbers are asked for; what stands for them."""


def listener() -> Listener | None:
    """Who listens in this thread."""
    return getattr(_here, "listener", None)


@contextmanager
def listening(new: Listener | None) -> Iterator[None]:
    """Let `new` be told of what this thread does; None: nobody, for a while."""
    before, filtered = listener(), global_state.get_global_attribute(FILTERING)
    _count(1)
    _here.listener = new
    global_state.set_global_attribute(FILTERING, False)
    try:
        yield
    finally:
        global_state.set_global_attribute(FILTERING, filtered)
        _here.listener = before
        _count(-1)


def _count(change: int) -> None:
    """Put the patches in for the first listener, and take them out after the last."""
    global _listeners
    with _lock:
        if _listeners == 0:
            for owner, name, _, new in _patches():
                setattr(owner, name, new)
        _listeners += change
        if _listeners == 0:
            for owner, name, old, _ in _patches():
                setattr(owner, name, old)


@cache
def _patches() -> list[Patch]:
    return [*_dispatch(), *_lighter(), *_routes(), *_draws()]


def _dispatch() -> Iterator[Patch]:
    """Where Keras calls operations and layers on symbolic tensors."""
    call_operation, call_layer, make_node = Operation.symbolic_call, Layer.symbolic_call, layer_module.Node
    maybe_build, add_loss = Layer._maybe_build, Layer.add_loss

    def operation(self: Any, *args: Any, **kwargs: Any) -> Any:
        told = listener()
        return call_operation(self, *args, **kwargs) if told is None else told.operation(self, args, kwargs)

    def layer(self: Any, *args: Any, **kwargs: Any) -> Any:
        told = listener()
        return call_layer(self, *args, **kwargs) if told is None else told.layer(self, args, kwargs)

    def build(self: Any, *args: Any, **kwargs: Any) -> Any:
        told = listener()
        if told is not None and not self.built:
            told.build(self)
        return maybe_build(self, *args, **kwargs)

    def node(*args: Any, **kwargs: Any) -> Any:  # it would hold on to everything, in both directions
        return make_node(*args, **kwargs) if listener() is None else None

    def loss(self: Any, *args: Any, **kwargs: Any) -> Any:
        return add_loss(self, *args, **kwargs) if listener() is None else None

    yield Operation, "symbolic_call", call_operation, operation
    yield Layer, "symbolic_call", call_layer, layer
    yield Layer, "_maybe_build", maybe_build, build
    yield Layer, "add_loss", add_loss, loss
    yield layer_module, "Node", make_node, node


def _lighter() -> Iterator[Patch]:
    """What Keras does so that operations can be saved and tensors be told apart, and asks at each call."""
    make, name_operation, name_tensor = Operation.__new__, operation_module.auto_name, tensor_module.auto_name
    call, is_tensor = Layer.__call__, backend.is_tensor

    def new(kind: Any, *args: Any, **kwargs: Any) -> Any:
        if listener() is None or issubclass(kind, Layer):
            return make(kind, *args, **kwargs)
        return object.__new__(kind)

    def named(ordinarily: Callable[[str], str]) -> Callable[[str], str]:
        return lambda prefix: ordinarily(prefix) if listener() is None else prefix

    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        told = listener()
        if told is None or not _is_plain(self, args, kwargs):
            return call(self, *args, **kwargs)
        self._assert_input_compatibility(args[0])
        return told.layer(self, args, {"training": False} if self._call_has_training_arg else {})

    def symbolic_is_none(x: Any) -> Any:
        return False if isinstance(x, keras.KerasTensor) else is_tensor(x)

    asks = (ops.core, ops.image, ops.linalg, ops.math, ops.nn, ops.numpy, operation_module, layer_module)
    for module in asks:  # each has the function by its own name; Keras' own makes a flat list first
        if hasattr(module, "any_symbolic_tensors"):
            yield module, "any_symbolic_tensors", any_symbolic_tensors, any_symbolic
    yield Layer, "__call__", call, called
    yield backend, "is_tensor", is_tensor, symbolic_is_none
    yield Operation, "__new__", staticmethod(make), staticmethod(new)
    yield operation_module, "auto_name", name_operation, named(name_operation)
    yield tensor_module, "auto_name", name_tensor, named(name_tensor)


def _is_plain(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Is a layer of a model called, with nothing to convert, to build, to mask and to hand on?"""
    if len(args) != 1 or kwargs.keys() - {"training"} or kwargs.get("training") or not layer.built:
        return False
    context = global_state.get_global_attribute("current_call_ctx")  # of the model that this one is in
    if (
        context is None
        or getattr(context, "training", None) is not False
        or len(layer._call_context_args) > 1
    ):
        return False
    own = type(layer)
    if own.compute_mask is not Layer.compute_mask or own.__call__ is not Layer.__call__:
        return False
    if layer.compute_dtype != layer.variable_dtype or backend.get_autocast_scope() is not None:
        return False
    given = args[0] if isinstance(args[0], (list, tuple)) else args
    return all(
        isinstance(x, keras.KerasTensor)
        and getattr(x, "_keras_mask", None) is None
        and (x.dtype == layer.input_dtype or "float" not in x.dtype)
        for x in given
    )


def _routes() -> Iterator[Patch]:
    """Functions of the backend that some layers call: with symbolic tensors they are those of keras.ops."""
    own = importlib.import_module(f"keras.src.backend.{backend.backend()}")
    homes = (
        (backend, ops),
        (own, ops),
        (backend.numpy, ops.numpy),
        (backend.nn, ops.nn),
        (backend.math, ops.math),
        (backend.core, ops.core),
        (backend.image, ops.image),
        (backend.linalg, ops.linalg),
    )
    for module, counterpart in homes:
        for name in dir(module):
            theirs = getattr(module, name)
            ours = getattr(counterpart, name, None) or getattr(ops, name, None)
            plain = callable(theirs) and callable(ours) and not isinstance(theirs, type)
            if plain and not name.startswith("_") and name not in _NOT_ROUTED:
                yield module, name, theirs, _route(theirs, ours)


def _route(theirs: Callable[..., Any], ours: Any) -> Callable[..., Any]:
    def routed(*args: Any, **kwargs: Any) -> Any:
        if listener() is not None and any_symbolic(args, kwargs):
            return ours(*args, **kwargs)
        return theirs(*args, **kwargs)

    return routed


def _draws() -> Iterator[Patch]:
    """Random numbers: nothing is drawn, so that seeds stay what they are."""

    def drawn(kind: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
        def draw(*args: Any, **kwargs: Any) -> Any:
            told = listener()
            return theirs(*args, **kwargs) if told is None else told.draw(kind, args, kwargs)

        return draw

    for name in _DRAWS:
        theirs = getattr(backend.random, name)
        yield backend.random, name, theirs, drawn(name, theirs)


def any_symbolic(args: Any = None, kwargs: Any = None) -> bool:
    """Is there a symbolic tensor among arguments?"""
    return next(symbolic_tensors((args, kwargs)), None) is not None


def symbolic_tensors(structure: Any) -> Iterator[Any]:
    """The symbolic tensors in lists, tuples and dicts."""
    if isinstance(structure, keras.KerasTensor):
        yield structure
    elif isinstance(structure, (list, tuple)):
        for part in structure:
            yield from symbolic_tensors(part)
    elif isinstance(structure, dict):
        for part in structure.values():
            yield from symbolic_tensors(part)
