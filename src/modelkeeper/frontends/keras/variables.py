"""Which variables does a model own, under which names, and what are they to the graph?

Each variable of `model.weights` once, named by its path with dots ("conv2d_1.kernel"). Keras itself leaves
out seeds, metrics and what belongs to the optimizer.

What is not trained by its nature (moving statistics) is a buffer; what is only frozen is a parameter still.
Statistics that a preprocessing layer took of the data are the data's, not the model's: they are never read
and never loaded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
from keras.src.backend.common.variables import Variable

ADAPTED = (keras.layers.Normalization, keras.layers.Discretization)  # their variables describe the data


@dataclass(frozen=True, slots=True)
class NamedVariable:
    """A variable of a model, and what the graph says of it."""

    name: str
    variable: Any
    shape: tuple[int, ...]
    dtype: str
    parameter: bool
    trainable: bool
    stored: bool = True
    frozen: bool = False  # the user does not want it trained


class Variables:
    """The variables of a model, by identity, in the order of its layers."""

    def __init__(self, model: Any) -> None:
        self._known: dict[int, NamedVariable] = {}
        self._names: set[str] = set()
        for layer in layers_of(model):
            self.add(layer)

    def __iter__(self) -> Iterator[NamedVariable]:
        return iter(self._known.values())

    def of(self, variable: Any) -> NamedVariable:
        """What is known of a variable; one that no layer was found to own is taken in as it is."""
        return self._known.get(id(variable)) or self._take(variable, bool(variable.trainable), True, True)

    def add(self, layer: Any) -> None:
        """Take in the variables that a layer has itself."""
        stored = not isinstance(layer, ADAPTED)
        learns = bool(layer.trainable)
        own = layer._trainable_variables
        still = not learns or (bool(own) and not any(variable.trainable for variable in own))
        for parameter, variables in (
            (True, layer._trainable_variables),
            (False, layer._non_trainable_variables),
        ):
            for variable in variables:
                if id(variable) not in self._known:
                    frozen = still or (parameter and not variable.trainable)
                    self._take(variable, parameter, stored, learns, frozen)

    def _take(
        self, variable: Any, parameter: bool, stored: bool, learns: bool, frozen: bool = False
    ) -> NamedVariable:
        path = variable.path.replace("/", ".")
        name, count = path, 1
        while name in self._names:
            count += 1
            name = f"{path}@{count}"
        self._names.add(name)
        known = self._known[id(variable)] = NamedVariable(
            name=name,
            variable=variable,
            shape=shape_of(variable),
            dtype=variable.dtype,
            parameter=parameter,
            trainable=parameter and learns and bool(variable.trainable),
            stored=stored,
            frozen=frozen,
        )
        return known


def is_variable(thing: Any) -> bool:
    """Is it a variable? By the class that all backends share: TensorFlow's own takes long to say no."""
    return isinstance(thing, Variable)


def shape_of(variable: Any) -> tuple[int, ...]:
    """The shape of a variable, as plain numbers; TensorFlow makes a new object each time it is asked."""
    shape: tuple[int, ...] = Variable.shape.fget(variable)
    return shape


def layers_of(model: Any) -> Iterator[Any]:
    """A model and all layers in it, each once, those that it has itself first."""
    met: set[int] = set()
    waiting = [model]
    while waiting:
        layer = waiting.pop()
        if id(layer) not in met:
            met.add(id(layer))
            yield layer
            waiting.extend(reversed(layer._layers))


def lacks_variables(layer: Any) -> bool:
    """Will a layer get variables when it is first called?"""
    return not layer.built and getattr(type(layer).build, "_is_default", False) is False
