"""What could this model be called on? Example inputs, as a user passes them, or found from the model itself.

    a tensor, an array, a keras.Input     the one input
    a list, a dict                        several inputs, in the structure that the model takes
    a tuple                               positional arguments; for a model with declared inputs, its inputs
    nothing                               from the inputs that the model declares, or what it was built for

Of examples only shapes and dtypes count. Sizes that the model leaves open are filled in: one example,
images of 224 by 224 pixels, sequences of 16 places; where the model does not run on these, others are
tried.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
from keras import tree

BATCH = 1
_IMAGES = (224, 128, 64, 32, 299, 331, 512)
_SEQUENCES = (16, 32, 64, 128, 8, 512)
_VIDEOS = (32, 64, 112, 16, 128)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Arguments for one call of a model: symbolic tensors with all sizes known."""

    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        texts = [_text(leaf) for leaf in tree.flatten(self.args)]
        texts += [f"{name}={_text(leaf)}" for name, part in self.kwargs for leaf in tree.flatten(part)]
        return ", ".join(texts)

    @property
    def names(self) -> list[str]:
        """A name for each tensor among the inputs."""
        names = ["input"] * len(tree.flatten(self.args))
        for name, part in self.kwargs:
            names += [name] * len(tree.flatten(part))
        return names


def _text(leaf: Any) -> str:
    if not isinstance(leaf, keras.KerasTensor):
        return repr(leaf)
    kind = "" if "float" in leaf.dtype else f"{leaf.dtype}:"
    return kind + "x".join(map(str, leaf.shape))


def symbolic(shape: Any, dtype: Any = None) -> Any:
    """A symbolic tensor of a shape."""
    dtype = dtype or keras.config.floatx()
    return keras.KerasTensor(tuple(shape), dtype=dtype, record_history=False, name="input")  # not counted


def given_inputs(model: Any, example: Any) -> Inputs:
    """Arguments for a call of the model, from what a user passed."""
    if isinstance(example, Inputs):
        return example
    declared = declared_inputs(model)
    leaves = [_as_symbolic(leaf) for leaf in tree.flatten(example)]
    if declared is not None:
        if isinstance(example, dict) and isinstance(declared, dict):
            wanted = {name: _as_symbolic(example[name]) for name in declared if name in example}
            return Inputs((wanted,))
        if len(leaves) == len(tree.flatten(declared)):
            return Inputs((tree.pack_sequence_as(declared, leaves),))
    mapped = tree.pack_sequence_as(example, leaves)
    parameters = [
        name for name in inspect.signature(model.call).parameters if name not in ("training", "mask")
    ]
    if isinstance(example, dict) and set(example) <= set(parameters):
        return Inputs(kwargs=tuple(mapped.items()))
    if isinstance(example, tuple) and (len(example) == 1 or len(example) <= len(parameters)):
        return Inputs(tuple(mapped))
    return Inputs((mapped,))


def _as_symbolic(leaf: Any) -> Any:
    """A fresh symbolic tensor for anything with a shape; what has none is handed on as it is."""
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        return leaf
    shape = [BATCH if size is None else int(size) for size in leaf.shape]
    return symbolic(shape, keras.backend.standardize_dtype(leaf.dtype))


def declared_inputs(model: Any) -> Any:
    """The structure of inputs that a model declares; None: it declares none."""
    for owner in (model, getattr(model, "_functional", None)):
        structure = getattr(owner, "_inputs_struct", None)
        if structure is not None:
            return structure
    return None


def open_inputs(model: Any, batch: int | None = None) -> Any:
    """What the model declares, with the sizes that it leaves open; None: nothing says what it takes."""
    declared = declared_inputs(model)
    if declared is not None:
        return Inputs((declared,))
    shapes = getattr(model, "_build_shapes_dict", None)
    if not shapes:
        return None
    built = {name.removesuffix("_shape"): shape for name, shape in shapes.items()}
    try:
        tensors = {name: _from_shape(shape) for name, shape in built.items()}
    except (TypeError, ValueError):
        return None
    if len(tensors) == 1:
        return Inputs(tuple(tensors.values()))
    return Inputs(kwargs=tuple(tensors.items()))


def _from_shape(shape: Any) -> Any:
    """Symbolic tensors for a shape, or for a structure of shapes."""
    if isinstance(shape, (tuple, list)) and all(size is None or isinstance(size, int) for size in shape):
        return symbolic(shape)
    if isinstance(shape, dict):
        return {name: _from_shape(part) for name, part in shape.items()}
    return [_from_shape(part) for part in shape]


def candidates(model: Any) -> Iterator[Inputs]:
    """Guess example inputs of a model: the likeliest first."""
    declared = open_inputs(model)
    if declared is None:
        return
    met: set[str] = set()
    for dtype in (None,) if declared_inputs(model) is not None else (None, "int32"):
        for attempt in range(max(len(_IMAGES), len(_SEQUENCES), len(_VIDEOS))):
            filled = tree.map_structure(
                lambda leaf, attempt=attempt, dtype=dtype: _filled(leaf, attempt, dtype),
                (declared.args, dict(declared.kwargs)),
            )
            inputs = Inputs(filled[0], tuple(filled[1].items()))
            if str(inputs) not in met:
                met.add(str(inputs))
                yield inputs


def _filled(leaf: Any, attempt: int, dtype: str | None) -> Any:
    """A declared input with all sizes known; each attempt has others."""
    sizes = {4: _IMAGES, 5: _VIDEOS}.get(len(leaf.shape), _SEQUENCES)
    size = sizes[min(attempt, len(sizes) - 1)]
    rest = [size if extent is None else int(extent) for extent in leaf.shape[1:]]
    first = [BATCH if extent is None else int(extent) for extent in leaf.shape[:1]]
    return symbolic(first + rest, dtype or leaf.dtype)
