"""What does this process train for Ray, and what does the keeper do for it?

    warm_start(model)              before the optimizer is built, and before ray.train.torch.prepare_model
    report(metrics, model)         instead of tune.report or ray.train.report
    finish()                       only where nobody else says that the training has ended

A process of Ray trains one model at a time: a trial of Tune, or one worker of a TorchTrainer. What was said
on the driver (`WarmStart`) comes with the trainable. Outside of Ray the same calls serve a plain training.
"""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import ray.train
from msgspec import Struct
from ray import tune
from ray.train.v2._internal.util import _in_ray_train_worker
from ray.tune.trainable.trainable_fn_utils import _in_tune_session

from modelkeeper.integrations.ray.checkpoint import say
from modelkeeper.integrations.warm_training import WarmTraining, Where
from modelkeeper.policy.objective import numbers

if TYPE_CHECKING:
    from modelkeeper.warmstart.answer import Answer
    from modelkeeper.zoo.records import Record

TUNE, TRAIN, ALONE = "tune", "train", "alone"
# A clock for schedulers, `time_attr=TIME`: reports so far, and for a warm start what it need not train again.
TIME = "modelkeeper/time"


class Sent(Struct, frozen=True):
    """What was said on the driver: arguments of `WarmTraining`."""

    client: Where = None
    meta: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    longest: float = 0.0  # what trials may get at most, if their time is `TIME`
    told: bool = True  # will anybody say when the training ends?

    def training(
        self, client: Where, meta: Mapping[str, Any] | None, more: Mapping[str, Any]
    ) -> WarmTraining:
        """A training by what was said on the driver, and by what is said now."""
        chosen = self.client if client is None else client
        return WarmTraining(chosen, {**self.meta, **(meta or {})}, **{**self.arguments, **more})


class Place(Struct, frozen=True):
    """Which training of Ray this is."""

    key: str = ""  # the same when it goes on later, elsewhere
    name: str = ""  # what the model is called if nobody says otherwise
    kind: str = ALONE
    rank: int = 0
    resumed: bool = False  # does it go on from a checkpoint?


class _Open(Struct):
    """A training that has begun."""

    warm: WarmTraining
    model: Any
    place: Place
    metrics: dict[str, Any] = {}  # of the last report
    reports: int = 0


_LOCK = threading.RLock()  # the training runs in one thread, and is ended in another
_sent = Sent(told=False)
_place: Place | None = None
_open: _Open | None = None


def expect(sent: Sent, place: Place | None = None) -> None:
    """What the next training of this process is told."""
    global _sent, _place
    _sent, _place = sent, place


def here() -> Place:
    """Which training of Ray this is, as Ray says itself."""
    if _in_tune_session():
        context: Any = tune.get_context()
        experiment, trial = context.get_experiment_name(), context.get_trial_id()
        return trial_place(experiment, trial, resumed=tune.get_checkpoint() is not None)
    if _in_ray_train_worker():
        worker: Any = ray.train.get_context()
        name = worker.get_experiment_name()
        resumed = ray.train.get_checkpoint() is not None
        return Place(f"ray train/{name}", name, TRAIN, worker.get_world_rank(), resumed)
    return Place()


def trial_place(experiment: str, trial: str, *, resumed: bool = False) -> Place:
    """A trial of Tune."""
    return Place(f"ray tune/{experiment}/{trial}", f"{experiment}-{trial}", TUNE, 0, resumed)


def warm_start(
    model: Any, meta: Mapping[str, Any] | None = None, *, client: Where = None, **more: Any
) -> "Answer | None":
    """Load the most fitting known weights into a model, in place; not if it goes on from a checkpoint.

    Args:
        model: Before an optimizer is built on it, and before `prepare_model`. Under a TorchTrainer every
            worker calls.
        meta: What is known of this training besides what `WarmStart` was told on the driver.
        client: Of the zoo, or where it is. Default: as the driver says; else MODELKEEPER_URI.
        more: Further arguments of `WarmStart`.

    Returns:
        What was done; `answer.advice` says how long to train from here. None if the keeper could not be
        asked: a warning says why.

    Raises:
        InvalidMeta, InvalidSetting: `meta` or an argument cannot be so.
    """
    place = _place or here()
    warm = _sent.training(client, meta, more)
    return _begin(warm, model, place)


