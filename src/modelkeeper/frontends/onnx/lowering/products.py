"""Einsum of two operands: as a linear layer, or as a matrix product between transpositions.

bsd,de->bse    a linear layer, if `de` is an initializer
bhqd,bhkd->bhqk    a product of matrices, batch axes first
"""

import math

from modelkeeper.frontends.onnx.lowering.entries import Call, NotLowered, Stored
from modelkeeper.frontends.onnx.lowering.walk import Lowering, lowers
from modelkeeper.tracing.trace import Value


@lowers("Einsum")
def _einsum(low: Lowering, call: Call) -> Value:
    left, right, made = _letters(call.get("equation", ""), len(call.inputs))
    first, second = call.needed(0), call.needed(1)
    shared = [letter for letter in left if letter in right and letter in made]
    summed = [letter for letter in left if letter in right and letter not in made]
    rows = [letter for letter in left if letter not in right]
    columns = [letter for letter in right if letter not in left]
    if not summed or not set(rows + columns) <= set(made):
        raise NotLowered
    if isinstance(second, Stored) and len(right) == 2 and not shared and made == [*left[:-1], *columns]:
        weight = low.value(second.turned([right.index(columns[0]), right.index(summed[0])]))
        return low.step("linear", call, input=low.value(first), weight=weight)
    sizes = dict(zip((*left, *right), (*first.shape, *second.shape), strict=True))
    batch, taken = [sizes[n] for n in shared], math.prod(sizes[n] for n in summed)
    heights, widths = ([sizes[n] for n in part] for part in (rows, columns))
    a = low.permute(low.value(first), [left.index(n) for n in (*shared, *rows, *summed)])
    b = low.permute(low.value(second), [right.index(n) for n in (*shared, *summed, *columns)])
    product = low.build.step(
        "matmul",
        (*batch, math.prod(heights), math.prod(widths)),
        self=low.view(a, (*batch, math.prod(heights), taken)),
        other=low.view(b, (*batch, taken, math.prod(widths))),
    )
    order = [*shared, *rows, *columns]
    return low.permute(low.view(product, (*batch, *heights, *widths)), [order.index(n) for n in made])


def _letters(equation: str, operands: int) -> tuple[list[str], list[str], list[str]]:
    """The letters of both operands and of the result; no dots, no letter twice in one of them."""
    taken, arrow, made = equation.replace(" ", "").partition("->")
    parts = taken.split(",")
    if not arrow or operands != 2 or len(parts) != 2 or "." in equation:
        raise NotLowered
    if any(len(set(part)) < len(part) for part in (*parts, made)):
        raise NotLowered
    return list(parts[0]), list(parts[1]), list(made)
