"""Which numbers does a model have in its code: masks, positions, scales that none of its tensors holds?

Two models of the same layers may differ in them alone, and then compute different things. A graph does not
hold them; it has a note of what its constants are, each as a few digits, by which two graphs are compared:

    numbers_text([0, 1, 2, 3])      "from 0 by 1"       a count, however long
    numbers_text(zeros)             "0.0"               one number, however often
    numbers_text(anything else)     "#9f2c..."          a digest, in the precision that all float types share

A constant that is computed without any numbers that were seen is written as an expression.
"""

import hashlib
from collections.abc import Iterable

import numpy as np

from modelkeeper.graph import Note
from modelkeeper.graph.vocabulary import CONSTANTS
from modelkeeper.tracing.paths import shorten, with_scalars
from modelkeeper.tracing.trace import Step, Trace, Value
from modelkeeper.weights import Array

MOST_NUMBERS = 1 << 20  # of which a digest is made
MOST_CONSTANTS = 64
UNKNOWN = "?"


def numbers_text(array: Array) -> str:
    """The numbers of a constant in a few characters: see the module's docstring."""
    if array.size == 0 or array.size > MOST_NUMBERS or array.dtype.kind not in "biuf":
        return UNKNOWN
    flat = array.reshape(-1)
    if (flat == flat[0]).all() or array.size == 1:
        return repr(flat[0].item())
    row = array.reshape(-1, *[extent for extent in array.shape if extent > 1][-1:])
    with np.errstate(invalid="ignore"):  # masks hold infinities
        steps = row[0, 1:].astype(np.float64) - row[0, :-1]
    if len(steps) and array.dtype.kind != "b" and (steps == steps[0]).all() and (row == row[0]).all():
        return f"from {row[0, 0].item()!r} by {steps[0].item()!r}"
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            bits = array.astype(np.float32).view(np.uint32).astype(np.uint64) + 0x8000
        data = (bits >> 16).astype(np.uint16)
    else:
        data = array.astype(np.int64)
    form = f"{array.shape}{array.dtype.kind}".encode()
    return "#" + hashlib.blake2b(form + np.ascontiguousarray(data).tobytes(), digest_size=8).hexdigest()


class Constants:
    """What the constants of one trace are, as texts."""

    def __init__(self) -> None:
        self._texts: dict[int, str] = {}

    def text(self, value: Value) -> str:
        """A value that depends on neither inputs nor stored tensors; empty for others."""
        known = self._texts.get(value.number)
        if known is None:
            known = self._texts[value.number] = self._text(value)
        return known

    def _text(self, value: Value) -> str:
        if value.active or (value.owner is not None and value.owner.stored):
            return ""
        if value.constant or value.owner is not None:
            return value.numbers or UNKNOWN
        if value.step is None:
            return ""
        inside = [self.text(operand) for operand in value.step.inputs]
        if not all(inside):
            return ""
        place = [str(n) for n, made in enumerate(value.step.outputs) if made is value and n]
        if value.step.has("silent") and inside:
            return inside[0]
        return shorten(f"{_function(value.step)}({','.join(inside + place)})")

    def note(self, trace: Trace, counts: Iterable[str] = ()) -> Iterable[Note]:
        """The note on the constants of a trace, and on counts of places (`tracing.counts`), if any."""
        found = set(counts)
        for step in trace.steps:
            texts = [self.text(value) for value in step.inputs]
            if not all(texts):  # it joins constants with something else
                found.update(f"{step.name} {text}" for text in texts if text)
        digests = sorted(hashlib.blake2b(text.encode(), digest_size=4).hexdigest() for text in found)
        if len(digests) > MOST_CONSTANTS:
            rest = hashlib.blake2b("".join(digests[MOST_CONSTANTS:]).encode(), digest_size=8).hexdigest()
            digests = [*digests[:MOST_CONSTANTS], rest]
        if digests:
            yield Note(CONSTANTS, "", " ".join(digests))


def _function(step: Step) -> str:
    """What a step does to constants: sizes are left out, since they follow from the widths and the input."""
    sizes = {key for key, given in step.arguments.items() if isinstance(given, (list, tuple))} | {"end"}
    if step.has("sized") or not step.inputs:
        plain = {key: given for key, given in step.arguments.items() if key not in sizes}
        return with_scalars(Step(step.name, plain, step.inputs))
    return with_scalars(step)
