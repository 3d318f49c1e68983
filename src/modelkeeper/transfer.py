"""Carry the weights of one model into another, in place, whatever their widths and depths.

    report = modelkeeper.transfer(source, target)

is the answer to "load_state_dict with mismatched sizes": the two models are aligned layer by layer, what
fits is copied, what is wider or narrower is gathered unit by unit over whole spaces, what is deeper starts
as the identity. Where the target contains the source, it computes what the source computes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelkeeper.errors import InvalidWeights
from modelkeeper.frontends import frontend_for
from modelkeeper.graph import Graph
from modelkeeper.matching import Alignment, align
from modelkeeper.matching.twins import twin_pairs
from modelkeeper.transform import Plan, apply, make_plan

Array = Any


@dataclass(frozen=True)
class Report:
    """What a transfer did. Prints as a table."""

    plan: Plan
    alignment: Alignment

    @property
    def exact(self) -> bool:
        """Does the target now compute what the source computes, in evaluation mode?"""
        return self.plan.exact

    @property
    def similarity(self) -> float:
        return self.alignment.similarity

    @property
    def missing_keys(self) -> list[str]:
        """Tensors of the target that keep their own values."""
        return [entry.tensor for entry in self.plan.entries if entry.action == "kept"]

    @property
    def unexpected_keys(self) -> list[str]:
        """Tensors of the source that nothing was taken from."""
        taken = {entry.source for entry in self.plan.entries}
        return [name for name, tensor in self.plan.parent.tensors.items() if tensor.stored and name not in taken]

    def __str__(self) -> str:
        from modelkeeper.render import plain, plan_table

        return plain(plan_table(self.plan, self.alignment.similarity))


def transfer(
    source: Any,
    target: Any,
    example_inputs: Any = None,
    *,
    weights: Mapping[str, Array] | str | Path | None = None,
    same_task: bool = True,
    seed: int = 0,
) -> Report:
    """Load the weights of `source` into `target`, in place.

    Args:
        source: A model, or a Graph together with `weights`.
        target: A model. Its architecture, dtypes and devices are not changed.
        example_inputs: What both models run on, if it cannot be found from the models.
        weights: The source's tensors by name, or a safetensors file of them; only with a Graph.
        same_task: Do both predict the same things? If not, the target's head keeps its own values.
        seed: Of which units are copied, and by which shares they are read.

    Raises:
        CannotDescribe: A model did not run on the inputs there were.
        InvalidWeights: The weights do not fit the source's graph. The target is unchanged.
    """
    frontend = frontend_for(target)
    child = frontend.describe(target, example_inputs)
    if isinstance(source, Graph):
        if weights is None:
            raise InvalidWeights("source", "a Graph has no weights; pass weights=")
        parent = source
        tensors = _safetensors(weights) if isinstance(weights, (str, Path)) else weights
    else:
        lender = frontend_for(source)
        parent = lender.describe(source, example_inputs)
        tensors = dict(lender.read(source))
    alignment = align(parent, child)
    pairs = twin_pairs(parent, child) or alignment.pairs
    plan = make_plan(parent, child, pairs, same_task=same_task, seed=seed)
    frontend.load(target, dict(apply(plan, tensors)))
    return Report(plan, alignment)


def _safetensors(path: str | Path) -> Mapping[str, Array]:
    from safetensors.numpy import load_file

    found: Mapping[str, Array] = load_file(path)
    return found
