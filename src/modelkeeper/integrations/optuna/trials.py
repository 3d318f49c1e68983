"""How does a trial of Optuna start warm, and what is kept of it, however it ends?

    def objective(trial):
        model = build(trial)
        with warm_trial(trial, model, META, client=client, metric="accuracy") as run:
            for epoch in range(5):
                accuracy = train(model)
                run.report(accuracy, epoch)             also to Optuna, for its pruners
                if trial.should_prune():
                    raise optuna.TrialPruned
        return accuracy

A trial is one model in the zoo, whoever runs it: threads of `n_jobs`, processes of one study. One that is
pruned or fails leaves the best that it reported, as unfinished; a retry of a trial takes its place. How it
started and what became of it is in the trial's `user_attrs`, under names that begin with `modelkeeper.`.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import optuna

from modelkeeper.client import ModelKeeperClient
from modelkeeper.integrations.warm_training import TellsOfTraining, WarmTraining, Where
from modelkeeper.run import EVERY

PREFIX = "modelkeeper."


class WarmTrial(TellsOfTraining):
    """One trial under way: what it reports goes to Optuna and to the keeper. Made by `warm_trial`."""

    def __init__(self, trial: "optuna.trial.BaseTrial", model: Any, warm: WarmTraining, metric: str) -> None:
        self.trial, self.model, self.metric = trial, model, metric
        self.value: float | None = None  # as it was reported last
        self._warm = warm
        self._fold = str(warm.meta.get("fold", ""))

    def report(self, value: float, step: int | None = None, *, model: Any = None, **metrics: Any) -> None:
        """How good the model is now: for Optuna's pruners, and for what is kept of the trial.

        Args:
            value: What the study optimizes; of a study with several objectives, the one that `metric` names.
            step: When it was measured. Without it, in a fold of a cross-validation, and of a study with
                several objectives, Optuna is not told: it prunes by one value for each step of a trial.
            model: The model as it was measured, if it is not the one that the trial began with.
            metrics: What else was measured.
        """
        self.value = float(value)
        study = getattr(self.trial, "study", None)
        if step is not None and not self._fold and (study is None or len(study.directions) == 1):
            self.trial.report(self.value, step)
        self._warm.report({**metrics, self.metric: self.value}, self.model if model is None else model, step)

    def note(self, facts: Mapping[str, Any]) -> None:
        """Write plain facts into the trial's `user_attrs`; of a fold, under its name."""
        with self._warm.client.faults.guard("The trial does not say how it started", ()):
            for name, fact in facts.items():
                short = name.removeprefix(PREFIX)
                self.trial.set_user_attr(
                    f"{PREFIX}fold {self._fold}.{short}" if self._fold else PREFIX + short, fact
                )

    def end(self, *, early: bool) -> None:
        """The trial ends: early, if it was pruned or failed, or if what it reported last is no number."""
        early = early or (self.value is not None and not math.isfinite(self.value))
        record = self._warm.stop() if early else self._warm.finish()
        if record is not None:
            self.note({"model": record.id, "finished": record.finished})


# long: what a user may ask for, and the words that explain it.
@contextlib.contextmanager
def warm_trial(
    trial: "optuna.trial.BaseTrial",
    model: Any,
    meta: Mapping[str, Any] | None = None,
    *,
    client: Where = None,
    metric: str = "",
    mode: str = "",
    resumed: bool = False,
    keep: str = "best",
    every: float = EVERY,
    register: bool = True,
    example_inputs: Any = None,
    track: Any = (),
    **query: Any,
) -> Iterator[WarmTrial]:
    """Load the most fitting known weights into the model of a trial, and keep what the trial reports.

    Args:
        trial: Of Optuna, as the objective is given it.
        model: Before an optimizer is built on it.
        meta: data, task, tags, fold; name, project, visibility; parents, exclude, most_parents,
            minimum_similarity, policy.
            In a cross-validation, give each `fold`: each is a model of its own, and none starts from one that
            has seen what it is validated on.
        client: One for all trials; or where the zoo is: a folder, an address.
        metric: What the value is that the study optimizes: "accuracy", "val_loss". Models are compared with
            others of the same metric. Default: as `study.set_metric_names` says; else a name of this study's
            own.
        mode: "min" or "max". Default: the direction of the study.
        resumed: The trial goes on from a checkpoint: do not ask, leave the model as it is.
        keep: Of the reported states, register the "best" or the "last".
        every: Seconds between two versions that are written while the trial goes on.
        register: Whether to register what was trained; False: only ask.
        example_inputs: What the model runs on, if that cannot be found from the model itself.
        track: As for `WarmTraining`.
        query: Further arguments of `ModelKeeperClient.query_for_model`: calibrate, labels, probe ...

    Raises:
        InvalidMeta, InvalidSetting: `meta` or an argument cannot be so. Nothing else is raised, unless the
            client was made with on_error="raise".
    """
    name, direction = _objective(trial, metric, mode)
    warm = WarmTraining(
        client,
        meta,
        monitor=name,
        mode=direction,
        keep=keep,
        every=every,
        register=register,
        example_inputs=example_inputs,
        track=track,
        **query,
    )
    run = WarmTrial(trial, model, warm, name)
    try:
        warm.begin(model, key=_key(trial, str(warm.meta.get("fold", ""))), resumed=resumed)
        run.note(warm.facts())
        try:
            yield run
        except BaseException:
            run.end(early=True)
            raise
        run.end(early=False)
    finally:
        if not isinstance(client, ModelKeeperClient):
            warm.client.stop()


def _objective(trial: "optuna.trial.BaseTrial", metric: str, mode: str) -> tuple[str, str]:
    """What the study optimizes, and which way: "min", "max"; "auto" if only the name can tell."""
    study = getattr(trial, "study", None)
    if study is None:  # a FixedTrial, to try an objective out
        return metric or "objective", mode or ("auto" if metric else "max")
    names = study.metric_names or ()
    several = len(study.directions) > 1
    if several:
        if metric in names:
            mode = mode or _mode(study.directions[names.index(metric)])
        return metric or (names[0] if names else "objective"), mode or "auto"
    named = metric or (names[0] if names else f"{study.study_name} objective")
    return named, mode or _mode(study.direction)


def _mode(direction: "optuna.study.StudyDirection") -> str:
    return "min" if direction == optuna.study.StudyDirection.MINIMIZE else "max"


def _key(trial: "optuna.trial.BaseTrial", fold: str) -> str:
    """What a trial is known by, in all processes; that of the first try, if it is a retry."""
    study = getattr(trial, "study", None)
    if study is None:
        return ""
    first = study.get_trials(deepcopy=False)[trial.number]
    number = first.system_attrs.get("failed_trial")
    if number is not None:
        first = study.get_trials(deepcopy=False)[number]
    # Studies of one name in two storages are two: when a trial began tells them apart.
    return f"optuna {study.study_name} {first.number} {first.datetime_start} {fold}"
