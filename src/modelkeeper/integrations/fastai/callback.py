"""WarmStart: how does `learn.fit` of fastai start warm, and keep what it trained?

    warm = WarmStart("zoo/", {"data": "digits", "task": "classification"})
    Learner(dls, model, metrics=accuracy, cbs=warm).fit_one_cycle(5)

It asks in `before_fit`. fastai has made the optimizer by then, which stays right: weights are written in
place, and it has not stepped yet. A second `fit` of the same model (`fine_tune` calls two), `start_epoch` and
what was loaded with its optimizer go on with what they have. `lr_find` and `get_preds` are no trainings.
"""

from collections.abc import Mapping
from typing import Any

from fastai.callback.core import Callback

from modelkeeper.integrations.warm_training import TellsOfTraining, WarmTraining, Where
from modelkeeper.run import EVERY

_SETTINGS = {"do_wd", "force_train"}  # what an optimizer of fastai says of parameters before it steps

# Callbacks with which fastai trains for something else.
_NO_TRAININGS = {"LRFinder"}


class WarmStart(TellsOfTraining, Callback):  # type: ignore[misc]  # fastai has no types
    """A callback that starts trainings warm and registers them.

    Args:
        client: Of the zoo that lends, and that keeps what was trained; or where that zoo is: a folder, an
            address. Default: as for `ModelKeeperClient`.
        meta: data, task, tags, fold; name, project, visibility; parents, exclude, most_parents,
            minimum_similarity, policy.
        monitor: The metric that epochs are compared by, as the recorder calls it: valid_loss, accuracy ...
            Default: the accuracy; else the only other metric; else the loss of validation.
        mode: "min" or "max", where the name of the metric does not tell.
        keep: Of all epochs, register the "best" or the "last".
        every: Seconds between two versions that are written while the training goes on.
        register: Whether to register what was trained; False: only ask.
        example_inputs: What the model runs on, if that cannot be found from the model itself.
        query: Further arguments of `ModelKeeperClient.query_for_model`: calibrate, labels, probe ...

    Raises:
        InvalidMeta, InvalidSetting: `meta` or an argument cannot be so. Nothing is raised later.
    """

    order = 60  # after the recorder, which gathers the metrics of an epoch

    def __init__(
        self,
        client: Where = None,
        meta: Mapping[str, Any] | None = None,
        *,
        monitor: str = "",
        mode: str = "auto",
        keep: str = "best",
        every: float = EVERY,
        register: bool = True,
        example_inputs: Any = None,
        **query: Any,
    ) -> None:
        super().__init__()
        self._warm = WarmTraining(
            client,
            meta,
            monitor=monitor,
            mode=mode,
            keep=keep,
            every=every,
            register=register,
            example_inputs=example_inputs,
            **query,
        )
        self._monitor = monitor
        self._training = False  # does `fit` run, and for a training?

    # -- events: fastai calls them, with `self.learn` set ----------------------------------------

    def before_fit(self) -> None:
        """When `fit` begins, and when `validate` does."""
        self._training = False

    def before_train(self) -> None:
        """Before each epoch, just of trainings: before the first one, the keeper is asked."""
        learn = self.learn
        others = {type(other).__name__ for other in learn.cbs}
        if not self._training and others.isdisjoint(_NO_TRAININGS):
            self._training = True
            model, skips = learn.model, "SkipToEpoch" in others
            self._warm.begin(model, resumed=skips or self._warm.knows(model) or _has_stepped(learn.opt))

    def after_epoch(self) -> None:
        """After each epoch and its validation."""
        recorder = getattr(self.learn, "recorder", None)
        if not self._training or recorder is None or not recorder.values:
            return
        names = [name for name in recorder.metric_names if name not in ("epoch", "time")]
        measured = dict(zip(names, recorder.values[-1], strict=False))
        own = {name: value for name, value in measured.items() if not name.startswith("train_")}
        chosen = measured if self._monitor.startswith("train_") else own
        self._warm.report(chosen, self.learn.model, step=len(recorder.values))

    def after_fit(self) -> None:
        """When it has ended; callbacks that end it early end it, too."""
        if self._training:
            self._warm.finish()


def _has_stepped(optimizer: Any) -> bool:
    """Does an optimizer know more of parameters than how they are to be treated?"""
    state = getattr(optimizer, "state", None) or {}
    return any(set(known) - _SETTINGS for known in state.values())
