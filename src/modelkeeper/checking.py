"""Does a model of a zoo do what is claimed of it? Its program runs on examples that the user trusts.

    checked = check(coordinator, "resnet20", inputs, labels)
    checked.holds, checked.accuracy, checked.claim

The program came from elsewhere: it runs in a process of its own, as while calibrating. What comes out is told
to the coordinator as an outcome, which counts for whoever else is offered the model (`policy.credit`).
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import numpy as np
from msgspec import Struct

from modelkeeper.coordinator import Coordinator
from modelkeeper.errors import InvalidMeta, NoProgram
from modelkeeper.frontends.calibrating.apart import parent_apart
from modelkeeper.frontends.calibrating.parent_run import Lent, ParentRun
from modelkeeper.frontends.fit_tasks import Budget
from modelkeeper.frontends.programs.passes import Engine
from modelkeeper.frontends.programs.program import Program
from modelkeeper.frontends.registry import FRONTENDS
from modelkeeper.policy.credit import CHECKED, Credit
from modelkeeper.policy.plausible import plausible
from modelkeeper.weights import Array
from modelkeeper.zoo.records import Record

PART = 128  # examples that run at once
SECONDS = 300.0  # that a program may take for all of them
FEWEST = 20  # examples: of fewer, chance says too much


class Checked(Struct, frozen=True, kw_only=True):
    """What a model claims, and what it does."""

    model: str
    name: str
    owner: str
    claim: float
    right: int
    examples: int
    holds: bool
    credit: Credit  # of the model, now that this is known

    @property
    def accuracy(self) -> float:
        """The share of the examples that it got right."""
        return self.right / self.examples

    def __str__(self) -> str:
        found = f"{self.right:,} of {self.examples:,} right ({self.accuracy:.4g})"
        verdict = "the claim can be true" if self.holds else "the claim does not hold"
        return (
            f"{self.name} ({self.model}): {self.owner} claims accuracy {self.claim:.4g}; {found}: {verdict}"
        )


def check(
    coordinator: Coordinator, name: str, inputs: Any, labels: Any, *, sandbox: str = "on", user: str = ""
) -> Checked:
    """Run a model on examples, compare its accuracy with what is claimed, and tell the coordinator.

    Args:
        coordinator: Of the zoo that has the model.
        name: The model, by its id or name.
        inputs: An array or tensor, or a list of them if it takes several; examples along the first axis.
        labels: The number of the right class of each example.
        sandbox: Where its program runs: see `Settings.sandbox`.
        user: Who checks; a coordinator with users knows better.

    Raises:
        InvalidMeta: The model claims no accuracy, or the examples do not serve.
        NoProgram: It was registered without one, or for a framework that cannot run it here.
        InvalidProgram: It does not run on the examples, died, or took too long.
    """
    record = coordinator.show(name)
    if record.metric != "accuracy" or record.value is None:
        raise InvalidMeta("claim", record.metric or "none", "only a claimed accuracy can be checked")
    given = [_array(each) for each in (inputs if isinstance(inputs, list | tuple) else [inputs])]
    truth = _array(labels)
    if truth.ndim != 1 or truth.dtype.kind not in "iu" or any(len(each) != len(truth) for each in given):
        raise InvalidMeta("labels", f"shape {truth.shape}", "give one whole number for each example")
    if len(truth) < FEWEST:
        raise InvalidMeta("labels", f"{len(truth)} examples", f"give at least {FEWEST}")
    outputs = _outputs(coordinator, record, given, sandbox)
    if outputs.ndim != 2 or len(outputs) != len(truth):
        raise InvalidMeta("the model", f"outputs of shape {outputs.shape}", "it does not tell classes apart")
    right = int((outputs.argmax(axis=1) == truth).sum())
    holds = plausible(record.value, right, len(truth))
    credit = coordinator.tell(record.id, CHECKED, 1.0 if holds else -1.0, user=user)
    return Checked(
        model=record.id,
        name=record.name,
        owner=record.owner,
        claim=record.value,
        right=right,
        examples=len(truth),
        holds=holds,
        credit=credit,
    )


def _outputs(coordinator: Coordinator, record: Record, inputs: Sequence[Array], sandbox: str) -> Array:
    """What the model puts out for all examples."""
    engine = _engine(record)
    with coordinator.whole(record) as (data, tensors):
        if data is None:
            raise NoProgram(record.name, "it was registered without one")
        program = Program.from_bytes(data)
        if len(program.inputs) != len(inputs):
            problem = f"{len(inputs)} arrays, and the model takes {len(program.inputs)}"
            raise InvalidMeta("inputs", problem, "give one for each, in their order")
        budget = Budget(sandbox=sandbox)
        running: AbstractContextManager[Lent]
        if sandbox == "off":
            held = {name: engine.tensor(array) for name, array in tensors.items()}
            running = nullcontext(ParentRun(engine, program, held, inputs, memory=2 * budget.memory))
        else:
            running = parent_apart(engine, program, tensors, inputs, budget)
        with running as lent:
            lent.ends(SECONDS)
            numbers = np.arange(len(inputs[0]))
            parts = [numbers[at : at + PART] for at in range(0, len(numbers), PART)]
            lent.begin(parts)
            return np.concatenate([lent.output(part) for part in range(len(parts))])


def _engine(record: Record) -> Engine:
    """What runs programs of a model's framework."""
    engine: Any = None
    if record.framework in FRONTENDS.names():
        engine = getattr(getattr(FRONTENDS.get(record.framework), "runner", None), "engine", None)
    if engine is None:
        raise NoProgram(record.name, f"programs of {record.framework or 'its framework'} cannot be checked")
    return cast(Engine, engine)


def _array(value: Any) -> Array:
    """An array of whatever holds numbers."""
    value = value.detach().cpu() if hasattr(value, "detach") else value
    return np.asarray(value)
