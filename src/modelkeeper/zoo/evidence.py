"""On which held-out examples may anyone check a model? Evidence, as a file beside its weights.

    data = pack(inputs, labels)          goes where the model goes, as evidence.safetensors
    inputs, labels = unpack(data)        hostile until checked: clear errors

Whoever registers may attach some; it is never asked for, and it is data: it leaves the machine.
"""

from typing import Any

import numpy as np

from modelkeeper.errors import InvalidMeta
from modelkeeper.weights import Array

MAX_EVIDENCE = 4 * 2**20  # bytes
LABELS, INPUT = "labels", "input."
_MOST_INPUTS = 16


def pack(inputs: Any, labels: Any) -> bytes:
    """Examples as a safetensors file.

    Raises:
        InvalidMeta: They do not go together, are not numbers, or are more than may be attached.
    """
    from safetensors.numpy import save

    given = [as_array(each) for each in (inputs if isinstance(inputs, list | tuple) else [inputs])]
    arrays = {f"{INPUT}{number}": np.ascontiguousarray(array) for number, array in enumerate(given)}
    arrays[LABELS] = np.ascontiguousarray(as_array(labels))
    _check(given, arrays[LABELS])
    if any(array.dtype.kind not in "fiub" for array in arrays.values()):
        raise InvalidMeta("evidence", "of no numbers", "give arrays of numbers")
    data = bytes(save(arrays))
    if len(data) > MAX_EVIDENCE:
        raise InvalidMeta(
            "evidence", f"{len(data):,} bytes", f"give fewer examples: at most {MAX_EVIDENCE:,}"
        )
    return data


def unpack(data: bytes) -> tuple[list[Array], Array]:
    """Inputs and labels.

    Raises:
        InvalidMeta: It is no evidence.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    if len(data) > MAX_EVIDENCE:
        raise InvalidMeta("evidence", f"{len(data):,} bytes", f"at most {MAX_EVIDENCE:,}")
    try:
        arrays = load(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as problem:
        raise InvalidMeta("evidence", str(problem)[:80], "it must be a safetensors file") from problem
    labels = arrays.pop(LABELS, np.zeros(0))
    inputs = [
        arrays.pop(f"{INPUT}{number}") for number in range(_MOST_INPUTS) if f"{INPUT}{number}" in arrays
    ]
    if arrays or not inputs:
        raise InvalidMeta("evidence", "other tensors", f"it must hold {INPUT}0, {INPUT}1, ... and {LABELS}")
    _check(inputs, labels)
    return inputs, labels


def as_array(value: Any) -> Array:
    """An array of whatever holds numbers."""
    value = value.detach().cpu() if hasattr(value, "detach") else value
    return np.asarray(value)


def _check(inputs: list[Array], labels: Array) -> None:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise InvalidMeta("labels", f"shape {labels.shape}", "give one whole number for each example")
    if any(array.ndim < 1 or len(array) != len(labels) for array in inputs) or len(inputs) > _MOST_INPUTS:
        advice = f"give as many examples in each of at most {_MOST_INPUTS} inputs as there are labels"
        raise InvalidMeta("inputs", str([array.shape for array in inputs[:4]]), advice)
