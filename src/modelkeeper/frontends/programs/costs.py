"""What would a step of a program take that its results do not show? Multiplications, and buffers of a kernel.

    cost(operation, given, results)          by the shapes of operands and results alone

Estimates from above, or near it: they serve to refuse what was made to take long or much, before it runs. A
model that somebody trained is far from where they matter. `given`: arguments by name; what is a tensor there
has a shape, and all sizes are numbers.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

CURVE = 8  # multiplications that anything done to a single number takes, about
LARGEST_ITEM = 8  # bytes of a number, where it is not known
_PRODUCTS = {  # where the matrices are
    "mm": ("self", "mat2"),
    "bmm": ("self", "mat2"),
    "matmul": ("self", "other"),
    "addmm": ("mat1", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "linear": ("input", "weight"),
}
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_SAMPLED = {
    "upsample_bicubic2d": 32,
    "upsample_bilinear2d": 16,
    "upsample_trilinear3d": 32,
}
_SORTED = ("sort", "topk")


class Cost(NamedTuple):
    """What a step takes, beside its operands and results."""

    work: int  # multiplications, about
    buffers: int = 0  # elements, alive as long as the step runs


def elements(tensor: Any) -> int:
    """The number of numbers in a tensor."""
    return math.prod(int(size) for size in tensor.shape)


def tensors_in(tree: Iterable[Any]) -> Iterator[Any]:
    """All tensors among arguments."""
    for branch in tree:
        if isinstance(branch, list):
            yield from tensors_in(branch)
        elif hasattr(branch, "shape"):
            yield branch


def cost(operation: str, given: Mapping[str, Any], results: Sequence[Any]) -> Cost:
    """What a step takes.

    Raises:
        ValueError: Its arguments make no sense. (Or whatever else comes of arguments of other types.)
    """
    name = operation.partition(".")[0]
    made, read = sum(map(elements, results)), sum(map(elements, tensors_in(given.values())))
    if name in _PRODUCTS:
        first, second = (tuple(given[each].shape) for each in _PRODUCTS[name])
        return _product(first, second, made)
    if name == "einsum":
        shapes = [tuple(map(int, tensor.shape)) for tensor in given["tensors"]]
        return _einsum(given["equation"], shapes, given.get("path"))
    if name == "scaled_dot_product_attention":
        return _attention(*(tuple(map(int, given[each].shape)) for each in ("query", "key", "value")))
    if name.startswith("conv"):
        return _convolution(name, given, made)
    if name in _RECURRENT:
        places = math.prod(given["input"].shape[:2])
        weights = [tensor for tensor in given["params"] if len(tensor.shape) == 2]
        gates = sum(int(tensor.shape[0]) for tensor in weights)
        return Cost(places * (sum(map(elements, weights)) + CURVE * gates), 2 * places * gates)
    kernel = given.get("kernel_size")
    if isinstance(kernel, list):
        return Cost((made + read) * math.prod(int(size) for size in kernel), made)
    if name.startswith("adaptive"):
        (taken,) = tensors_in([given["self"]])
        windows = zip(reversed(taken.shape), reversed(given["output_size"]), strict=False)
        return Cost(read + made * math.prod(int(size) // max(1, int(out)) + 2 for size, out in windows))
    if name.startswith("_fft"):
        return Cost(CURVE * (made + read) * max(1, read.bit_length()), 2 * (made + read))
    if name in _SORTED:
        return Cost((made + read) * max(1, read.bit_length()), 2 * read)
    return Cost((made + read) * _SAMPLED.get(name, CURVE), made if name == "index" else 0)


def _product(first: tuple[int, ...], second: tuple[int, ...], made: int) -> Cost:
    """Matrices; where there are many of them, and not as many on both sides, they are copied."""
    inner = int(first[-1]) if first else 1
    copied = 0
    if len(second) > 2 and first[:-2] != second[:-2]:
        copied = made * (inner + 1)
    return Cost(made * max(1, inner), copied)


def _attention(query: tuple[int, ...], key: tuple[int, ...], value: tuple[int, ...]) -> Cost:
    """All scores at once, unless everything has the form for which frameworks go block by block."""
    scores = math.prod(map(max, query[:-2], key[:-2])) * query[-2] * key[-2]
    blocks = len(query) == 4 and query[:-2] == key[:-2] and query[-1] == key[-1] == value[-1]
    return Cost(scores * (query[-1] + value[-1] + CURVE), scores // 64 if blocks else 3 * scores)


def _convolution(name: str, given: Mapping[str, Any], made: int) -> Cost:
    """Each output reads a window, which kernels write out for one example, or for all if nothing is tuned."""
    taken, weight = given["input"], tuple(int(size) for size in given["weight"].shape)
    groups = max(1, int(given.get("groups", 1)))
    if "transpose" in name:  # each input writes one
        work, windows = elements(taken) * math.prod(weight[1:]), elements(taken) // max(1, weight[0])
    else:
        work, windows = made * math.prod(weight[1:]), made // max(1, weight[0])
    examples = max(1, int(taken.shape[0]))
    tuned = any(kind in str(taken.dtype) for kind in ("float32", "float16"))  # bfloat16, too
    columns = windows * math.prod(weight[1:]) * groups
    return Cost(work, columns // examples if tuned else columns)


# -- sums of products -------------------------------------------------------------------------------


def _einsum(equation: str, shapes: Sequence[tuple[int, ...]], path: Sequence[int] | None) -> Cost:
    """By the pairs that are multiplied one after the other, from the left unless a path is given."""
    terms, wanted = _terms(equation, shapes)
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, size in zip(term, shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 0))

    def count(labels: Iterable[str]) -> int:
        return math.prod(sizes[label] for label in set(labels))

    left = [frozenset(term) for term in terms]
    pairs = _pairs(path, len(left))
    work = buffers = sum(math.prod(shape) for shape in shapes)
    for first, second in pairs:
        chosen = [left[first], left[second]]
        left = [term for place, term in enumerate(left) if place not in (first, second)]
        needed = set(wanted).union(*left)
        both = [term & (needed | other) for term, other in zip(chosen, reversed(chosen), strict=True)]
        work += count(both[0] | both[1])
        made = (both[0] | both[1]) & needed
        buffers = max(buffers, count(made) + count(both[0]) + count(both[1]))
        left = [frozenset(made), *left] if path is None else [*left, frozenset(made)]
    return Cost(work, buffers)


def _pairs(path: Sequence[int] | None, operands: int) -> list[tuple[int, int]]:
    if path is None:
        return [(0, 1)] * (operands - 1)
    pairs = [(int(path[n]), int(path[n + 1])) for n in range(0, len(path) - 1, 2)]
    if len(path) != 2 * (operands - 1):
        raise ValueError(f"a path of {len(path)} places for {operands} operands")
    for done, pair in enumerate(pairs):
        if pair[0] == pair[1] or not all(0 <= place < operands - done for place in pair):
            raise ValueError(f"a path over {pair}, where {operands - done} operands are left")
    return pairs


def _terms(equation: str, shapes: Sequence[tuple[int, ...]]) -> tuple[list[list[str]], list[str]]:
    """The labels of each operand's axes and of the result's; those of an ellipsis are numbers."""
    if not isinstance(equation, str):
        raise ValueError("an equation that is no text")
    takes, arrow, gives = equation.replace(" ", "").partition("->")
    texts = takes.split(",")
    if len(texts) != len(shapes):
        raise ValueError(f"an equation for {len(texts)} operands, of which there are {len(shapes)}")
    terms = [_labels(text, len(shape)) for text, shape in zip(texts, shapes, strict=True)]
    rest = max((sum(label.isdigit() for label in term) for term in terms), default=0)
    if arrow:
        letters = gives.replace("...", "")
        return terms, _labels(gives, len(letters) + (rest if "..." in gives else 0))
    letters = takes.replace(",", "").replace("...", "")
    return terms, [*map(str, range(rest)), *sorted(each for each in set(letters) if letters.count(each) == 1)]


def _labels(text: str, rank: int) -> list[str]:
    before, dots, behind = text.partition("...")
    letters = before + behind
    more = rank - len(letters)
    if not (letters == "" or (letters.isascii() and letters.isalpha())) or more < 0 or (more and not dots):
        raise ValueError(f"a term for {len(letters)} axes, where there are {rank}")
    return [*before, *(str(n) for n in reversed(range(more))), *behind]
