"""How is what lies between two layers written down?

An edge of a graph carries the operations that its data went through: `relu`, `max_pool2d[3x3,2x2,1x1]`,
`permute[0,2,1]`. Scalars that belong to the architecture are part of the text; sizes that only follow
from the widths and the input are not, and operations that change nothing leave no mark.
"""

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from modelkeeper.graph.vocabulary import CUTS, PERMUTE, RECTIFIERS, SLICE, USUAL_NUMBERS
from modelkeeper.tracing.rules.shape import bounds
from modelkeeper.tracing.trace import Step
from modelkeeper.tracing.window_arguments import pool_scalars

Path = tuple[str, ...]
LONGEST_STEP = 120  # characters of a folded operation before it is abbreviated to a hash
LONGEST_PATH = 64


def written(step: Step) -> str:
    """How a folded operation is written on a path; empty if it changes nothing."""
    if step.has("permutes"):
        return f"{PERMUTE}[{_permutation(step)}]"
    if step.name == SLICE:
        dim, start, end, by = bounds(step)
        size = step.inputs[0].shape[dim]
        if (start, end, by) == (0, size, 1):
            return ""
        return f"{SLICE}[{dim},{Fraction(start, size)}:{Fraction(end, size)}{f':{by}' if by != 1 else ''}]"
    if step.has("sized"):
        return f"{step.name}[corners]" if step.arguments.get("align_corners") else step.name
    return shorten(with_scalars(step))


def with_scalars(step: Step) -> str:
    """The name of an operation, with the scalars that it was given."""
    if (ends := _ends(step)) in RECTIFIERS:
        return RECTIFIERS[ends]
    given: Sequence[Any]
    if step.name in USUAL_NUMBERS:
        given = _unusual(step, USUAL_NUMBERS[step.name])
    elif step.has("pools"):
        given = pool_scalars(step)
    elif step.name in CUTS and ends[0] is None and ends[1] is not None:
        given = ["most", ends[1]]
    else:
        given = [step.arguments.get(name) for name in step.operation.arguments or step.arguments]
        given += ["smallest"] if step.arguments.get("largest") is False else []
    listed = ",".join(text for text in map(_scalar, given) if text)
    return f"{step.name}[{listed}]" if listed else step.name


def _unusual(step: Step, usual: dict[str, float | str]) -> list[float | str]:
    """The numbers of an activation, up to the last that is not as usual."""
    given = [step.arguments.get(name, value) for name, value in usual.items()]
    while given and given[-1] == list(usual.values())[len(given) - 1]:
        given.pop()
    return [value if isinstance(value, str) else float(value) for value in given]


def _ends(step: Step) -> tuple[Any, Any]:
    """At which numbers an operation cuts off, below and above."""
    usual = USUAL_NUMBERS.get(step.name, {})
    low, high = (step.arguments.get(name, usual.get(name)) for name in CUTS.get(step.name, ("", "")))
    return low, high


# The ends of each float type, which masks are filled with: the same model in another precision is the same.
_HIGHEST = {
    "float16": 65504.0,
    "bfloat16": (2 - 2**-7) * 2.0**127,
    "float32": (2 - 2**-23) * 2.0**127,
    "float64": (2 - 2**-52) * 2.0**1023,
}
_EXTREMES = {end: name for high in _HIGHEST.values() for end, name in ((-high, "lowest"), (high, "highest"))}


def _permutation(step: Step) -> str:
    rank = len(step.outputs[0].shape)
    if step.name == PERMUTE:
        return ",".join(str(n % rank) for n in step.arguments["dims"])
    order = list(range(rank))
    first, second = step.arguments.get("dim0", -2), step.arguments.get("dim1", -1)
    if rank > 1:
        order[first], order[second] = order[second], order[first]
    return ",".join(map(str, order))


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, (int, float)):
        return _EXTREMES.get(value) or repr(value)
    if isinstance(value, str):
        return value
    if (
        isinstance(value, (list, tuple))
        and value
        and all(isinstance(number, (int, float)) for number in value)
    ):
        return "x".join(map(repr, value))
    return ""


def shorten(text: str) -> str:
    """A text as it is, or abbreviated to its beginning and a hash."""
    if len(text) <= LONGEST_STEP:
        return text
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    return f"{text[: LONGEST_STEP - 20]}…#{digest}"


def extend(via: Path, text: str) -> Path:
    """A longer path; a very long one is abbreviated, so that no loop can make it grow without bound."""
    if len(via) < LONGEST_PATH:
        return (*via, text)
    return (f"…#{hashlib.blake2b(repr(via).encode(), digest_size=8).hexdigest()}", text)


def common(paths: Sequence[Path]) -> Path:
    """What several paths have in common at their beginning."""
    shared: list[str] = []
    for steps in zip(*paths, strict=False):
        if len(set(steps)) > 1:
            break
        shared.append(steps[0])
    return tuple(shared)
