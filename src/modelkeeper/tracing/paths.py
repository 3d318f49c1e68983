"""How is what lies between two layers written down?

An edge of a graph carries the operations that its data went through: `relu`, `max_pool2d[3x3,2x2,1x1]`,
`permute[0,2,1]`. Scalars that belong to the architecture are part of the text; sizes that only follow
from the widths and the input are not, and operations that change nothing leave no mark.
"""

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import torch

from modelkeeper.frontends.torch.trace import Step
from modelkeeper.tracing.rules.shape import bounds

Path = tuple[str, ...]
LONGEST_STEP = 120  # characters of a folded operation before it is abbreviated to a hash
LONGEST_PATH = 64

# Operations that change neither the numbers nor their order: they leave no mark on a path.
SILENT = frozenset(
    """clone detach dropout feature_dropout alpha_dropout alias lift_fresh _to_copy contiguous view
        _unsafe_view _reshape_alias unsqueeze squeeze expand requires_grad write""".split()
)
# Operations whose integer arguments are sizes: they follow from the widths and the input.
SIZED = frozenset(
    """upsample_bilinear2d upsample_nearest2d upsample_bicubic2d upsample_nearest1d upsample_linear1d
        upsample_nearest3d upsample_trilinear3d repeat split split_with_sizes
        unsafe_split new_zeros new_ones new_full new_empty""".split()
)
STATISTICS = frozenset("""mean sum var std amax amin max min norm linalg_vector_norm""".split())
PERMUTING = frozenset({"permute", "transpose", "t", "numpy_T", "mT"})


def written(step: Step) -> str:
    """How a folded operation is written on a path; empty if it changes nothing."""
    if step.name in PERMUTING:
        return f"permute[{_permutation(step)}]"
    if step.name == "slice":
        dim, start, end, by = bounds(step)
        size = step.inputs[0].shape[dim]
        if (start, end, by) == (0, size, 1):
            return ""
        return f"slice[{dim},{Fraction(start, size)}:{Fraction(end, size)}{f':{by}' if by != 1 else ''}]"
    if step.name in SIZED:
        return step.name
    written = []
    for name in step.operation.arguments:
        text = _scalar(step.arguments.get(name))
        if text:
            written.append(text)
    return shorten(f"{step.name}[{','.join(written)}]" if written else step.name)


# The ends of each float type, which masks are filled with: the same model in another precision is the same.
_EXTREMES = {
    end: name
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    for end, name in ((torch.finfo(dtype).min, "lowest"), (torch.finfo(dtype).max, "highest"))
}


def _permutation(step: Step) -> str:
    rank = len(step.outputs[0].shape)
    if step.name == "permute":
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
    if isinstance(value, (list, tuple)) and value and all(isinstance(each, (int, float)) for each in value):
        return "x".join(repr(each) for each in value)
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
