"""WarmStart: how does Hugging Face's Trainer start warm, and keep what it trained?

    warm = WarmStart(client, {"data": "imdb", "task": "sentiment"})
    trainer = Trainer(model, args, train_dataset=..., eval_dataset=..., callbacks=[warm])
    trainer.train()
    warm.answers, warm.records

It asks when a training begins, not when it goes on (see `beginnings`). The optimizer and the wrappers exist
by then and stay valid: weights are written in place. Each evaluation is a report; the best state is
registered when the training ends. One callback serves many trainings, e.g. of `hyperparameter_search`.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from transformers import TrainerCallback

from modelkeeper.faults import warn
from modelkeeper.frontends.torch.adapters import ADVICE, REASON, adapted
from modelkeeper.integrations.huggingface.beginnings import ASK, KEEP, checked_choice, remember, why_not_asked
from modelkeeper.integrations.huggingface.best_checkpoint import measured_of
from modelkeeper.integrations.warm_training import WarmTraining, Where
from modelkeeper.lineage import parents_said
from modelkeeper.run import EVERY

if TYPE_CHECKING:
    from modelkeeper.warmstart.answer import Answer
    from modelkeeper.zoo.records import Record

OURS = "modelkeeper"  # what is ours in the state that the Trainer saves with its checkpoints


@dataclass(eq=False)
class _Training:
    """One call of `trainer.train()`."""

    warm: WarmTraining
    model: Any
    registers: bool
    measured: bool = False
    ended: bool = False  # and still here: nothing had measured it


class WarmStart(TrainerCallback):  # type: ignore[misc]  # transformers is not followed
    """A callback that starts trainings warm and registers them.

    Args:
        client: Of the zoo that lends, and that keeps what was trained; or where that zoo is: a folder, an
            address. Default: as for `ModelKeeperClient`.
        meta: data, task, tags, fold; name, project, visibility; parents, exclude, most_parents,
            minimum_similarity, policy.
        monitor: The metric that states of the model are compared by, as the Trainer logs it: "eval_f1".
            Default: `metric_for_best_model` of the training's arguments, which `load_best_model_at_end`
            sets; else eval_accuracy; else the only other metric; else eval_loss.
        mode: "min" or "max", where the name of the metric does not tell.
        pretrained: What becomes of models that `from_pretrained` has loaded: "keep" leaves them as they are,
            "ask" asks: a sibling's fine-tuned weights may be the better start.
        every: Seconds between two versions that are written while the training goes on.
        register: Whether to register what was trained; False: only ask.
        example_inputs: What the model runs on, if that cannot be found from its config.
        query: Further arguments of `ModelKeeperClient.query_for_model`: calibrate, labels, probe ...

    Raises:
        InvalidMeta, InvalidSetting: `meta` or an argument cannot be so. Nothing is raised later, in the midst
            of a training, unless the client was made with on_error="raise".
    """

    def __init__(
        self,
        client: Where = None,
        meta: Mapping[str, Any] | None = None,
        *,
        monitor: str = "",
        mode: str = "auto",
        pretrained: str = KEEP,
        every: float = EVERY,
        register: bool = True,
        example_inputs: Any = None,
        **query: Any,
    ) -> None:
        self._pretrained = checked_choice(pretrained)
        if pretrained == ASK:  # it is meant, and no warning is due
            query.setdefault("trained", "replace")
        self._register, self._monitor, self._mode = register, monitor, mode
        self._arguments: dict[str, Any] = {"every": every, "example_inputs": example_inputs, **query}
        self.client = WarmTraining(client, meta, monitor=monitor, mode=mode, **self._arguments).client
        self._meta = dict(meta or {})
        self.answers: list[Answer] = []  # how each training started
        self.records: list[Record] = []  # what was registered of them
        self._training: _Training | None = None  # under way, or waiting to be measured

    def facts(self) -> dict[str, str | float]:
        """How the training under way started, as plain data, for whatever logs it."""
        return {} if self._training is None else self._training.warm.facts()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The Trainer calls it when all is prepared, before the first step: here the keeper is asked."""
        model, last = kwargs["model"], self._training
        if last is not None and last.model is model and not last.ended:
            return  # the same training once more, with smaller batches (auto_find_batch_size)
        self._let_go()
        reason = why_not_asked(model, args, state, self._pretrained)
        before = state.stateful_callbacks.get(OURS, {}) if state.global_step > 0 else {}
        key, parent = before.get("key") or secrets.token_hex(8), before.get("parent") or ""
        monitor, mode = self._compared_by(args)
        warm = WarmTraining(
            self.client,
            self._meta | ({"parent": parent} if parent else {}),
            monitor=monitor,
            mode=mode,
            **self._arguments,
        )
        answer = warm.begin(model, key=key, resumed=bool(reason))
        remember(model)
        if answer is None or warm.run is None:  # it could not even be asked, and a warning has said why
            return
        self._training = _Training(warm, model, self._registers(model))
        if reason:
            answer = warm.run.answer = msgspec.structs.replace(answer, reason=f"not asked: {reason}")
        self.answers.append(answer)
        state.stateful_callbacks[OURS] = {"key": key, "parent": parent or parents_said(answer)}

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """The Trainer calls it after each evaluation, also of `trainer.evaluate()`."""
        training = self._training
        if training is None or training.model is not kwargs["model"] or not training.registers:
            return
        if training.ended:
            self._finish(training, metrics or {})
        elif state.global_step > 0:  # before the first step it is its parent that is measured
            training.warm.report(metrics or {}, training.model, state.global_step)
            training.measured = training.measured or bool(training.warm.run and training.warm.run.metrics)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The Trainer calls it when a training ends: at its last step, stopped early or pruned."""
        training = self._training
        if training is None or training.ended:
            return
        training.ended, best = True, dict[str, Any]()
        searching = state.is_hyper_param_search
        if searching and state.global_step < state.max_steps and not control.should_training_stop:
            self._let_go()  # a trial is pruned
        elif not training.registers:
            self._training = None
        elif training.measured:
            with self.client.faults.guard("The best checkpoint is not looked at"):
                best = measured_of(training.model, args, state)
            self._finish(training, best)
        elif not searching:  # a search evaluates now
            advice = 'call trainer.evaluate(), or set eval_strategy="epoch"'
            warn(f"The model is not registered: it was not evaluated. To have it registered, {advice}.")

    def _compared_by(self, args: Any) -> tuple[str, str]:
        """The metric that states are compared by, and its direction."""
        named = getattr(args, "metric_for_best_model", None)
        if self._monitor or not named:
            return self._monitor, self._mode
        name = named if named.startswith("eval_") else f"eval_{named}"
        return name, "max" if args.greater_is_better else "min"

    def _registers(self, model: Any) -> bool:
        if self._register and adapted(model):
            warn(f"The model will not be registered: {REASON}. {ADVICE}.")
            return False
        return self._register

    def _finish(self, training: _Training, metrics: Mapping[str, Any]) -> None:
        """Register the training, and free its model."""
        self._training = None
        record = training.warm.finish(metrics, training.model)
        self.records += [] if record is None else [record]

    def _let_go(self) -> None:
        """A training was interrupted or pruned: what it reported stays, as unfinished."""
        training, self._training = self._training, None
        record = training.warm.stop() if training is not None else None
        self.records += [] if record is None else [record]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_training": None}
