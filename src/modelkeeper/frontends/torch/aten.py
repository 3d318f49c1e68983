"""What does the vocabulary call an ATen operator, and what does the recorder have to know of it?

Names are those of `programs.names`. Arguments that only steer kernels are left out. In-place variants are the
operation that they write down.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from modelkeeper.frontends.programs.names import NAMES
from modelkeeper.graph.vocabulary import OPERATIONS

# Another name for an argument, by operation of the vocabulary.
_ARGUMENTS = {
    "group_norm": {"group": "num_groups"},
    "batch_norm": {"epsilon": "eps"},
}


@dataclass(frozen=True, slots=True)
class AtenOperator:
    """What the recorder has to know of an ATen operator, looked up once."""

    name: str  # in the vocabulary, or what ATen calls it
    known: bool  # is it in the vocabulary?
    arguments: tuple[str, ...]  # as ATen calls them
    writes: tuple[str, ...]  # arguments it changes
    views: bool  # its results may share storage with an argument
    composite: bool  # can be taken apart into simpler operations
    random: bool

    @staticmethod
    def of(func: OpOverload) -> "AtenOperator":
        """Read off an operator's schema what the recorder has to know of it."""
        schema = func._schema
        writes = tuple(a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write)
        space, _, name = schema.name.partition("::")
        if writes and name.endswith("_") and not name.endswith("__"):
            name = name[:-1]
        name = NAMES.get(name, name) if space == "aten" else f"{space}::{name}"
        return AtenOperator(
            name=name,
            known=name in OPERATIONS,
            arguments=tuple(a.name for a in schema.arguments),
            writes=writes,
            views=any(r.alias_info is not None for r in schema.returns),
            composite=func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd),
            random=torch.Tag.nondeterministic_seeded in func.tags,
        )


_OPERATORS: dict[OpOverload, AtenOperator] = {}


def aten_operator(func: OpOverload) -> AtenOperator:
    """What the recorder has to know of an operator."""
    known = _OPERATORS.get(func)
    if known is None:
        known = _OPERATORS[func] = AtenOperator.of(func)
    return known


def plain_arguments(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments as the vocabulary calls them, without what is no plain data: dtypes, devices, layouts."""
    renamed = _ARGUMENTS.get(name, {})
    return {renamed.get(key, key): value for key, value in arguments.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    return not isinstance(
        value, (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Generator, Tensor)
    )
