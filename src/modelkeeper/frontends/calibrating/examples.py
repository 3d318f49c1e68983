"""Examples to calibrate with: all batches of a training script in one array for each input.

A front end takes batches apart (`Batch`), whatever its users have; here they are joined, counted and checked.
The examples stay where they are: nothing of them but fitted weights goes anywhere.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from modelkeeper.errors import CannotCalibrate
from modelkeeper.frontends.programs.program import Program
from modelkeeper.weights import Array

FEWEST = 4  # to fit on some and to judge by others


class Batch(NamedTuple):
    """A batch that was taken apart."""

    inputs: Any  # what the model takes
    arrays: list[tuple[str, Array]]  # what is in it, by the names that programs have for their inputs
    labels: Array | None


@dataclass(frozen=True)
class Examples:
    """All examples in one array for each input, with labels if there are any."""

    inputs: Any  # what the model takes
    arrays: tuple[tuple[str, Array], ...]
    labels: Array | None
    passed_over: int  # examples of another shape than the first

    def __len__(self) -> int:
        return len(self.arrays[0][1])

    def fitting(self, program: Program) -> list[Array]:
        """The arrays in the order in which a program takes them."""
        names, wanted = [name for name, _ in self.arrays], [taken.name for taken in program.inputs]
        have = dict(self.arrays)
        if set(wanted) <= set(have):
            return [have[name] for name in wanted]
        if len(wanted) == len(names) or len(wanted) == 1:
            return [array for _, array in self.arrays[: len(wanted)]]
        raise CannotCalibrate(
            f"the parent takes {', '.join(wanted)}, the batches hold {', '.join(names)}",
            "Give batches that both models can run on",
        )


def gather(batches: Iterable[Batch], most: int, rebuild: Callable[[Any, list[Array]], Any]) -> Examples:
    """The first `most` examples of batches. `rebuild`: a batch's inputs with other arrays in them.

    Raises:
        CannotCalibrate: There are too few, they hold NaN or infinities, or are no tensors.
    """
    kept: list[list[Array]] = []
    labelled: list[Array] = []
    first: Batch | None = None
    passed_over = count = 0
    for batch in batches:
        arrays = [array for _, array in batch.arrays]
        if not arrays or any(array.ndim == 0 for array in arrays):
            raise CannotCalibrate(
                "a batch holds no tensors", "Give tensors, pairs (x, y), or dicts of tensors"
            )
        if first is None:
            first = batch
        elif [array.shape[1:] for array in arrays] != [array.shape[1:] for array in kept[0]]:
            passed_over += len(arrays[0])
            continue
        room = most - count
        kept.append([array[:room] for array in arrays])
        labels = batch.labels
        if labels is not None and labels.ndim and len(labels) == len(arrays[0]):
            labelled.append(labels[:room])
        count += len(kept[-1][0])
        if count >= most:
            break
    if first is None or count < FEWEST:
        raise CannotCalibrate(f"there are {count} examples", f"Give at least {FEWEST}, better 1,000")
    joined = [np.concatenate(parts) for parts in zip(*kept, strict=True)]
    complete = sum(map(len, labelled)) == count
    for array in joined:
        _check_finite(array)
    named = zip((name for name, _ in first.arrays), joined, strict=True)
    labels = np.concatenate(labelled) if complete and labelled else None
    return Examples(rebuild(first.inputs, joined), tuple(named), labels, passed_over)


def _check_finite(array: Array) -> None:
    if array.dtype.kind in "iub" or np.isfinite(array).all():
        return
    bad = int((~np.isfinite(array.reshape(len(array), -1)).all(1)).sum())
    raise CannotCalibrate(f"{bad} of {len(array)} examples hold NaN or infinities", "Clean the data")
