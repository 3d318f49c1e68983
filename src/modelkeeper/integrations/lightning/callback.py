"""WarmStart: how does `trainer.fit` start warm, and keep what it trained?

warm = WarmStart("zoo/", {"data": "digits", "task": "classification"})
trainer = Trainer(callbacks=[warm])             of `lightning` or of `pytorch_lightning`
trainer.fit(module, data)

setup, on_fit_start     asks: before optimizers and wrappers of strategies are made; if hooks of the module
                        may build the network, as soon as they have; never if a training goes on
on_validation_end       reports what validation measured, with the network
on_fit_end              registers; after an exception or Ctrl-C, what was reported stays, as unfinished
"""

import functools
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from modelkeeper.integrations.lightning.network import inputs_of, is_built_later, network_of
from modelkeeper.integrations.lightning.resuming import goes_on
from modelkeeper.integrations.warm_training import TellsOfTraining, WarmTraining, Where
from modelkeeper.run import EVERY

_PACKAGES = {"lightning": "lightning.pytorch.callbacks", "pytorch_lightning": "pytorch_lightning.callbacks"}
_IN_CHECKPOINTS = "modelkeeper"
_Callback: Any = object  # an instance derives from Callback of the package that is used: see `__new__`


class WarmStart(TellsOfTraining, _Callback):  # type: ignore[misc]
    """A callback that starts trainings warm and registers them.

    It is a Callback of `lightning`, of `pytorch_lightning`, or of both, as they have been imported when it is
    made. With strategies that start processes (ddp_spawn, ddp_fork) those have copies of it: `answer` and
    `record` of the one that you made stay None, loggers and the zoo tell.

    Args:
        client: Of the zoo that lends, and that keeps what was trained; or where that zoo is: a folder, an
            address. Default: as for `ModelKeeperClient`.
        meta: data, task, tags, fold; name, project, visibility; parents, exclude, most_parents,
            minimum_similarity, policy.
        module: The network's name in the LightningModule, e.g. "model". Default: the one child that has
            parameters, if there is just one and the LightningModule has no others; else the LightningModule.
        monitor: The metric that states of the network are compared by, as it is logged. Default: of what
            validation logs the accuracy; else the only metric; else the loss.
        mode: "min" or "max", where the name of the metric does not tell.
        keep: Of the states that were validated, register the "best" or the "last".
        every: Seconds between two versions that are written while the training goes on.
        register: Whether to register what was trained; False: only ask.
        example_inputs: What the network runs on. Default: what `example_input_array` of the LightningModule
            leads to, if it has one; else it is found from the network.
        query: Further arguments of `ModelKeeperClient.query_for_model`: calibrate, labels, probe ...

    Raises:
        InvalidMeta, InvalidSetting: `meta` or an argument cannot be so. Later, when a training begins, only
            that nothing is called `module`.
        ModuleNotFoundError: Neither package is installed.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> "WarmStart":
        kind: Any = cls
        made: WarmStart = object.__new__(_derived(kind, _callbacks_in_use()))
        return made

    def __init__(
        self,
        client: Where = None,
        meta: Mapping[str, Any] | None = None,
        *,
        module: str = "",
        monitor: str = "",
        mode: str = "auto",
        keep: str = "best",
        every: float = EVERY,
        register: bool = True,
        example_inputs: Any = None,
        **query: Any,
    ) -> None:
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
        self._module, self._monitor = module, monitor
        self._network: Any = None  # of the training under way
        self._resumes: bool | None = None  # does it go on from a checkpoint?
        self._checkpoint: dict[str, str] = {}  # what that says of it
        self._before: dict[str, Any] = {}  # metrics that were there before validation
        self._validated: set[str] = set()  # metrics that validation measures

    def __reduce__(self) -> tuple[Any, ...]:
        gone: dict[str, Any] = {
            "_network": None,
            "_resumes": None,
            "_checkpoint": {},
            "_before": {},
            "_validated": set(),
        }
        return _again, (type(self).__mro__[1], self.__dict__ | gone)

    # -- hooks: Lightning calls them with itself and the LightningModule ----------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Before the module's own `setup` and `configure_model`, optimizers and wrappers."""
        if stage == "fit":
            self._network, self._checkpoint, self._before, self._validated = None, {}, {}, set()
            self._resumes = goes_on(trainer)
            if self._resumes is False and not is_built_later(pl_module):
                self._begin(pl_module)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """After all of them."""
        if self._resumes is None:
            self._resumes = bool(trainer.ckpt_path)
        if not self._resumes:
            if self._network is None:
                self._begin(pl_module)
            self._tell(trainer)

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """When a training goes on."""
        self._checkpoint = dict(checkpoint.get(_IN_CHECKPOINTS) or {})

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """When all is in its place, also what a checkpoint held."""
        if self._network is None:
            self._begin(pl_module, resumed=True)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Before each validation."""
        if self._listens(trainer):
            self._before = dict(trainer.callback_metrics)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """After each validation: metrics that it has not measured anew may be those of the training."""
        if not self._listens(trainer):
            return
        measured = {
            name: value
            for name, value in trainer.callback_metrics.items()
            if value is not self._before.get(name) or name == self._monitor
        }
        self._before, self._validated = {}, self._validated | measured.keys()
        self._warm.report(measured, self._network, step=trainer.global_step)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """After each epoch: for who monitors what only training measures."""
        metrics = trainer.callback_metrics
        if self._monitor in metrics and self._monitor not in self._validated and self._listens(trainer):
            self._warm.report(metrics, self._network, step=trainer.global_step)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Whoever goes on from a checkpoint goes on with the same model in the zoo."""
        if self._warm.run is not None:
            checkpoint[_IN_CHECKPOINTS] = {"key": self._warm.key, "parent": self._warm.parent}

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """When a training has ended, early or not."""
        if self._network is not None:
            self._network = None
            _ = self._warm.stop() if trainer.fast_dev_run else self._warm.finish()
            trainer.strategy.barrier("modelkeeper")  # the first process tells the others what it registered

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """When a training was interrupted or has failed."""
        if self._network is not None:
            self._network = None
            self._warm.stop()

    # -----------------------------------------------------------------------------------------------

    def _begin(self, module: Any, resumed: bool = False) -> None:
        """A training begins, or goes on."""
        network = network_of(module, self._module)
        self._network = network
        with self._warm.client.faults.guard("The model starts cold", ()):
            self._warm.begin(
                network,
                key=self._checkpoint.get("key", ""),
                parent=self._checkpoint.get("parent", ""),
                resumed=resumed or self._warm.knows(network),
                example_inputs=inputs_of(module, network),
            )

    def _listens(self, trainer: Any) -> bool:
        """Is a training under way, and not only tried out?"""
        return self._network is not None and not trainer.sanity_checking and not trainer.fast_dev_run

    def _tell(self, trainer: Any) -> None:
        """Tell loggers how the training started."""
        facts = self._warm.facts()
        if facts and trainer.enable_autolog_hparams:
            for logger in trainer.loggers:
                with self._warm.client.faults.guard("A logger was not told how the model started", ()):
                    logger.log_hyperparams(facts)


def _callbacks_in_use() -> tuple[type, ...]:
    """The class Callback of each package that is imported; if none is, of the one that is installed."""
    loaded = [name for name, module in _PACKAGES.items() if module in sys.modules]
    found = loaded or [name for name in _PACKAGES if find_spec(name) is not None][:1]
    if not found:
        raise ModuleNotFoundError("Lightning is not installed: pip install 'modelkeeper[lightning]'")
    return tuple(import_module(_PACKAGES[name]).Callback for name in found)


@functools.cache
def _derived(cls: Any, callbacks: tuple[type, ...]) -> type[WarmStart]:
    """A class like `cls` that is also a Callback of these packages."""
    return type(cls.__name__, (cls, *callbacks), {"__module__": cls.__module__, "__doc__": cls.__doc__})


def _again(cls: type[WarmStart], state: dict[str, Any]) -> WarmStart:
    """A callback that was copied or pickled."""
    made = cls.__new__(cls)
    made.__dict__ |= state
    return made
