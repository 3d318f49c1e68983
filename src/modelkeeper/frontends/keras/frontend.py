"""The Keras front end as one object: what `modelkeeper.frontends.protocol` asks for.

Keras 3, on TensorFlow, JAX or PyTorch: the graph of a model is the same on each. Everything is done by
functions of this package; here they only come together.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import keras

from modelkeeper.frontends.keras.describe import trace_model
from modelkeeper.frontends.keras.inputs import symbolic
from modelkeeper.frontends.keras.read_load import frozen, layouts, load, read
from modelkeeper.frontends.keras.runner import KerasRunner
from modelkeeper.frontends.keras.trained import trained
from modelkeeper.frontends.keras.trials import KerasTrials
from modelkeeper.layouts import Layout
from modelkeeper.tracing.trace import Trace
from modelkeeper.weights import Array

if TYPE_CHECKING:
    from modelkeeper.frontends.abilities import Arranged, Freezing, Judging
    from modelkeeper.frontends.protocol import Frontend

M = TypeVar("M")


class KerasFrontend:
    """Models are instances of keras.Model: see `protocol.Frontend`."""

    name = "keras"
    runner = KerasRunner()
    trials = KerasTrials()

    def takes(self, model: object) -> bool:
        """Is it a keras.Model?"""
        return isinstance(model, keras.Model)

    def trace(self, model: Any, example_inputs: Any = None) -> Trace:
        """What the model does with its inputs, on symbolic tensors."""
        return trace_model(model, example_inputs)

    def read(self, model: Any) -> Iterator[tuple[str, Array]]:
        """Every stored tensor by name, in the axis order of the graph."""
        return read(model)

    def load(self, model: M, weights: Mapping[str, Any]) -> M:
        """Write weights into a model, in place; the model that was given."""
        load(model, weights)
        return model

    def layouts(self, model: Any) -> Mapping[str, Layout]:
        """How the model stores its tensors, by name."""
        return layouts(model)

    def frozen(self, model: Any) -> frozenset[str]:
        """The names of tensors of layers that are not trainable."""
        return frozen(model)

    def trained(self, model: Any) -> str:
        """The signs that a model is not fresh from its initialisation."""
        return trained(model)

    def example(self, shape: Iterable[int], dtype: str = "float32") -> Any:
        """A symbolic tensor."""
        return symbolic(shape, dtype)


FRONTEND = KerasFrontend()

if TYPE_CHECKING:
    _arranged: Arranged = FRONTEND
    _freezing: Freezing = FRONTEND
    _judging: Judging = FRONTEND
    _typed: Frontend = FRONTEND  # it is what the protocol asks for, and a type checker says so
