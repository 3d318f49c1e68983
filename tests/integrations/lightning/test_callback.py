"""WarmStart in real trainings of Lightning: does it ask when it should, report, register, and not disturb?"""

import copy
import os
import pickle
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
lightning: Any = pytest.importorskip("lightning.pytorch")
pytorch_lightning: Any = pytest.importorskip("pytorch_lightning")

from modelkeeper import KeeperWarning, ModelKeeperClient  # noqa: E402
from modelkeeper.errors import InvalidMeta, InvalidSetting  # noqa: E402
from modelkeeper.integrations import lightning as integration  # noqa: E402
from tests.helpers.processes import run  # noqa: E402

nn = torch.nn
WarmStart: Any = integration.WarmStart
ROOT = Path(__file__).parents[3]
META = {"data": "halves", "task": "classification"}
X = torch.rand(48, 6, generator=torch.Generator().manual_seed(0))
Y = (X.sum(1) > 3).long()
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}


def network(width: int = 8) -> Any:
    return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 2))


def loader() -> Any:
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=24)


def lit(base: Any) -> Any:
    """A LightningModule of one of the two packages."""

    class Lit(base):  # type: ignore[misc]
        def __init__(self, width: int = 8, rate: float = 0.0) -> None:
            super().__init__()
            self.net = network(width)
            self.loss = nn.CrossEntropyLoss()
            self.rate = rate
            self.at_optimizers: Any = None

        def training_step(self, batch: Any, _: int) -> Any:
            loss = self.loss(self.net(batch[0]), batch[1])
            self.log("acc", 1.0)  # of the data trained on: not to be compared by
            return loss

        def validation_step(self, batch: Any, _: int) -> None:
            logits = self.net(batch[0])
            self.log("val_acc", (logits.argmax(1) == batch[1]).float().mean())
            self.log("val_loss", self.loss(logits, batch[1]))

        def configure_optimizers(self) -> Any:
            self.at_optimizers = copy.deepcopy(self.net.state_dict())
            return torch.optim.SGD(self.parameters(), self.rate)

    return Lit


Lit = lit(lightning.LightningModule)


def fit(warm: Any, module: Any, epochs: int = 1, package: Any = lightning, **more: Any) -> Any:
    ckpt_path = more.pop("ckpt_path", None)
    trainer = package.Trainer(
        callbacks=[warm, *more.pop("callbacks", [])],
        max_epochs=epochs,
        **QUIET | {"enable_checkpointing": False, "num_sanity_val_steps": 1} | more,
    )
    trainer.fit(module, loader(), loader(), ckpt_path=ckpt_path)
    return trainer


@pytest.fixture
def client() -> Any:
    return ModelKeeperClient(":memory:", on_error="raise", admission="off", minimum_benefit=0.0)


@pytest.fixture
def zoo(client: Any) -> Any:
    """A client whose zoo has a model to start from."""
    torch.manual_seed(0)
    fit(WarmStart(client, META | {"name": "parent"}), Lit(rate=0.5), epochs=2)
    return client


@pytest.mark.parametrize("package", [lightning, pytorch_lightning])
def test_a_training_starts_warm_before_its_optimizers_and_is_registered(zoo: Any, package: Any) -> None:
    warm, module = WarmStart(zoo, META, every=0), lit(package.LightningModule)(12)
    assert isinstance(warm, package.Callback)
    trainer = fit(warm, module, epochs=2, package=package)
    assert warm.answer.exact
    assert warm.answer.parent_name == "parent"
    for name, tensor in module.net.state_dict().items():  # the rate is 0: as it started
        torch.testing.assert_close(tensor, module.at_optimizers[name])
    record = warm.record
    assert (record.name, record.finished, record.parent) == ("Sequential", True, warm.answer.parent)
    assert (record.metric, record.value) == (
        "accuracy",
        pytest.approx(float(trainer.callback_metrics["val_acc"])),
    )
    assert "acc" not in record.metrics
    assert zoo.coordinator.count() == 2
    assert warm.facts()["modelkeeper.start"] == "warm"
    assert module.net.training


def test_validating_and_testing_alone_do_nothing(zoo: Any) -> None:
    warm, module = WarmStart(zoo, META), Lit()
    before = copy.deepcopy(module.net.state_dict())
    lightning.Trainer(callbacks=warm, **QUIET).validate(module, loader(), verbose=False)
    assert warm.answer is None
    torch.testing.assert_close(module.net.state_dict(), before)
    assert zoo.coordinator.count() == 1


