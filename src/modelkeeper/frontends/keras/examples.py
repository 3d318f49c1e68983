"""Examples to calibrate with, from whatever a Keras script has: arrays, pairs, dicts, data sets.

    an array             a batch
    a tuple (x, y)       a batch and its labels, or (x, y, weights); x may be a list or a dict of arrays
    a dict               inputs by name
    a PyDataset          its batches, one by one
    any iterable         of these: a list, a tf.data.Dataset, a generator. Read only as far as needed

Labels may be classes, classes in a column, or one-hot rows. The examples stay where they are: nothing of them
but fitted weights goes anywhere.
"""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
from keras import tree

from modelkeeper.errors import CannotCalibrate
from modelkeeper.frontends.calibrating.examples import Batch, Examples, gather
from modelkeeper.frontends.keras.inputs import declared_inputs
from modelkeeper.frontends.keras.numbers import to_numpy
from modelkeeper.frontends.keras.random_state import keep_random_state
from modelkeeper.frontends.keras.record_program import names_in
from modelkeeper.weights import Array

ADVICE = "Give arrays, a pair (x, y), a tf.data.Dataset, a PyDataset, or a list of batches"


def collect(batches: Any, labels: Any, most: int) -> Examples:
    """The first `most` examples. What was collected before is taken as it is.

    Raises:
        CannotCalibrate: There are too few, they hold NaN or infinities, or are no arrays.
    """
    if isinstance(batches, Examples):
        return batches
    with keep_random_state():  # a loader that shuffles draws
        try:
            given = batches_in(batches)
        except TypeError:
            problem = f"{type(batches).__name__} is no collection of batches"
            raise CannotCalibrate(problem, ADVICE) from None
        return gather(_taken_apart(given, labels), most, _rebuilt)


def example_of(model: Any, inputs: Any) -> Any:
    """Inputs to describe or record on: two examples, with the dtypes that the model declares."""
    few = tree.map_structure(lambda leaf: leaf[:2], inputs)
    declared = declared_inputs(model)
    leaves, wanted = tree.flatten(few), [] if declared is None else tree.flatten(declared)
    if len(leaves) == len(wanted):
        few = tree.pack_sequence_as(
            few, [leaf.astype(place.dtype) for leaf, place in zip(leaves, wanted, strict=True)]
        )
    return few if isinstance(few, (dict, list)) else (few,)


def batches_in(batches: Any) -> Iterator[Any]:
    """Iterate over the batches of what a user passed. TypeError: there are none in it."""
    if is_array(batches) or isinstance(batches, dict) or _pair(batches):
        return iter([batches])
    if isinstance(batches, keras.utils.PyDataset):
        return (batches[n] for n in range(batches.num_batches or 0))
    iterator: Iterator[Any] = iter(batches)
    return iterator


def is_array(thing: Any) -> bool:
    """Is it an array, or a tensor of some framework?"""
    return hasattr(thing, "shape") and hasattr(thing, "dtype")


def _pair(batches: Any) -> bool:
    """Is this a single batch with its labels, and maybe weights?"""
    labelled = isinstance(batches, tuple) and len(batches) in (2, 3)
    return labelled and all(is_array(part) for part in batches[1:])


def split(batch: Any) -> tuple[Any, Any]:
    """Split a batch into the inputs of the model and the labels: arrays, in the user's structure."""
    if hasattr(batch, "inputs") and hasattr(batch, "labels"):  # a labelled batch of a race
        return batch.inputs, batch.labels
    if isinstance(batch, tuple):
        return _as_arrays(batch[0]), _as_arrays(batch[1]) if len(batch) > 1 else None
    return _as_arrays(batch), None


def _as_arrays(structure: Any) -> Any:
    return tree.map_structure(lambda leaf: to_numpy(leaf) if is_array(leaf) else leaf, structure)


def _taken_apart(batches: Iterator[Any], labels: Any) -> Iterator[Batch]:
    beside = iter(()) if labels is None else iter([labels]) if is_array(labels) else iter(labels)
    for inputs, own in map(split, batches):
        y = _as_arrays(next(beside, None)) if labels is not None else own
        leaves = tree.flatten(inputs)
        arrays = leaves if all(isinstance(leaf, np.ndarray) for leaf in leaves) else []
        named = list(zip(names_in(inputs), arrays, strict=True)) if arrays else []
        yield Batch(inputs, named, _classes(y) if isinstance(y, np.ndarray) else None)


def _classes(labels: Array) -> Array:
    """Labels as classes, if they are some: from a column, or from one-hot rows."""
    if labels.ndim == 2 and labels.shape[1] == 1 and labels.dtype.kind in "iu":
        return labels[:, 0]
    if labels.ndim == 2 and labels.shape[1] > 1 and ((labels == 0) | (labels == 1)).all():
        return labels.argmax(1) if (labels.sum(1) == 1).all() else labels
    return labels


def _rebuilt(inputs: Any, arrays: list[Array]) -> Any:
    return tree.pack_sequence_as(inputs, arrays)
