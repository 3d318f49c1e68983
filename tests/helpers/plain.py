"""A front end for a framework that there is not: models in plain NumPy, traced by hand.

It shows what a front end has to deliver, and that nothing behind it needs a framework: a residual network is
described, aligned, planned and loaded, with no deep-learning library installed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from modelkeeper.errors import InvalidWeights
from modelkeeper.tracing.builder import TraceBuilder
from modelkeeper.tracing.trace import OwnedTensor, Trace, Value
from modelkeeper.weights import Array

TAKES, CLASSES = 5, 3
EPSILON = 1e-5


class PlainModel:
    """x -> h = first(x) -> h + second(tanh(inner(norm(h)))) -> relu -> head."""

    def __init__(self, width: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.weights: dict[str, Array] = {}
        for name, taken, made in (
            ("first", TAKES, width),
            ("inner", width, 2 * width),
            ("second", 2 * width, width),
            ("head", width, CLASSES),
        ):
            self.weights[f"{name}.weight"] = rng.normal(size=(made, taken)).astype(np.float32)
            self.weights[f"{name}.bias"] = rng.normal(size=made).astype(np.float32)
        self.weights["norm.gain"] = rng.normal(size=width).astype(np.float32)
        self.weights["norm.bias"] = rng.normal(size=width).astype(np.float32)

    def __call__(self, x: Array) -> Array:
        w = self.weights

        def linear(name: str, x: Array) -> Array:
            return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

        hidden = linear("first", x)
        spread = np.sqrt(hidden.var(-1, keepdims=True) + EPSILON)
        normed = (hidden - hidden.mean(-1, keepdims=True)) / spread * w["norm.gain"] + w["norm.bias"]
        return linear("head", np.maximum(hidden + linear("second", np.tanh(linear("inner", normed))), 0))


class Tracer:
    """Writes down what a model does: a builder that knows the model's tensors by name."""

    def __init__(self, model: PlainModel, rows: int) -> None:
        self._build = TraceBuilder("plain")
        self._tensors = {
            name: self._build.tensor(OwnedTensor((name,), array.shape, str(array.dtype)))
            for name, array in model.weights.items()
        }
        self.input = self._build.input((rows, TAKES))

    def run(self, name: str, shape: Iterable[int], /, **arguments: Any) -> Value:
        """One step: arguments by name, tensors of the model by theirs."""
        given: dict[str, Any] = {
            key: self._tensors.get(argument, argument) if isinstance(argument, str) else argument
            for key, argument in arguments.items()
        }
        return self._build.step(name, shape, **given)

    def linear(self, name: str, x: Value) -> Value:
        weight, bias = f"{name}.weight", f"{name}.bias"
        shape = (*x.shape[:-1], self._tensors[weight].shape[0])
        return self.run("linear", shape, input=x, weight=weight, bias=bias)

    def trace(self, output: Value) -> Trace:
        return self._build.trace([output])


class PlainFrontend:
    """All that is required of a front end, and nothing that is optional."""

    name = "plain"
    runner = None
    trials = None

    def takes(self, model: object) -> bool:
        return isinstance(model, PlainModel)

    def trace(self, model: PlainModel, example_inputs: Any = None) -> Trace:
        given = example_inputs[0] if isinstance(example_inputs, tuple) else example_inputs
        tracer = Tracer(model, 1 if given is None else given.shape[0])
        hidden = tracer.linear("first", tracer.input)
        width = [hidden.shape[-1]]
        normed = tracer.run(
            "layer_norm",
            hidden.shape,
            input=hidden,
            normalized_shape=width,
            weight="norm.gain",
            bias="norm.bias",
            eps=EPSILON,
        )
        inner = tracer.linear("inner", normed)
        second = tracer.linear("second", tracer.run("tanh", inner.shape, self=inner))
        added = tracer.run("add", hidden.shape, self=hidden, other=second)
        return tracer.trace(tracer.linear("head", tracer.run("relu", added.shape, self=added)))

    def read(self, model: PlainModel) -> Iterator[tuple[str, Array]]:
        yield from model.weights.items()

    def load(self, model: Any, weights: Mapping[str, Any]) -> Any:
        for name, array in weights.items():
            if name not in model.weights:
                raise InvalidWeights(name, "the model has no such tensor")
            if np.shape(array) != model.weights[name].shape:
                raise InvalidWeights(name, f"shape {np.shape(array)}, not {model.weights[name].shape}")
            if np.asarray(array).dtype.kind != "f":
                raise InvalidWeights(name, "no floating-point numbers")
        for name, array in weights.items():
            model.weights[name][...] = array
        return model

    def example(self, shape: Iterable[int], dtype: str = "float32") -> Array:
        return np.empty(tuple(shape), dtype)


FRONTEND = PlainFrontend()
