"""Examples to calibrate with, from whatever a training script has: tensors, pairs, dicts, a loader.

    a tensor             a batch
    a pair (x, y)        a batch and its labels; x may itself be a tuple or a dict of arguments
    a dict               arguments by name, as Hugging Face models take them; "labels" are taken out
    any iterable         of these: a list, a DataLoader, an iterator. Read only as far as needed

The examples stay where they are: nothing of them but fitted weights goes anywhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from modelkeeper.errors import CannotCalibrate
from modelkeeper.frontends.torch.inputs import Inputs
from modelkeeper.frontends.torch.program import Program
from modelkeeper.frontends.torch.recorder import CPU, map_tensors, tensors_in

FEWEST = 4  # to fit on some and to judge by others


@dataclass(frozen=True)
class Examples:
    """All examples in one tensor for each input, with labels if there are any."""

    inputs: Inputs
    labels: Tensor | None
    passed_over: int  # examples of another shape than the first

    @property
    def tensors(self) -> list[Tensor]:
        return list(tensors_in((self.inputs.args, dict(self.inputs.kwargs))))

    def __len__(self) -> int:
        return self.tensors[0].shape[0]

    def fitting(self, program: Program) -> list[Tensor]:
        """The tensors in the order in which a program takes them."""
        names = [str(n) for n in range(len(list(tensors_in(self.inputs.args))))]
        for name, value in self.inputs.kwargs:
            names += [name] * len(list(tensors_in(value)))
        have, wanted = dict(zip(names, self.tensors, strict=True)), [taken.name for taken in program.inputs]
        if set(wanted) <= set(have):
            return [have[name] for name in wanted]
        if len(wanted) == len(names) or len(wanted) == 1:
            return self.tensors[: len(wanted)]
        raise CannotCalibrate(
            f"the parent takes {', '.join(wanted)}, the batches hold {', '.join(names)}",
            "Give batches that both models can run on",
        )


def collect(batches: Any, labels: Any, most: int) -> Examples:
    """The first `most` examples. What was collected before is taken as it is.

    Raises:
        CannotCalibrate: There are too few, they hold NaN or infinities, or are no tensors.
    """
    if isinstance(batches, Examples):
        return batches
    kept: list[list[Tensor]] = []
    labelled: list[Tensor] = []
    first: Inputs | None = None
    passed_over = count = 0
    given = _labels(labels)
    try:
        given_batches = batches_in(batches)
    except TypeError:
        problem = f"{type(batches).__name__} is no collection of batches"
        raise CannotCalibrate(problem, "Give a DataLoader, or a list of tensors, pairs or dicts") from None
    for inputs, own in map(split, given_batches):
        y = next(given, None) if labels is not None else own
        tensors = [tensor.detach().to(CPU) for tensor in tensors_in((inputs.args, dict(inputs.kwargs)))]
        if not tensors or any(tensor.ndim == 0 for tensor in tensors):
            raise CannotCalibrate(
                "a batch holds no tensors", "Give tensors, pairs (x, y), or dicts of tensors"
            )
        if first is None:
            first = inputs
        elif [tensor.shape[1:] for tensor in tensors] != [tensor.shape[1:] for tensor in kept[0]]:
            passed_over += tensors[0].shape[0]
            continue
        room = most - count
        kept.append([tensor[:room] for tensor in tensors])
        if isinstance(y, Tensor) and y.ndim and y.shape[0] == tensors[0].shape[0]:
            labelled.append(y.detach().to(CPU)[:room])
        count += kept[-1][0].shape[0]
        if count >= most:
            break
    if first is None or count < FEWEST:
        raise CannotCalibrate(f"there are {count} examples", f"Give at least {FEWEST}, better 1,000")
    joined = iter([torch.cat(parts) for parts in zip(*kept, strict=True)])
    inputs = Inputs(*_replaced(first, joined))
    complete = sum(map(len, labelled)) == count
    examples = Examples(inputs, torch.cat(labelled) if complete and labelled else None, passed_over)
    for tensor in examples.tensors:
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            bad = int((~torch.isfinite(tensor.reshape(len(examples), -1)).all(1)).sum())
            raise CannotCalibrate(
                f"{bad} of {len(examples)} examples hold NaN or infinities", "Clean the data"
            )
    return examples


def _replaced(inputs: Inputs, tensors: Iterator[Tensor]) -> tuple[Any, Any]:
    args = map_tensors(inputs.args, lambda _: next(tensors))
    return args, tuple(map_tensors(dict(inputs.kwargs), lambda _: next(tensors)).items())


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
