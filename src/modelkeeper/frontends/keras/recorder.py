"""What does a Keras model do? Every keras.ops operation of one symbolic call, on any backend.

Called on symbolic tensors, Keras asks each layer for the shape of its output. Here the layer's own `call`
runs on the symbolic tensors instead, so that each operation in it is seen: convolutions, norms, products
arrive whole. Stand-ins take the place of variables, so that what is computed from variables alone is seen
as well.

Some layers loop inside the backend (LSTM, GRU) or say more as a whole than in parts: they arrive whole. A
layer whose `call` does not run on symbolic tensors (it uses the backend directly) arrives whole too, with
the reason.
"""

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import keras
from keras import tree

from modelkeeper.frontends.keras.known_layers import AT_REST, REWRITTEN, WHOLE, hands_through
from modelkeeper.frontends.keras.patches import listening
from modelkeeper.frontends.keras.random_state import keep_names
from modelkeeper.frontends.keras.variables import Variables, is_variable, lacks_variables, layers_of, shape_of
from modelkeeper.text import first_line

# Where Keras lists variables for itself, and what is no part of the model.
_LISTS = frozenset(
    """_trainable_variables _non_trainable_variables _tracker _seed_generators _metrics _loss_tracker
    optimizer _optimizer _torch_params""".split()
)
# Where Keras says a wrong shape, or none: norms with an offset and no scale, values not as wide as keys.
_SHAPES: dict[str, Callable[..., tuple[int, ...]]] = {
    "BatchNorm": lambda x, *args, **kwargs: x.shape,
    "DotProductAttention": lambda query, key, value, *args, **kwargs: (*query.shape[:-1], value.shape[-1]),
}
_PLAIN = frozenset({bool, int, float, str, type(None), types.FunctionType, types.MethodType})


class NotBuilt(Exception):
    """A layer of the model has no variables yet."""


