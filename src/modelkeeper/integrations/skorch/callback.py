"""WarmStart: how does `net.fit` of skorch start warm, and keep what it trained?

    warm = WarmStart("zoo/", {"data": "digits", "task": "classification"})
    NeuralNetClassifier(Network, callbacks=[("warm", warm)]).fit(x, y)

It asks in `on_train_begin`. skorch has made the optimizer by then, which stays right: weights are written in
place, and it has not stepped yet. `partial_fit`, `warm_start=True` and nets that were loaded with their
history or their optimizer go on with what they have. scikit-learn's `clone`, GridSearchCV and their processes
copy it; each copy asks and registers for its own net.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import joblib
from skorch.callbacks import Callback

from modelkeeper.errors import InvalidSetting
from modelkeeper.integrations.warm_training import WarmTraining, Where
from modelkeeper.run import EVERY

if TYPE_CHECKING:
    from modelkeeper.warmstart.answer import Answer
    from modelkeeper.zoo.records import Record

_MARKS = ("_best", "_batch_count")  # what skorch notes beside metrics


class WarmStart(Callback):  # type: ignore[misc]  # skorch has no types
    """A callback that starts trainings warm and registers them.

    Args:
        client: Of the zoo that lends, and that keeps what was trained; or where that zoo is: a folder, an
            address. Default: as for `ModelKeeperClient`.
        meta: data, task, tags, fold; name, project, visibility; parents, exclude, most_parents,
            minimum_similarity, policy.
        module: Which module of the net, by its name without the underscore.
        folds: For a cross-validation: the data that `fit` is given is a fold of its own. Nets that were given
            the same examples lend to each other, others of the same data set do not: they may have been
            trained on what this one is scored on. Needs `data` in `meta`.
        monitor: The metric that epochs are compared by, as it is called in `net.history`. Default: of those
            that begin with valid_ the accuracy; else the only other metric; else the loss.
        mode: "min" or "max", where the name of the metric does not tell.
        keep: Of all epochs, register the "best" or the "last".
        every: Seconds between two versions that are written while the training goes on.
        register: Whether to register what was trained; False: only ask.
        example_inputs: What the module runs on, if that cannot be found from the module itself.
        query: Further arguments of `ModelKeeperClient.query_for_model`: calibrate, labels, probe ...

    Raises:
        InvalidMeta, InvalidSetting: `meta` or an argument cannot be so. Nothing is raised later.
    """

    def __init__(
        self,
        client: Where = None,
        meta: Mapping[str, Any] | None = None,
        *,
        module: str = "module",
        folds: bool = False,
        monitor: str = "",
        mode: str = "auto",
        keep: str = "best",
        every: float = EVERY,
        register: bool = True,
        example_inputs: Any = None,
        **query: Any,
    ) -> None:
        self.client, self.meta, self.module, self.folds = client, meta, module, folds
        self.monitor, self.mode, self.keep, self.every = monitor, mode, keep, every
        self.register, self.example_inputs = register, example_inputs
        self.__dict__ |= query  # parameters, as scikit-learn sees them, are attributes of their own
        self.warm_ = self._made()
        self.client = self.warm_.client  # clones share it: it may be of a zoo in memory

    def _given(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.endswith("_")}

    def _made(self) -> WarmTraining:
        if self.folds and not (self.meta or {}).get("data"):
            raise InvalidSetting("folds", "True", 'say of which data set: {"data": "digits"}')
        own = ("module", "folds")
        return WarmTraining(**{name: value for name, value in self._given().items() if name not in own})

    @property
    def answer_(self) -> "Answer | None":
        """What the keeper did for the last training; None before it."""
        return self.warm_.answer

    @property
    def record_(self) -> "Record | None":
        """What is in the zoo of the last training."""
        return self.warm_.record

    def set_params(self, **params: Any) -> "WarmStart":
        """Change arguments, as scikit-learn does: callbacks__warm__meta={...}."""
        super().set_params(**params)
        self.warm_ = self._made()
        return self

    def __sklearn_clone__(self) -> "WarmStart":
        return type(self)(**self._given())

    # -- hooks: skorch calls them with the net ---------------------------------------------------

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:  # noqa: N803
        """When `fit` or `partial_fit` begins."""
        model = getattr(net, f"{self.module}_")
        meta = {}
        with self.warm_.client.faults.guard("Other folds may lend to this one", ()):
            meta = {"fold": joblib.hash((X, y))} if self.folds else {}
        self.warm_.begin(model, resumed=self.warm_.knows(model) or _has_trained(net), meta=meta)

    def on_epoch_end(self, net: Any, *args: Any, **kwargs: Any) -> None:
        """After each epoch and its validation."""
        epoch = net.history[-1]
        measured = {
            name: value
            for name, value in epoch.items()
            if name == self.monitor or (name.startswith("valid_") and not name.endswith(_MARKS))
        }
        self.warm_.report(measured, getattr(net, f"{self.module}_"), step=epoch["epoch"])

    def on_train_end(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:  # noqa: N803
        """When it has ended, early or not; skorch takes Ctrl-C for an end, too."""
        self.warm_.finish()


def _has_trained(net: Any) -> bool:
    """Has a net trained before, here or where it was loaded from?"""
    optimizers = [getattr(net, f"{name}_", None) for name in net._optimizers]
    return len(net.history) > 0 or any(getattr(optimizer, "state", None) for optimizer in optimizers)
