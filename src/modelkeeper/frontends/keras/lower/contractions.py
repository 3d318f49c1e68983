"""Rules for products: dense layers, einsum, embeddings, attention."""

import math
from typing import Any

import numpy as np

from modelkeeper.frontends.keras.lower.lowering import Lowering, number
from modelkeeper.frontends.keras.lower.seen import Held, Seen, inverse
from modelkeeper.frontends.keras.lower.shape import take
from modelkeeper.frontends.keras.lower.table import CannotLower, arguments, lowers
from modelkeeper.frontends.keras.recorder import Call
from modelkeeper.frontends.keras.variables import shape_of
from modelkeeper.layouts import Layout
from modelkeeper.tracing.trace import Value


@lowers("Matmul")
def _matmul(low: Lowering, call: Call) -> Value:
    left, right = list(arguments(call).values())[1:3]
    weight, taken = low.seen(right), low.seen(left)
    dense = isinstance(weight, Held) and len(weight.shape) == 2 and isinstance(taken, Seen)
    if dense and isinstance(weight, Held) and isinstance(taken, Seen) and len(taken.shape) > 1:
        return _dense(low, taken, weight)
    shape = tuple(call.outputs[0].shape)
    return low.step("matmul", shape, self=low.plain(left), other=low.plain(right))


def _dense(low: Lowering, taken: Seen, weight: Held) -> Value:
    """(in, out) becomes (out, in); the weight of a flattened image follows its channels."""
    rows, columns = weight.shape
    if taken.flattened:
        first = (*[taken.split[n] for n in taken.order[1:]], columns)
        order = inverse([n - 1 for n in taken.order[1:]])
        layout = Layout(first, (len(order), *order), (columns, rows))
        value = taken.value
    else:
        layout, value = Layout.moved((rows, columns), (1, 0)), low.plain(taken)
    shape = (*value.shape[:-1], columns)
    return low.step("linear", shape, input=value, weight=low.enter(weight.variable, layout))


@lowers("Dot")
def _dot(low: Lowering, call: Call) -> Value:
    left, right = list(arguments(call).values())[1:3]
    if len(left.shape) < 2 or len(right.shape) != 2:
        raise CannotLower("a product of vectors")
    return _matmul(low, call)  # type: ignore[return-value]


@lowers("Einsum")
def _einsum(low: Lowering, call: Call) -> Value | Seen:
    text = call.operation.subscripts.replace(" ", "")
    if len(call.args) != 2 or "->" not in text:
        raise CannotLower(f"einsum {text}")
    left, right = (low.seen(thing) for thing in call.args)
    names = _letters(text, len(left.shape), len(right.shape))
    if isinstance(left, Held) and isinstance(right, Seen):
        left, right, names = right, left, (names[1], names[0], names[2])
    return _Einsum(low, left, right, names).run(text)


def _letters(text: str, left: int, right: int) -> tuple[str, str, str]:
    """The letters of both operands and of the result, with some for dots."""
    taken, made = text.split("->")
    first, second = taken.split(",")
    dots = "".join(letter for letter in "ZYXWVUTS" if letter not in text)
    most = max(left - len(first.replace(".", "")), right - len(second.replace(".", ""))) if "." in text else 0
    letters = dots[:most]

    def filled(part: str, rank: int | None) -> str:
        count = most if rank is None else rank - len(part.replace(".", ""))
        return part.replace("...", letters[most - count :])

    return filled(first, left), filled(second, right), filled(made, None)


