"""What do the commonest operations return on shapes, without asking torch?

torch works out most shapes in Python, and imports its compiler and sympy for it: seconds, once in a process,
at the first query. Convolutions, linear layers and activations are plain enough to be worked out here. Where
anything is unusual or wrong, torch is asked, and raises what it raises.
"""

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from modelkeeper.frontends.torch.aten import AtenOperator
from modelkeeper.graph.vocabulary import CONV, LINEAR, OPERATIONS

_UNARY = frozenset({"pointwise", "keeps_zero"})  # traits of what keeps shape and type of its only operand
_CONVOLUTIONS = {f"aten::{CONV}{rank}d": rank for rank in (1, 2, 3)}
_LINEAR = f"aten::{LINEAR}"
_USUAL: tuple[Any, ...] = (None, None, 1, 0, 1, 1)  # weight, bias, stride, padding, dilation, groups


def known_shape(func: OpOverload, operator: AtenOperator, args: tuple[Any, ...]) -> Tensor | None:
    """The result of an operation on meta tensors; None: ask torch."""
    given = args[0] if args else None
    if not isinstance(given, Tensor) or not given.is_floating_point():
        return None
    if operator.known and OPERATIONS[operator.name].traits >= _UNARY:
        if all(isinstance(value, (int, float)) for value in args[1:]):
            return torch.empty_strided(given.shape, given.stride(), dtype=given.dtype, device="meta")
        return None
    rank = _CONVOLUTIONS.get(func._schema.name)
    if rank is None and func._schema.name != _LINEAR:
        return None  # the arguments of others are not what is thought of here
    shape: tuple[int, ...] | None = None
    if given.is_contiguous() and len(args) > 1 and _one_type(given, args[1], *args[2:3]):
        rest = (*args[1:], *_USUAL[len(args) - 1 :])
        shape = _linear(given, args[1]) if rank is None else _convolution(given, rank, rest)
    return None if shape is None else torch.empty(shape, dtype=given.dtype, device="meta")


def _one_type(given: Tensor, *tensors: Tensor | None) -> bool:
    return all(tensor is None or tensor.dtype == given.dtype for tensor in tensors)


def _linear(given: Tensor, weight: Tensor) -> tuple[int, ...] | None:
    if weight.ndim != 2 or not given.ndim or given.shape[-1] != weight.shape[1]:
        return None
    return (*given.shape[:-1], weight.shape[0])


def _convolution(given: Tensor, rank: int, rest: tuple[Any, ...]) -> tuple[int, ...] | None:
    weight, _, stride, padding, dilation, groups = rest
    if isinstance(padding, str) or given.ndim != rank + 2 or given.shape[1] != weight.shape[1] * groups:
        return None
    by, around, apart = (_each(value, rank) for value in (stride, padding, dilation))
    places = tuple(
        (given.shape[n + 2] + 2 * around[n] - apart[n] * (weight.shape[n + 2] - 1) - 1) // by[n] + 1
        for n in range(rank)
    )
    return (given.shape[0], weight.shape[0], *places) if min(places) > 0 else None


def _each(value: Any, rank: int) -> tuple[int, ...]:
    """A number for each axis."""
    numbers = (value,) if isinstance(value, int) else tuple(value)
    return numbers * rank if len(numbers) == 1 else numbers