def test_a_second_fit_goes_on(zoo: Any) -> None:
    warm, module = WarmStart(zoo, META), Lit(12, rate=0.1)
    trainer = fit(warm, module)
    started, parent = copy.deepcopy(module.net.state_dict()), warm.answer.parent
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, loader(), loader())
    assert "not asked" in warm.answer.reason
    torch.testing.assert_close(module.at_optimizers, started)
    assert warm.record.parent == parent
    assert zoo.coordinator.count() == 2  # as one model
    fit(warm, Lit(10))
    assert not warm.answer.cold
    assert zoo.coordinator.count() == 3


def test_going_on_from_a_checkpoint_asks_nothing_and_is_the_same_model(zoo: Any, tmp_path: Path) -> None:
    warm = WarmStart(zoo, META, every=0)
    fit(warm, Lit(12, rate=0.1), enable_checkpointing=True, default_root_dir=tmp_path)
    parent = warm.answer.parent
    (path,) = tmp_path.rglob("*.ckpt")
    saved = torch.load(path, weights_only=True)
    assert saved["modelkeeper"].keys() == {"key", "parent"}
    assert not [key for key in saved["callbacks"] if "WarmStart" in key]
    later, module = WarmStart(zoo, META, every=0), Lit(12, rate=0.1)
    fit(later, module, epochs=2, ckpt_path=path)
    assert "not asked" in later.answer.reason
    assert (later.record.id, later.record.parent) != (warm.record.id, "")
    assert later.record.parent == parent
    assert zoo.coordinator.count() == 2
    plain = lightning.Trainer(max_epochs=2, **QUIET | {"enable_checkpointing": False})
    plain.fit(Lit(12), loader(), loader(), ckpt_path=path)  # without the callback


