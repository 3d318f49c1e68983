"""Examples to calibrate with, from whatever a training script has: tensors, pairs, dicts, a loader.

    a tensor             a batch
    a pair (x, y)        a batch and its labels; x may itself be a tuple or a dict of arguments
    a dict               arguments by name, as Hugging Face models take them; "labels" are taken out
    any iterable         of these: a list, a DataLoader, an iterator. Read only as far as needed

The examples stay where they are: nothing of them but fitted weights goes anywhere.
"""

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from modelkeeper.errors import CannotCalibrate
from modelkeeper.frontends.calibrating.examples import Batch, Examples, gather
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.frontends.torch.random_state import keep_random_state
from modelkeeper.frontends.torch.read_load import as_array, as_tensor
from modelkeeper.frontends.torch.recorder import map_tensors, tensors_in
from modelkeeper.weights import Array


def collect(batches: Any, labels: Any, most: int) -> Examples:
    """The first `most` examples. What was collected before is taken as it is.

    Raises:
        CannotCalibrate: There are too few, they hold NaN or infinities, or are no tensors.
    """
    if isinstance(batches, Examples):
        return batches
    with keep_random_state():  # a loader that shuffles draws
        try:
            given = batches_in(batches)
        except TypeError:
            problem = f"{type(batches).__name__} is no collection of batches"
            raise CannotCalibrate(
                problem, "Give a DataLoader, or a list of tensors, pairs or dicts"
            ) from None
        return gather(_taken_apart(given, labels), most, _rebuilt)


def _taken_apart(batches: Iterator[Any], labels: Any) -> Iterator[Batch]:
    beside = _labels(labels)
    for inputs, own in map(split, batches):
        y = next(beside, None) if labels is not None else own
        tensors = tensors_in((inputs.args, dict(inputs.kwargs)))
        arrays = [as_array("a batch", tensor) for tensor in tensors]
        found = as_array("labels", y) if isinstance(y, Tensor) else None
        yield Batch(inputs, list(zip(input_names(inputs), arrays, strict=True)), found)


def input_names(inputs: Inputs) -> list[str]:
    """What programs call the tensors among the inputs of a model: by place, or by keyword."""
    names = [str(n) for n in range(len(list(tensors_in(inputs.args))))]
    for name, value in inputs.kwargs:
        names += [name] * len(list(tensors_in(value)))
    return names


def _rebuilt(inputs: Inputs, arrays: list[Array]) -> Inputs:
    tensors = (as_tensor("a batch", array) for array in arrays)
    args = map_tensors(inputs.args, lambda _: next(tensors))
    return Inputs(args, tuple(map_tensors(dict(inputs.kwargs), lambda _: next(tensors)).items()))


def batches_in(batches: Any) -> Iterator[Any]:
    """Iterate over the batches of what a user passed. TypeError: there are none in it."""
    if isinstance(batches, Tensor) or hasattr(batches, "keys") or _pair(batches):
        return iter([batches])
    iterator: Iterator[Any] = iter(batches)
    return iterator


def _pair(batches: Any) -> bool:
    """Is this a single batch with its labels? Two tensors of one shape are two batches."""
    if not isinstance(batches, tuple) or len(batches) != 2 or not isinstance(batches[1], Tensor):
        return False
    first, labels = batches
    return not isinstance(first, Tensor) or first.shape[1:] != labels.shape[1:]


def _labels(labels: Any) -> Iterator[Any]:
    if labels is None:
        return iter(())
    return iter([labels]) if isinstance(labels, Tensor) else iter(labels)


def split(batch: Any) -> tuple[Inputs, Any]:
    """Split a batch into the inputs of the model and the labels."""
    if isinstance(batch, (tuple, list)):
        return Inputs.of(batch[0]), batch[1] if len(batch) > 1 else None
    if hasattr(batch, "keys"):
        rest = {name: batch[name] for name in batch.keys() if name not in ("labels", "label")}  # noqa: SIM118 (BatchEncoding)
        return Inputs.of(rest), dict(batch).get("labels")
    return Inputs.of(batch), None