class _Einsum:
    """A product of two operands: letters that both have and the result has not are summed over."""

    def __init__(
        self, low: Lowering, left: Seen | Held, right: Seen | Held, names: tuple[str, str, str]
    ) -> None:
        self.low, self.left, self.right = low, left, right
        self.a, self.b, self.made = names
        self.sizes = dict(zip(self.a, left.shape, strict=True)) | dict(zip(self.b, right.shape, strict=True))
        both = [letter for letter in self.a if letter in self.b]
        self.summed = [letter for letter in both if letter not in self.made]
        self.batch = [letter for letter in both if letter in self.made]
        self.rows = [letter for letter in self.a if letter not in self.b]
        self.columns = [letter for letter in self.b if letter not in self.a]

    def run(self, text: str) -> Value | Seen:
        repeated = any(len(set(name)) != len(name) for name in (self.a, self.b, self.made))
        if repeated or any(letter not in self.made for letter in self.rows + self.columns):
            raise CannotLower(f"einsum {text}")
        if isinstance(self.right, Held) and isinstance(self.left, Seen) and self.summed and not self.batch:
            return self._linear(self.right)
        return self._product()

    def _linear(self, weight: Held) -> Value | Seen:
        """A dense layer over several axes: heads are merged."""
        low, letters = self.low, self.columns + self.summed
        order = tuple(self.b.index(letter) for letter in letters)
        layout = Layout(weight.shape, order, (self._size(self.columns), self._size(self.summed)))
        value = low.arranged(self.left, [self.a.index(letter) for letter in self.rows + self.summed])
        value = low.build.view(value, [*self._shape(self.rows), self._size(self.summed)])
        if shape_of(weight.variable) != weight.shape:
            raise CannotLower("einsum with a variable in another shape")
        shape = (*self._shape(self.rows), self._size(self.columns))
        made = low.step("linear", shape, input=value, weight=low.enter(weight.variable, layout))
        letters = self.rows + self.columns
        if letters == list(self.made):  # the view is still to come, so that a bias can be folded in
            return Seen(made, self._shape(letters), tuple(range(len(made.shape))), made.shape)
        apart = low.build.view(made, self._shape(letters))
        return low.permute(apart, [letters.index(letter) for letter in self.made])

    def _product(self) -> Value:
        """A product of matrices, for each of the letters that all three have."""
        low, batch = self.low, self._shape(self.batch)
        rows, columns, summed = map(self._size, (self.rows, self.columns, self.summed))
        left = low.arranged(self.left, [self.a.index(n) for n in self.batch + self.rows + self.summed])
        right = low.arranged(self.right, [self.b.index(n) for n in self.batch + self.summed + self.columns])
        left, right = (
            low.build.view(left, (*batch, rows, summed)),
            low.build.view(right, (*batch, summed, columns)),
        )
        made = low.step("matmul", (*batch, rows, columns), self=left, other=right)
        letters = self.batch + self.rows + self.columns
        made = low.build.view(made, self._shape(letters))
        return low.permute(made, [letters.index(letter) for letter in self.made])

    def _shape(self, letters: Any) -> tuple[int, ...]:
        return tuple(self.sizes[letter] for letter in letters)

    def _size(self, letters: Any) -> int:
        return math.prod(self._shape(letters))


@lowers("Take")
def _take(low: Lowering, call: Call) -> Value:
    given, axis = arguments(call), call.operation.axis
    source = low.seen(given["x"])
    if axis == 0 and isinstance(source, Held) and len(source.shape) == 2:
        weight = low.enter(source.variable, Layout.plain(shape_of(source.variable)))
        indices = low.plain(given["indices"])
        shape = (*indices.shape, source.shape[1])
        return low.step("embedding", shape, weight=weight, indices=indices)
    if axis is None:
        raise CannotLower("taken along no axis in particular")
    return take(low, call, low.plain(source), given["indices"], axis % len(source.shape))


@lowers("TakeAlongAxis")
def _take_along(low: Lowering, call: Call) -> Value:
    given, axis = arguments(call), call.operation.axis
    if axis is None:
        raise CannotLower("taken along no axis in particular")
    source, indices = low.plain(given["x"]), low.plain(given["indices"])
    shape = tuple(call.outputs[0].shape)
    return low.step("take_along_dim", shape, self=source, indices=indices, dim=axis % len(source.shape))


def _is_causal(low: Lowering, mask: Any) -> bool:
    """Does a mask of known numbers let each place look at those before it, and at no other?"""
    numbers = low.build.constants.get(low.plain(mask).number)
    if numbers is None or numbers.dtype != np.bool_ or numbers.ndim < 2 or set(numbers.shape[:-2]) - {1}:
        return False
    rows, columns = numbers.shape[-2:]
    return rows > 1 and bool(
        np.array_equal(numbers.reshape(rows, columns), np.tri(rows, columns, dtype=bool))
    )


@lowers("DotProductAttention")
def _attention(low: Lowering, call: Call) -> Value:
    """Heads come before places: (batch, places, heads, units) becomes (batch, heads, places, units)."""
    given, op = arguments(call), call.operation
    if getattr(op, "attn_logits_soft_cap", None) is not None:
        raise CannotLower("attention with a soft cap")
    if given.get("mask") is not None and given.get("bias") is not None:
        raise CannotLower("attention with a mask and a bias")
    heads_first = [0, 2, 1, 3]
    query, key, value = (low.arranged(given[name], heads_first) for name in ("query", "key", "value"))
    mask = given["bias"] if given.get("mask") is None else given["mask"]
    causal = bool(op.is_causal)
    if mask is not None and given.get("mask") is mask and _is_causal(low, mask):
        mask, causal = None, True
    scale = number(given.get("scale"))
    made = low.step(
        "scaled_dot_product_attention",
        (*query.shape[:-1], value.shape[-1]),
        query=query,
        key=key,
        value=value,
        attn_mask=None if mask is None else low.plain(mask),
        is_causal=True if causal else None,
        scale=None if scale is None else float(scale),
        enable_gqa=True if query.shape[1] != key.shape[1] else None,
    )
    return low.permute(made, heads_first)