def test_where_lightning_does_not_tell_early_whether_it_resumes_it_is_asked_later(
    zoo: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["modelkeeper.integrations.lightning.callback"]
    monkeypatch.setattr(module, "goes_on", lambda _: None)
    warm = WarmStart(zoo, META)
    fit(warm, Lit(12), enable_checkpointing=True, default_root_dir=tmp_path)
    assert warm.answer.exact
    (path,) = tmp_path.rglob("*.ckpt")
    fit(warm, Lit(12), epochs=2, ckpt_path=path)
    assert "not asked" in warm.answer.reason


@pytest.mark.parametrize("hook", ["configure_model", "setup"])
def test_a_network_that_a_hook_builds_is_waited_for(zoo: Any, hook: str) -> None:
    class Late(Lit):  # type: ignore[misc,valid-type]
        def __init__(self) -> None:
            super().__init__()
            del self.net

        def build(self, stage: str = "") -> None:
            self.net = network(12)

    setattr(Late, hook, Late.build)
    warm = WarmStart(zoo, META)
    fit(warm, Late())
    assert warm.answer.exact
    assert warm.record.parent == warm.answer.parent


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_was_reported_stays_when_a_training_fails(client: Any, error: type[BaseException]) -> None:
    class Failing(lightning.Callback):  # type: ignore[misc]
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.current_epoch == 1:
                raise error("stop")

    warm = WarmStart(client, META)
    with pytest.raises((error, SystemExit)):
        fit(warm, Lit(), epochs=3, callbacks=[Failing()])
    assert client.coordinator.count() == 1
    assert not warm.record.finished


def test_early_stopping_is_an_end(client: Any) -> None:
    warm = WarmStart(client, META, monitor="val_loss")
    stopping = lightning.callbacks.EarlyStopping("val_loss", patience=1)
    trainer = fit(warm, Lit(), epochs=9, callbacks=[stopping])
    assert trainer.current_epoch < 9
    assert warm.record.finished
    assert warm.record.metric == "loss"


def test_a_metric_of_training_counts_only_if_it_is_named(client: Any) -> None:
    warm = WarmStart(client, META, monitor="acc")
    fit(warm, Lit(), limit_val_batches=0)
    assert warm.record.value == 1.0
    silent = WarmStart(ModelKeeperClient(":memory:"), META)
    with pytest.warns(KeeperWarning, match="not registered"):
        fit(silent, Lit(), limit_val_batches=0)


def test_loggers_are_told_and_a_dry_run_registers_nothing(zoo: Any, tmp_path: Path) -> None:
    logger = lightning.loggers.CSVLogger(tmp_path)
    warm = WarmStart(zoo, META)
    fit(warm, Lit(12), logger=logger)
    assert logger.experiment.hparams["modelkeeper.parent_name"] == "parent"
    assert zoo.coordinator.count() == 2
    fit(WarmStart(zoo, META), Lit(14), fast_dev_run=True)
    assert zoo.coordinator.count() == 2


def test_mixed_precision_and_only_asking(zoo: Any) -> None:
    warm = WarmStart(zoo, META, register=False)
    fit(warm, Lit(12), precision="bf16-mixed")
    assert warm.answer.exact
    assert warm.record is None
    mixed = WarmStart(zoo, META)
    fit(mixed, Lit(16), precision="bf16-mixed")
    assert mixed.record.finished


def test_the_finder_of_learning_rates_leaves_the_model_warm(zoo: Any, tmp_path: Path) -> None:
    from lightning.pytorch.tuner import Tuner

    warm, module = WarmStart(zoo, META), Lit(12, rate=0.1)
    trainer = lightning.Trainer(
        callbacks=[warm], max_epochs=1, default_root_dir=tmp_path, **QUIET | {"enable_checkpointing": False}
    )
    Tuner(trainer).lr_find(module, loader(), loader(), attr_name="rate", num_training=5, update_attr=False)
    parent = warm.answer.parent
    trainer.fit(module, loader(), loader())
    assert warm.record.parent == parent
    assert zoo.coordinator.count() == 2


def test_what_cannot_be_so_is_said_before_a_training(client: Any) -> None:
    with pytest.raises(InvalidMeta, match="did you mean"):
        WarmStart(client, {"dat": "x"})
    with pytest.raises(InvalidSetting, match="there are net, loss"):
        fit(WarmStart(client, META, module="model"), Lit())


def test_a_broken_keeper_stops_no_training(tmp_path: Path) -> None:
    (tmp_path / "zoo").write_text("no folder")
    with pytest.warns(KeeperWarning) as seen:
        trainer = fit(WarmStart(tmp_path / "zoo", META), Lit())
    assert "starts cold" in str(seen[0].message)
    assert trainer.current_epoch == 1


def in_a_process(zoo: Path) -> tuple[Any, ...]:
    """What one of two processes of a training sees: they were started as torchrun does."""
    rank = str(torch.distributed.get_rank())
    os.environ |= {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "GROUP_RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
    }
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "test"}
    seen = []
    for width in (8, 12):
        warm, module = WarmStart(zoo, META, every=0), Lit(width, rate=0.1)
        fit(warm, module, devices=2, strategy="ddp")
        end = sum(float(tensor.sum()) for tensor in module.net.state_dict().values())
        seen.append((warm.answer.parent, warm.record.id, warm.record.parent, end))
    return tuple(seen)


@pytest.mark.slow
def test_processes_of_one_training_start_alike_and_register_once(tmp_path: Path) -> None:
    first, second = run(in_a_process, tmp_path, tmp_path / "zoo", size=2)
    assert first == second
    (_, parent, *_), (lent, _, registered, _) = first
    assert lent == registered == parent
    with ModelKeeperClient(tmp_path / "zoo") as client:
        assert client.coordinator.count() == 2


def test_it_can_be_pickled_and_derived_from(tmp_path: Path) -> None:
    warm = pickle.loads(pickle.dumps(WarmStart(tmp_path, META)))
    assert type(warm) is type(WarmStart(tmp_path, META))
    fit(warm, Lit())
    assert warm.record.finished


class Named(WarmStart):  # type: ignore[misc]
    """A user's own."""


def test_a_class_of_ones_own_is_a_callback(tmp_path: Path) -> None:
    warm = pickle.loads(pickle.dumps(Named(tmp_path, META)))
    assert isinstance(warm, (Named, lightning.Callback))


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "lightning_fit.py"), run_name="example")
    example["main"](["--epochs", "1"])
    assert "width 48, 1 epochs, warm" in capsys.readouterr().out


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/integrations/lightning.md").read_text()
    for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        exec(compile(block, "lightning.md", "exec"), {"__name__": "__main__"})
        assert capsys.readouterr().out.splitlines()[-1:] == re.findall(r"# -> (.*)", block)
