"""A parent that lends: what is needed to run it beside its child."""

from collections.abc import Mapping
from dataclasses import dataclass

from modelkeeper.transform import Plan
from modelkeeper.weights import Array


@dataclass(frozen=True)
class Lender:
    """A parent, for whoever wants to run it beside the child: the plan, its own tensors, and its program."""

    plan: Plan
    tensors: Mapping[str, Array]
    program: bytes | None
