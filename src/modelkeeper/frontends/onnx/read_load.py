"""Take weights out of an ONNX model, and put weights into it.

All speak of tensors by the names and in the axis order of the graph. What is read is a view of the model's
file where it lies there as it is; writing goes tensor by tensor.
"""

import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from modelkeeper.errors import InvalidWeights
from modelkeeper.frontends.onnx.describe import layouts_of
from modelkeeper.frontends.onnx.layouts import Layout
from modelkeeper.frontends.onnx.model_file import OnnxModel
from modelkeeper.frontends.onnx.saving import LARGEST_FILE, Draft, write
from modelkeeper.weights import Array


def read(model: OnnxModel) -> Iterator[tuple[str, Array]]:
    """Every tensor of the graph by name, one at a time."""
    for name, layout in layouts_of(model).items():
        yield name, layout.take(model.array(layout.initializer))


def load(model: OnnxModel, weights: Mapping[str, Any]) -> OnnxModel:
    """Write weights into a model, in place, and return it. Its file is not touched: see `OnnxModel.save`.

    Raises:
        InvalidWeights: A name is unknown, or a shape or kind of number does not fit. The model is unchanged.
    """
    layouts = layouts_of(model)
    for name, value in weights.items():
        _check(layouts, name, np.asarray(value))
    _fill(model, layouts, weights.items())
    return model


def save(
    model: OnnxModel,
    path: str | os.PathLike[str],
    weights: Iterable[tuple[str, Any]],
    *,
    most: int = LARGEST_FILE,
) -> None:
    """Write a model with other weights to a new file, as they come: they are never all in memory.

    Args:
        model: Neither it nor its file is changed.
        path: Not that of the model.
        weights: By the names of the graph, in any order; what is not among them is as the model has it.
        most: Bytes of tensors that are written into one file; if there are more, they get one beside it.

    Raises:
        InvalidWeights: A name is unknown, or a shape or kind of number does not fit. Nothing is written.
        InvalidModelFile: The path is that of the model itself, or cannot be written to.
    """
    layouts = layouts_of(model)
    target = model.other_path(path)
    write(model.proto, model.array, target, lambda draft: _fill(draft, layouts, weights), most=most)


def _fill(
    target: OnnxModel | Draft, layouts: Mapping[str, Layout], weights: Iterable[tuple[str, Any]]
) -> None:
    """Write weights to where the initializers of a model lie, one after the other."""
    for name, value in weights:
        array = np.asarray(value)
        layout = _check(layouts, name, array)
        stored = target.array(layout.initializer)
        changed = stored if stored.flags.writeable else np.array(stored)
        layout.put(changed, array.astype(stored.dtype, copy=False))
        target.replace(layout.initializer, changed)


def _check(layouts: Mapping[str, Layout], name: str, value: Array) -> Layout:
    """Where a weight goes, if it fits there."""
    layout = layouts.get(name)
    if layout is None:
        near = difflib.get_close_matches(name, layouts, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise InvalidWeights(name, f"the model has no such tensor{hint}")
    if value.shape != layout.shape:
        raise InvalidWeights(name, f"shape {value.shape}, the model has {layout.shape}")
    if "float" not in value.dtype.name and value.dtype.kind not in "iub":
        raise InvalidWeights(name, f"{value.dtype} is no kind of number that it could become")
    return layout
