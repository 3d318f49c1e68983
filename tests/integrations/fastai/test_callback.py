"""WarmStart in real trainings of fastai."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("fastai")

from fastai.callback.schedule import *  # noqa: E402, F403 (lr_find, fine_tune: fastai adds them to Learner)
from fastai.callback.tracker import EarlyStoppingCallback  # noqa: E402
from fastai.data.core import DataLoaders  # noqa: E402
from fastai.learner import Learner  # noqa: E402
from fastai.metrics import accuracy  # noqa: E402

from modelkeeper import KeeperWarning, ModelKeeperClient  # noqa: E402
from modelkeeper.errors import InvalidMeta  # noqa: E402
from modelkeeper.integrations import fastai as integration  # noqa: E402

nn = torch.nn
WarmStart: Any = integration.WarmStart
ROOT = Path(__file__).parents[3]
META = {"data": "halves", "task": "classification"}
X = torch.rand(48, 6, generator=torch.Generator().manual_seed(0))
Y = (X.sum(1) > 3).long()


def learner(warm: Any, width: int = 8, **more: Any) -> Any:
    data = torch.utils.data.TensorDataset(X, Y)
    loaders = [torch.utils.data.DataLoader(data, batch_size=24) for _ in range(2)]
    model = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 2))
    learn = Learner(
        DataLoaders(*loaders, device="cpu"), model, nn.CrossEntropyLoss(), metrics=accuracy, cbs=warm, **more
    )
    learn.remove_cbs([cb for cb in learn.cbs if type(cb).__name__ == "ProgressCallback"])
    learn.logger = lambda *_: None
    return learn


@pytest.fixture
def client() -> Any:
    return ModelKeeperClient(":memory:", on_error="raise", admission="off", minimum_benefit=0.0)


def test_a_model_starts_warm_and_is_registered(client: Any) -> None:
    first, second = WarmStart(client, META, every=0), WarmStart(client, META, every=0)
    parent, child = learner(first), learner(second, width=12)
    parent.fit(2, lr=0.0)
    child.fit(2, lr=0.0)
    assert first.answer.cold
    assert second.answer.exact
    torch.testing.assert_close(child.model(X), parent.model(X))
    record = second.record
    assert (record.metric, record.finished, record.parent) == ("accuracy", True, first.record.id)
    assert record.value == pytest.approx(child.recorder.values[-1][-1])
    assert client.coordinator.count() == 2
    assert second.facts()["modelkeeper.start"] == "warm"


def test_what_goes_on_is_not_asked_for(client: Any, tmp_path: Path) -> None:
    warm = WarmStart(client, META)
    learn = learner(warm, path=tmp_path)
    learn.fine_tune(1, freeze_epochs=1)  # two trainings of one model
    assert "not asked" in warm.answer.reason
    assert client.coordinator.count() == 1
    learn.save("model")
    later = WarmStart(client, META)
    loaded = learner(later, path=tmp_path)
    loaded.create_opt()
    loaded.load("model", with_opt=True)
    loaded.fit(1)
    assert "not asked" in later.answer.reason
    skipping = WarmStart(client, META)
    learner(skipping).fit(2, start_epoch=1)
    assert "not asked" in skipping.answer.reason


def test_finding_a_learning_rate_and_validating_are_no_trainings(client: Any, tmp_path: Path) -> None:
    warm = WarmStart(client, META)
    learn = learner(warm, path=tmp_path)
    learn.lr_find(num_it=30, show_plot=False)
    learn.validate()
    assert warm.answer is None
    learn.fit(1)
    assert warm.record.finished
    assert client.coordinator.count() == 1


def test_an_early_stop_is_an_end_and_an_error_leaves_what_was_reported(client: Any) -> None:
    warm = WarmStart(client, META, monitor="valid_loss")
    stopping = EarlyStoppingCallback(patience=1)
    learner([warm, stopping]).fit(9, lr=0.0)
    assert warm.record.finished
    assert warm.record.metric == "loss"

    def fail(*_: Any) -> Any:
        raise ValueError("no loss")

    learn = learner(warm, width=9)
    learn.fit(1)
    learn.loss_func = fail
    with pytest.raises(ValueError, match="no loss"):
        learn.fit(1)
    assert client.coordinator.count() == 2


def test_nothing_stops_a_training(tmp_path: Path) -> None:
    (tmp_path / "zoo").write_text("no folder")
    with pytest.warns(KeeperWarning) as seen:
        learner(WarmStart(tmp_path / "zoo", META)).fit(1)
    assert "starts cold" in str(seen[0].message)
    with pytest.raises(InvalidMeta):
        WarmStart(tmp_path, {"dat": 1})


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "fastai_fit.py"), run_name="example")
    example["main"](["--epochs", "1"])
    assert "width 48, 1 epochs, warm" in capsys.readouterr().out


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/integrations/fastai.md").read_text()
    for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        exec(compile(block, "fastai.md", "exec"), {"__name__": "__main__"})
        assert capsys.readouterr().out.splitlines()[-1:] == re.findall(r"# -> (.*)", block)
