"""WarmStart in real trainings of skorch, and in searches of scikit-learn over them."""

import pickle
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")
skorch: Any = pytest.importorskip("skorch")

from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402

from modelkeeper import KeeperWarning, ModelKeeperClient  # noqa: E402
from modelkeeper.errors import InvalidMeta, InvalidSetting  # noqa: E402
from modelkeeper.integrations import skorch as integration  # noqa: E402

nn = torch.nn
WarmStart: Any = integration.WarmStart
ROOT = Path(__file__).parents[3]
META = {"data": "halves", "task": "classification"}
X = np.random.default_rng(0).random((60, 6)).astype("float32")
Y = (X.sum(1) > 3).astype("int64")


class Network(nn.Module):  # type: ignore[misc,name-defined]
    """Logits of two classes."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, x: Any) -> Any:
        return self.layers(x)


def net(warm: Any, **more: Any) -> Any:
    given = {"max_epochs": 2, "lr": 0.0, "verbose": 0, "criterion": nn.CrossEntropyLoss} | more
    return skorch.NeuralNetClassifier(Network, callbacks=[("warm", warm)], **given)


@pytest.fixture
def client() -> Any:
    return ModelKeeperClient(":memory:", on_error="raise", admission="off", minimum_benefit=0.0)


def test_a_net_starts_warm_and_is_registered(client: Any) -> None:
    first, second = WarmStart(client, META, every=0), WarmStart(client, META, every=0)
    parent = net(first).fit(X, Y)
    child = net(second, module__width=12).fit(X, Y)
    assert first.answer_.cold
    assert second.answer_.exact
    np.testing.assert_allclose(child.predict_proba(X), parent.predict_proba(X), atol=1e-6)
    record = second.record_
    assert (record.name, record.metric, record.finished) == ("Network", "accuracy", True)
    assert record.value == pytest.approx(max(child.history[:, "valid_acc"]))
    assert record.parent == first.record_.id
    assert client.coordinator.count() == 2


def test_what_goes_on_is_not_asked_for_and_what_begins_anew_is(client: Any, tmp_path: Path) -> None:
    warm = WarmStart(client, META)
    trained = net(warm, lr=0.1).fit(X, Y)
    trained.partial_fit(X, Y)
    assert "not asked" in warm.answer_.reason
    assert client.coordinator.count() == 1
    trained.save_params(f_params=tmp_path / "net.pt", f_history=tmp_path / "history.json")
    loaded = net(later := WarmStart(client, META)).initialize()
    loaded.load_params(f_params=tmp_path / "net.pt", f_history=tmp_path / "history.json")
    loaded.partial_fit(X, Y)
    assert "not asked" in later.answer_.reason
    trained.fit(X, Y)
    assert not warm.answer_.cold


def test_clones_share_the_client_and_parameters_can_be_set(client: Any) -> None:
    warm = WarmStart(client, META, monitor="valid_loss", calibrate=None)
    twin = clone(net(warm))
    copied = dict(twin.callbacks)["warm"]
    assert copied is not warm
    assert copied.client is client
    twin.set_params(callbacks__warm__meta=META | {"name": "twin"}).fit(X, Y)
    assert dict(twin.callbacks_)["warm"].record_.name == "twin"
    assert dict(twin.callbacks_)["warm"].record_.metric == "loss"
    assert pickle.loads(pickle.dumps(WarmStart("zoo", META))).meta == META
    with pytest.raises(InvalidMeta):
        twin.set_params(callbacks__warm__meta={"dat": 1})


@pytest.mark.parametrize("folds", [True, False])
def test_folds_of_a_cross_validation_do_not_lend_to_each_other(client: Any, folds: bool) -> None:
    search = GridSearchCV(
        net(WarmStart(client, META, folds=folds), train_split=skorch.dataset.ValidSplit(3)),
        {"module__width": [8, 12]},
        cv=2,
        refit=False,
        error_score="raise",
    )
    search.fit(X, Y)
    known = {record.id: record for record in client.coordinator.models()}
    assert len(known) == 4
    lent = [(known[record.parent].fold, record.fold) for record in known.values() if record.parent]
    assert len(lent) == (2 if folds else 3)
    assert all(a == b for a, b in lent)
    assert len({record.fold for record in known.values()}) == (2 if folds else 1)


@pytest.mark.slow
def test_a_search_in_processes(tmp_path: Path) -> None:
    search = GridSearchCV(
        net(WarmStart(tmp_path, META, folds=True), max_epochs=1),
        {"module__width": [8]},
        cv=2,
        n_jobs=2,
        refit=False,
        error_score="raise",
    )
    search.fit(X, Y)
    with ModelKeeperClient(tmp_path) as client:
        assert client.coordinator.count() == 2


def test_nothing_stops_a_training(tmp_path: Path) -> None:
    (tmp_path / "zoo").write_text("no folder")
    with pytest.warns(KeeperWarning) as seen:
        net(WarmStart(tmp_path / "zoo", META)).fit(X, Y)
    assert "starts cold" in str(seen[0].message)
    with pytest.raises(InvalidSetting, match="data set"):
        WarmStart(tmp_path, folds=True)


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "skorch_fit.py"), run_name="example")
    example["main"](["--epochs", "1", "--folds", "2"])
    assert "warm: " in capsys.readouterr().out


def test_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/integrations/skorch.md").read_text()
    for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        exec(compile(block, "skorch.md", "exec"), {"__name__": "__main__"})
        assert capsys.readouterr().out.splitlines()[-1:] == re.findall(r"# -> (.*)", block)