def report(metrics: Mapping[str, Any], model: Any = None, *, checkpoint: Any = None) -> None:
    """Report to Tune or Train, as their own `report` does, and to the keeper.

    A state of the model that is the best so far is kept in the background: a trial that is stopped here, as
    schedulers do, has left it.

    Args:
        metrics: All that was measured.
        model: The model as it was measured. Default: the one that `warm_start` was given.
        checkpoint: For Ray. If `save_checkpoint` had a part in it, a zoo can take it: it is told how good
            the model is.
    """
    note(metrics, model, checkpoint=checkpoint)
    place = _open.place if _open is not None else (_place or here())
    if place.kind == TUNE:
        tune.report(dict(metrics) | start_of(), checkpoint=checkpoint)
    elif place.kind == TRAIN:
        ray.train.report(dict(metrics), checkpoint=checkpoint)


def finish() -> "Record | None":
    """The training has ended: register it, once. Trainables of `WarmStart` do it by themselves."""
    return end(finished=True)


# -- for trainables ---------------------------------------------------------------------------------------


def note(metrics: Mapping[str, Any], model: Any = None, *, checkpoint: Any = None) -> None:
    """Tell the keeper alone."""
    with _LOCK:
        if _open is None:
            if model is None:
                return
            _begin(_sent.training(None, None, {}), model, _place or here(), resumed=True)
        if _open is None:
            return
        _open.metrics, _open.reports = dict(metrics), _open.reports + 1
        _open.warm.report(metrics, _open.model if model is None else model, _open.reports)
        if checkpoint is not None and _open.place.rank == 0:
            describe_checkpoint(checkpoint.path)
        if not _sent.told and _open.warm.run is not None:  # this report may be the last: nobody would say
            _open.warm.run.flush()


def describe_checkpoint(folder: str) -> None:
    """Write into the folder of a checkpoint how good the model in it is, as far as that is known."""
    run = _open.warm.run if _open is not None else None
    if _open is None or run is None or not _open.metrics:
        return
    with _open.warm.client.faults.guard("The checkpoint cannot be registered", ()):
        metrics = numbers(_open.metrics)
        metric = run.measure(metrics)
        if metric is not None:
            say(folder, run.registration(metric, metrics, finished=False))


def start_of() -> dict[str, Any]:
    """How the training started, for results of Tune."""
    opened = _open
    answer = opened.warm.answer if opened is not None else None
    if opened is None or answer is None:
        return {}
    return {
        "modelkeeper": {
            "start": "cold" if answer.cold else "warm",
            "parent": answer.parent or "",
            "parents": ", ".join(parent.id for parent in answer.parents),
            "similarity": answer.similarity or 0.0,
            "time": opened.reports + (1 - answer.advice.schedule) * _sent.longest,
        }
    }


def resume() -> None:
    """What `warm_start` did was undone: the model has the weights of a checkpoint."""
    with _LOCK:
        if _open is not None:
            _begin(_open.warm, _open.model, _open.place, resumed=True)


def end(*, finished: bool) -> "Record | None":
    """The training has ended, by itself or not."""
    global _open
    with _LOCK:
        opened, _open = _open, None
        if opened is None:
            return None
        return opened.warm.finish() if finished else opened.warm.stop()


def _begin(warm: WarmTraining, model: Any, place: Place, *, resumed: bool = False) -> "Answer | None":
    global _open
    with _LOCK:
        end(finished=False)
        named = {} if "name" in warm.meta or not place.name else {"name": place.name}
        answer = warm.begin(model, key=place.key, resumed=resumed or place.resumed, meta=named)
        _open = _Open(warm, model, place)
        return answer