class StandIn(keras.KerasTensor):  # type: ignore[misc]
    """A symbolic tensor in the place of a variable."""

    def __init__(self, variable: Any) -> None:
        super().__init__(shape_of(variable), dtype=variable.dtype, record_history=False, name=variable.name)
        self.variable = variable
        self.trainable, self.path = variable.trainable, variable.path

    @property
    def dtype(self) -> Any:
        """As the variable's: within a layer of mixed precision, what it computes in."""
        return self.variable.dtype

    @property
    def value(self) -> "StandIn":
        """Itself."""
        return self

    def assign(self, value: Any) -> None:
        """No variable changes while a model is looked at."""
        raise RuntimeError("it writes to a variable when it is called")

    assign_add = assign_sub = assign


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One operation, or a layer that arrived whole."""

    name: str  # of the operation or the layer
    operation: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[Any]  # symbolic tensors
    where: str  # the path of the layer that it ran in
    opaque: str = ""  # why nothing is known of it


@dataclass(slots=True)
class Recording:
    """What a model did."""

    calls: list[Call] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)  # symbolic tensors
    outputs: list[Any] = field(default_factory=list)


def record(model: Any, variables: Variables, example: Any) -> Recording:
    """What a model does with example inputs: symbolic tensors, in the structure that the model takes.

    Raises:
        NotBuilt: A layer has no variables yet.
        Exception: Whatever the model raises.
    """
    recorder = _Recorder(model, variables)
    args, kwargs = example
    with keep_names(), recorder.standing_in(), listening(recorder):  # operations and layers count their names
        returned = model(*args, **kwargs, training=False)
    recording = recorder.recording
    recording.inputs, recording.outputs = _tensors((args, kwargs)), _tensors(returned)
    return recording


def _tensors(structure: Any) -> list[Any]:
    if isinstance(structure, keras.KerasTensor):
        return [structure]
    return [leaf for leaf in tree.flatten(structure) if isinstance(leaf, keras.KerasTensor)]  # dicts sorted


class _Recorder:
    """Listens to one call of a model: see `patches.Listener`."""

    def __init__(self, model: Any, variables: Variables) -> None:
        self.recording = Recording()
        self._model, self._variables = model, variables
        self._known = list(layers_of(model))
        self._unbuilt = {id(layer) for layer in self._known if not layer.built}
        self._stand_ins: dict[int, StandIn] = {}
        self._met: set[int] = set()
        self._changed: list[tuple[Any, str, Any, Any]] = []  # a layer, its attribute, before, meanwhile
        self._path: list[Any] = []

    # -- stand-ins ------------------------------------------------------------------------------

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """Put stand-ins in the place of the variables of all layers, and the variables back afterwards."""
        try:
            for layer in self._known:
                self._replace(layer)
            yield
        finally:
            for layer, key, before, _ in reversed(self._changed):
                layer.__dict__[key] = before

    def _replace(self, layer: Any) -> None:
        if id(layer) in self._met:
            return
        self._met.add(id(layer))
        table = layer.__dict__
        owns = layer._trainable_variables or layer._non_trainable_variables
        for key, value in list(table.items()) if owns else ():
            if type(value) in _PLAIN or key in _LISTS:
                continue
            new = self._stood_in(value)
            if new is not None:
                self._changed.append((layer, key, value, new))
                table[key] = new
        for kind, attributes in AT_REST.items():
            if isinstance(layer, kind):
                for key, new in attributes.items():
                    self._changed.append((layer, key, table[key], new))
                    table[key] = new
        if "_called" in table:
            self._changed.append((layer, "_called", table["_called"], True))

    def _stood_in(self, value: Any) -> Any:
        """What takes the place of an attribute's value; None: it has no variables."""
        if is_variable(value):
            return self._stand_in(value)
        if isinstance(value, (list, tuple)):
            new = [self._stand_in(item) if is_variable(item) else item for item in value]
            return new if any(isinstance(item, StandIn) for item in new) else None
        if isinstance(value, dict):
            held = {key: self._stand_in(item) if is_variable(item) else item for key, item in value.items()}
            return held if any(isinstance(item, StandIn) for item in held.values()) else None
        return None

    def _stand_in(self, variable: Any) -> StandIn:
        known = self._stand_ins.get(id(variable))
        if known is None:
            known = self._stand_ins[id(variable)] = StandIn(variable)
        return known

    @contextmanager
    def _variables_back(self, layer: Any) -> Iterator[None]:
        """The variables of a layer, and of those in it, back in their place for a while; nobody listens."""
        inside = {id(each) for each in layers_of(layer)}
        changes = [change for change in self._changed if id(change[0]) in inside]
        for owner, key, before, _ in changes:
            owner.__dict__[key] = before
        try:
            with listening(None):
                yield
        finally:
            for owner, key, _, meanwhile in changes:
                owner.__dict__[key] = meanwhile

    # -- what is heard --------------------------------------------------------------------------

    def operation(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An operation: what it returns is what Keras says of it."""
        name = type(operation).__name__
        shape = _SHAPES.get(name)
        if shape is None:
            outputs = operation.compute_output_spec(*args, **kwargs)
        else:
            outputs = keras.KerasTensor(shape(*args, **kwargs), dtype=args[0].dtype, record_history=False)
        self._note(name, operation, args, kwargs, outputs)
        return outputs

    def layer(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A layer: what its `call` returns, or what Keras says of it as a whole."""
        if hands_through(layer, args):
            return args[0]
        self._path.append(layer)
        try:
            self._replace(layer)  # one that no list of the model names
            return self._call(layer, args, kwargs)
        finally:
            self._path.pop()

    def _call(self, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name, why = WHOLE.get(type(layer).call, ""), ""
        if layer is not self._model and getattr(layer, "quantization_mode", None) is not None:
            name, why = type(layer).__name__, f"quantised to {layer.quantization_mode}"
        if not name:
            before = len(self.recording.calls)
            try:
                rewritten = REWRITTEN.get(type(layer).call)
                return (rewritten(layer) if rewritten else layer.call)(*args, **kwargs)
            except NotBuilt:
                raise
            except Exception as error:
                if layer is self._model:
                    raise
                del self.recording.calls[before:]
                name, why = type(layer).__name__, first_line(error)
        with self._variables_back(layer):
            outputs = layer.compute_output_spec(*args, **kwargs)
        self._note(name, layer, args, kwargs, outputs, why)
        return outputs

    def builds(self, layer: Any) -> bool:
        """Is a layer that is not built yet to be built? One that would get variables is refused."""
        if id(layer) in self._unbuilt and lacks_variables(layer):
            raise NotBuilt(layer.name)
        return id(layer) not in self._unbuilt

    def draw(self, kind: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Random numbers: a symbolic tensor of their shape."""
        shape = args[0] if args else kwargs["shape"]
        dtype = kwargs.get("dtype") or ("int32" if kind == "randint" else keras.config.floatx())
        outputs = keras.KerasTensor(tuple(shape), dtype=dtype, record_history=False)
        self._note(f"random.{kind}", None, (), {}, outputs)
        return outputs

    def _note(
        self,
        name: str,
        operation: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        outputs: Any,
        opaque: str = "",
    ) -> None:
        where = (self._path[-1].path or "") if self._path else ""
        made = _tensors(outputs)
        self.recording.calls.append(Call(name, operation, args, kwargs, made, where, opaque))
