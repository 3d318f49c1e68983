"""How do MLflow, Weights & Biases and TensorBoard learn how a training started, and how good it became?

    log_start(answer)                      to the MLflow and W&B runs that are active, if there are any
    log_start(answer, writer)              and to a SummaryWriter of TensorBoard
    WarmTraining(..., track=writer)        the same, and the curves that are reported, as scalars

None of these tools is imported here: one that the process has not imported has no active run. What tools log
on their own is not logged twice: curves go only to what is named by `track`, facts to all.

    MLflow      tags `modelkeeper.parent` ...; metrics `modelkeeper.similarity`, `modelkeeper.transferred`
    W&B         config `modelkeeper: {parent ...}`
    TensorBoard text `modelkeeper`; scalars `modelkeeper/similarity`, `modelkeeper/transferred`
"""

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from modelkeeper.errors import InvalidSetting
from modelkeeper.text import one_line

if TYPE_CHECKING:
    from modelkeeper.warmstart.answer import Answer

PREFIX = "modelkeeper."
_MOST = 500  # characters of a tag: what every MLflow since 2.0 takes
Facts = Mapping[str, str | float]


class Tracker(Protocol):
    """What a training is told to."""

    def facts(self, facts: Facts) -> None:
        """How it started: plain data under names that begin with `modelkeeper.`."""

    def curve(self, metrics: Mapping[str, float], step: int | None) -> None:
        """How good it is at a step."""


class _Mlflow:
    """A run of MLflow, by its id: threads have active runs of their own."""

    def __init__(self, run: Any) -> None:
        self._run = run.info.run_id
        self._client = sys.modules["mlflow"].MlflowClient()

    def facts(self, facts: Facts) -> None:
        for name, fact in facts.items():
            self._client.set_tag(self._run, name, str(fact)[:_MOST])
            if isinstance(fact, float):
                self._client.log_metric(self._run, name, fact)

    def curve(self, metrics: Mapping[str, float], step: int | None) -> None:
        for name, value in metrics.items():
            self._client.log_metric(self._run, PREFIX + name, value, step=step or 0)


class _Wandb:
    """A run of Weights & Biases."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def facts(self, facts: Facts) -> None:
        short = {name.removeprefix(PREFIX): fact for name, fact in facts.items()}
        self._run.config.update({"modelkeeper": short}, allow_val_change=True)

    def curve(self, metrics: Mapping[str, float], step: int | None) -> None:
        # No commit: steps are the user's, who would lose what is logged for an older one.
        logged: dict[str, float] = {f"modelkeeper/{name}": value for name, value in metrics.items()}
        if step is not None:
            logged["modelkeeper/step"] = step
        self._run.log(logged, commit=False)


class _TensorBoard:
    """A SummaryWriter: that of PyTorch, or of tensorboardX."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def facts(self, facts: Facts) -> None:
        lines = [f"- {name.removeprefix(PREFIX)}: {fact}" for name, fact in facts.items()]
        self._writer.add_text("modelkeeper", "\n".join(lines), 0)
        for name, fact in facts.items():
            if isinstance(fact, float):
                self._writer.add_scalar(name.replace(".", "/"), fact, 0)

    def curve(self, metrics: Mapping[str, float], step: int | None) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(f"modelkeeper/{name}", value, step)


def tracker(given: Any) -> Tracker:
    """What a tool's own object is told through: a run of MLflow or W&B, or a SummaryWriter.

    Raises:
        InvalidSetting: It is none of these.
    """
    if hasattr(given, "add_scalar") and hasattr(given, "add_text"):
        return _TensorBoard(given)
    if hasattr(given, "config") and hasattr(given, "log"):
        return _Wandb(given)
    if "mlflow" in sys.modules and hasattr(getattr(given, "info", None), "run_id"):
        return _Mlflow(given)
    if isinstance(given, _Mlflow | _Wandb | _TensorBoard):
        return given
    advice = "give mlflow.active_run(), wandb.run, a SummaryWriter, or a list of them"
    raise InvalidSetting("track", repr(given)[:80], advice)


def trackers(given: Any) -> list[Tracker]:
    """The same of one object, of several, or of none.

    Raises:
        InvalidSetting: One of them is nothing that could be told.
    """
    if given is None:
        return []
    several = isinstance(given, Iterable) and not hasattr(given, "info")
    return [tracker(one) for one in (given if several else [given])]


def active() -> list[Tracker]:
    """The runs of MLflow and W&B that are active in this thread."""
    found: list[Tracker] = []
    run = _called(sys.modules.get("mlflow"), "active_run")
    if run is not None:
        found.append(_Mlflow(run))
    run = getattr(sys.modules.get("wandb"), "run", None)
    if run is not None:
        found.append(_Wandb(run))
    return found


def facts_of(answer: "Answer") -> dict[str, str | float]:
    """How a training started, as plain data under names that begin with `modelkeeper.`."""
    known: dict[str, str | float] = {
        "start": "cold" if answer.cold else "warm",
        "reason": answer.reason,
        "advice": str(answer.advice),
    }
    if not answer.cold:
        known |= {
            "parent": answer.parent or "",
            "parent_name": answer.parent_name,
            "similarity": round(answer.similarity or 0.0, 6),
            "exact": str(answer.exact).lower(),
            "transferred": answer.transferred,
        }
        if len(answer.parents) > 1:
            ids = ", ".join(parent.id for parent in answer.parents)
            known |= {"parents": ids, "parent_names": answer.parents_named}
    return {
        PREFIX + name: one_line(value) if isinstance(value, str) else value for name, value in known.items()
    }


def log_start(answer: "Answer", track: Any = ()) -> None:
    """Log how a training started to the active runs of MLflow and W&B, and to others.

    Args:
        answer: Of `query_for_model`, or of a run: `run.answer`.
        track: A SummaryWriter, a run of MLflow or W&B, or several of these.

    Raises:
        InvalidSetting: `track` is nothing that could be told.
    """
    log_facts(facts_of(answer), trackers(track))


def log_facts(facts: Facts, named: Iterable[Tracker] = ()) -> None:
    """Log facts to the active runs and to those that were named; to the same run once."""
    told = {_identity(one): one for one in (*active(), *named)}
    for one in told.values():
        one.facts(facts)


def _identity(one: Tracker) -> object:
    return one._run if isinstance(one, _Mlflow) else id(getattr(one, "_run", one))


def _called(module: Any, name: str) -> Any:
    """What a function of a module returns; None if there is no such module or function yet."""
    function = getattr(module, name, None)
    return None if function is None else function()
