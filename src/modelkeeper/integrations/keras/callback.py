"""WarmStart: how do `model.fit`, KerasTuner and AutoKeras start warm, and keep what they trained?

    warm = WarmStart(client, {"data": "digits", "task": "classification"})
    model.fit(x, y, validation_split=0.2, callbacks=[warm])                   one model
    tuner.search(x, y, validation_split=0.2, callbacks=[warm])                KerasTuner
    auto.fit(x, y, callbacks=[warm])                                          AutoKeras
    ak.ImageClassifier(tuner=warm.tuner("greedy"))                            a tuner that knows its trials
    print(warm.summary())

It asks the keeper when a training begins: at epoch 0, of a model that no optimizer has stepped yet. A trial
that Hyperband resumes, a second `fit` of the same model and `initial_epoch` go on with what they have.
"""

import contextlib
import copy
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

import keras

from modelkeeper.client import ModelKeeperClient
from modelkeeper.frontends.keras.numbers import to_numpy
from modelkeeper.integrations.keras.training import Session, Training, as_table
from modelkeeper.integrations.keras.tuners import of_tuner, tuner_class
from modelkeeper.policy.objective import Objective, by_name
from modelkeeper.warmstart.answer import Answer
from modelkeeper.zoo.records import Record

_COLD = "The model starts cold"


class WarmStart(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """A callback that starts trainings warm and registers them. Also a context manager.

    Tuners deep-copy it for every trial; the copies share the client and what they have seen, so that
    `trainings`, `answers` and `records` of the one that you made tell of all of them. As a context manager it
    registers on exit what an exception or Ctrl-C interrupted, with the best epoch that was reached.

    Args:
        client: Of the zoo that lends, and that keeps what was trained.
        meta: data, task, tags; name, project, visibility; parents, exclude, most_parents,
            minimum_similarity, policy.
        monitor: What trainings are compared by, as it is called in the logs. Default: the objective of the
            tuner where `warm.tuner` or `warm.fit` is used; else val_accuracy, else the only other val_
            metric, else val_loss.
        mode: "min" or "max", where the name does not tell.
        calibrate: Examples of the data, to fit layers where a transfer is not exact (see
            `ModelKeeperClient.query_for_model`).
        labels: Of these examples, for a head that the parent cannot teach.
        example_inputs: What the model runs on, if that cannot be found from the model itself.
        register: Whether to register what was trained; False: only ask.
        verbose: Print a line when a training starts and when it is registered.

    Raises:
        InvalidMeta, InvalidSetting: `meta`, `monitor` or `mode` cannot be so. Nothing is raised later, in the
            midst of a training, unless the client was made with on_error="raise".
    """

    def __init__(
        self,
        client: ModelKeeperClient,
        meta: Mapping[str, Any] | None = None,
        *,
        monitor: str = "",
        mode: str = "auto",
        calibrate: Any = None,
        labels: Any = None,
        example_inputs: Any = None,
        register: bool = True,
        verbose: bool = False,
    ) -> None:
        super().__init__()
        self._session = Session(
            client,
            meta,
            by_name(monitor, mode) if monitor else None,
            register=register,
            verbose=verbose,
            example_inputs=example_inputs,
            calibrate=calibrate,
            labels=labels,
        )
        self._training: Training | None = None
        self._to_ask = False

    @property
    def trainings(self) -> list[Training]:
        """All trainings so far, in the order in which they began."""
        return self._session.trainings

    @property
    def answers(self) -> list[Answer]:
        """What the keeper did for those that asked."""
        return [training.answer for training in self.trainings if training.answer is not None]

    @property
    def records(self) -> list[Record]:
        """What was registered."""
        return [training.record for training in self.trainings if training.record is not None]

    def summary(self) -> str:
        """A table of all trainings: how they started, how good they became, what was registered."""
        from modelkeeper.display.tables import as_text

        return as_text(as_table(self.trainings)).rstrip()

    def fit(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        """`model.fit` with a warm start; what is interrupted is registered, too. For `HyperModel.fit`:

        def fit(self, hp, model, *args, **kwargs):
            return warm.fit(model, *args, **kwargs)

        The objective is that of the tuner whose callback is among `callbacks`.
        """
        callbacks = list(kwargs.pop("callbacks", None) or [])
        tuners = [callback.tuner for callback in callbacks if hasattr(callback, "tuner")]
        objective = of_tuner(tuners[0].oracle.objective) if tuners else None
        with self.trial(objective):
            return model.fit(*args, callbacks=[*callbacks, copy.deepcopy(self)], **kwargs)

    def tuner(self, base: Any) -> Any:
        """A class like `base`, whose trials start warm and are registered once each.

            ak.ImageClassifier(tuner=warm.tuner("greedy"), max_trials=20)
            warm.tuner(kt.Hyperband)(build, objective="val_accuracy", max_epochs=9)

        Args:
            base: A class of keras_tuner or autokeras; or, in AutoKeras' words, "greedy", "bayesian",
                "hyperband" or "random".
        """
        return tuner_class(base, self)

    @contextlib.contextmanager
    def trial(self, objective: Objective | None = None, name: str = "") -> Iterator[None]:
        """Trainings inside count as one: the best is registered when the block ends, also if it raises.

        Args:
            objective: What they are compared by, unless WarmStart was given `monitor`.
            name: What the model is called in the zoo, unless `meta` says it.
        """
        with self._session.trial(objective, name):
            yield

    def finish(self) -> None:
        """Register a training that was interrupted, with the best epoch that it reached."""
        self._session.finish()

    def __enter__(self) -> "WarmStart":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def __deepcopy__(self, memo: dict[int, Any]) -> "WarmStart":
        twin = copy.copy(self)
        keras.callbacks.Callback.__init__(twin)  # of no model yet
        twin._training, twin._to_ask = None, False
        return twin

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Keras calls it when `fit` begins."""
        self._to_ask = False
        with self._session.guard(_COLD):
            self._training = self._session.begin(self.model, self)

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Keras calls it before each epoch: before the first, the keeper is asked."""
        training = self._training
        if training is None:
            return
        with self._session.guard(_COLD):
            if not training.begun:
                training.begun = True
                if epoch > 0:
                    training.why_not_asked = f"it goes on at epoch {epoch}"
                elif _steps(self.model) > 0:
                    training.why_not_asked = "the model has been trained before"
                else:
                    self._to_ask = True
            self._ask(training)

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Keras calls it before each batch: TensorFlow builds a model without an Input in the first one."""
        if self._to_ask and self._training is not None:
            with self._session.guard(_COLD):
                self._ask(self._training)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Keras calls it after each epoch and its validation."""
        if self._training is not None:
            with self._session.guard("This epoch cannot be registered"):
                self._session.see(self._training, epoch, logs or {})

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Keras calls it when `fit` ends, early or not, but not if it raises."""
        training, self._training = self._training, None
        if training is not None:
            with self._session.guard("The model was not registered"):
                self._session.end(training)

    def _ask(self, training: Training) -> None:
        if not self._to_ask or not self.model.built:
            return
        self._to_ask = False
        self._session.ask(training)
        if training.answer is not None and not training.answer.cold and _steps(self.model) > 0:
            _renew(self.model.optimizer, self.model.trainable_variables)


def _steps(model: Any) -> int:
    """How many steps of training the model's optimizer has made."""
    return int(to_numpy(model.optimizer.iterations))


def _renew(optimizer: Any, variables: Any) -> None:
    """Bring an optimizer to where it was before its first step: the weights that it knows are gone."""
    fresh = type(optimizer).from_config(optimizer.get_config())  # with the learning rate of now
    fresh.build(variables)
    for variable, initial in zip(optimizer.variables, fresh.variables, strict=True):
        variable.assign(initial)
