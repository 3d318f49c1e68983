"""ModelKeeperClient: the paper's workflow as users write it, and what happens when something is wrong."""

import html
import importlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from modelkeeper import ModelKeeperClient
from modelkeeper.client import KeeperWarning
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import (
    CorruptWeights,
    InvalidMeta,
    InvalidMetric,
    InvalidSetting,
    InvalidWeights,
    ModelKeeperError,
    ModelRefused,
    UnknownFramework,
    UnknownModel,
    ZooUnusable,
)
from modelkeeper.meta import Query
from modelkeeper.warmstart.answer import Answer, Rival
from modelkeeper.zoo.records import DAMAGED, Viewer

META = {"data": "Flowers102", "task": "classification"}


def net(width: int = 8, classes: int = 5, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes)
    )


def far(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))


def state(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def give(client: ModelKeeperClient, model: nn.Module, accuracy: float = 0.9, **more: Any) -> Any:
    return client.register_model(model, meta=META | {"accuracy": accuracy} | more)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ModelKeeperClient]:
    with ModelKeeperClient(tmp_path / "zoo", on_error="raise", user="ann") as opened:
        yield opened


def test_the_snippet_of_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As printed, for both ways to say where the zoo is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MODELKEEPER_URI", raising=False)
    model, acc = net(), 0.93
    for arguments in ((), ("zoo/",), (":memory:",)):
        client = ModelKeeperClient(*arguments)

        warmed, meta = client.query_for_model(
            model, meta={"data": "Flowers102", "task": "classification", "tags": None}
        )
        client.register_model(
            warmed, meta={"data": "Flowers102", "task": "classification", "accuracy": acc, "tags": None}
        )
        client.stop()

        assert warmed is model
        assert meta["parent"] is None
        _, again = client.query_for_model(net(seed=1), meta=META)
        assert again.similarity == 1.0
        client.stop()
    assert (tmp_path / "home" / ".modelkeeper" / "catalog.db").exists()
    assert (tmp_path / "zoo" / "catalog.db").exists()
    assert not (tmp_path / ":memory:").exists()
    monkeypatch.setenv("MODELKEEPER_URI", str(tmp_path / "by variable"))
    give(ModelKeeperClient(), model)
    assert (tmp_path / "by variable" / "catalog.db").exists()


def test_a_twin_takes_all_weights_and_computes_the_same(client: ModelKeeperClient) -> None:
    parent = net(seed=1)
    record = give(client, parent, 0.8, name="first")
    model = net(seed=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parameters = list(model.parameters())
    warmed, meta = client.query_for_model(model, meta=META)
    assert warmed is model
    assert same(state(model), state(parent))
    assert all(a is b for a, b in zip(parameters, model.parameters(), strict=True))
    assert optimizer.param_groups[0]["params"][0] is next(model.parameters())
    assert (meta.parent, meta.parent_name, meta.similarity, meta.exact) == (record.id, "first", 1.0, True)
    assert (meta.metric, meta.value, meta.accuracy, meta.data) == ("accuracy", 0.8, 0.8, "Flowers102")
    assert meta.transferred == 100
    assert client.coordinator.show(record.id).hits == 1


def test_wider_and_deeper_models_compute_what_the_parent_computes(client: ModelKeeperClient) -> None:
    parent = net(8, seed=1)
    give(client, parent)
    child, meta = client.query_for_model(net(12, seed=2), meta=META)
    given = torch.randn(7, 6)
    assert meta.exact
    assert "widened" in meta.actions
    torch.testing.assert_close(child(given), parent(given))


def test_the_head_stays_fresh_on_other_data(client: ModelKeeperClient) -> None:
    parent = net(seed=1)
    give(client, parent)
    child = net(seed=2)
    fresh = state(child)
    client.query_for_model(child, meta=META | {"data": "CIFAR-10"})
    after = state(child)
    assert torch.equal(after["0.weight"], parent.state_dict()["0.weight"])
    assert torch.equal(after["4.weight"], fresh["4.weight"])
    assert torch.equal(after["4.bias"], fresh["4.bias"])


def test_a_dry_run_changes_nothing(client: ModelKeeperClient) -> None:
    record = give(client, net(seed=1))
    model = net(seed=2)
    before, log = state(model), client.coordinator.log()
    warmed, meta = client.query_for_model(model, meta=META, dry_run=True)
    assert warmed is model
    assert same(state(model), before)
    assert meta.parent == record.id
    assert meta.dry_run
    assert "would start warm" in str(meta)
    assert client.coordinator.show(record.id).hits == 0
    assert client.coordinator.log() == log
    assert give(client, model, 0.91).parent == "", "it did not start from there"


def test_a_cold_start_is_an_answer(client: ModelKeeperClient) -> None:
    model = net(seed=2)
    before = state(model)
    for reason in ("the zoo is empty", "minimum similarity"):
        warmed, meta = client.query_for_model(model, meta=META | {"minimum_similarity": 0.9})
        assert warmed is model
        assert meta.cold
        assert meta["parent"] is None
        assert reason in meta.reason
        assert same(state(model), before)
        assert f"Cold start: {meta.reason}" in " ".join(str(meta).split())
        give(client, far())


def test_lineage(client: ModelKeeperClient) -> None:
    first = give(client, net(seed=1), name="first")
    model, _ = client.query_for_model(net(seed=2), meta=META)
    second = give(client, model, 0.92, name="second")
    assert (second.parent, second.similarity) == (first.id, 1.0)
    third = give(client, net(seed=3), 0.93, name="third", parent="second")
    assert third.parent == second.id
    fourth = give(client, net(seed=4), 0.93, name="fourth", parent=first.id)
    assert fourth.parent == first.id
    tree = client.coordinator.tree("second")
    assert [each.name for each in tree.ancestors] == ["first"]
    assert [each.record.name for each in tree.descendants] == ["third"]
    with pytest.raises(UnknownModel):
        give(client, net(seed=5), parent="nobody")
    client.coordinator.remove("first")
    assert [each.name for each in client.coordinator.tree("third").ancestors] == ["second", "first"]


def test_which_parents_are_taken(client: ModelKeeperClient) -> None:
    models: list[tuple[str, float, dict[str, Any]]] = [
        ("good", 0.9, {}),
        ("better", 0.95, {}),
        ("tagged", 0.88, {"tags": ["small", "fast"]}),
        ("other task", 0.99, {"task": "detection"}),
    ]
    ids = {
        name: give(client, net(seed=seed), accuracy, name=name, **more).id
        for seed, (name, accuracy, more) in enumerate(models)
    }

    def parent(**meta: Any) -> str:
        return client.query_for_model(net(seed=9), meta=META | meta, dry_run=True)[1].parent_name

    assert parent() == "better"
    assert parent(tags=["small"]) == parent(tags="fast") == "tagged"
    assert parent(tags=["small", "slow"]) == ""
    assert parent(task="detection") == "other task"
    assert parent(parents=["good"]) == parent(parents=ids["good"]) == "good"
    assert parent(parents=["nobody"]) == "better", "preferred, not demanded"
    assert parent(exclude=["better"]) == parent(exclude=[ids["better"]]) == "good"
    assert parent(exclude=["better", "good", "tagged"]) == ""
    assert parent(policy="buckets") == "better"
    wide = net(64, seed=8)
    near = client.query_for_model(wide, meta=META, dry_run=True)[1].similarity
    assert near is not None
    assert near < 1
    assert client.query_for_model(wide, meta=META | {"minimum_similarity": near + 0.01}, dry_run=True)[1].cold


def test_lower_is_better(client: ModelKeeperClient) -> None:
    said = {"data": "wikitext", "task": "language"}
    for seed, perplexity in enumerate((30.0, 20.0, 40.0)):
        meta = said | {"metrics": {"perplexity": perplexity}, "name": f"ppl {perplexity:g}"}
        client.register_model(net(seed=seed), meta=meta)
    _, answer = client.query_for_model(net(seed=9), meta=said)
    assert (answer.parent_name, answer.metric, answer.value, answer.accuracy) == (
        "ppl 20", "perplexity", 20.0, None,
    )  # fmt: skip


def test_who_may_see_a_parent(client: ModelKeeperClient) -> None:
    from modelkeeper.frontends.torch import describe

    give(client, net(seed=1), 0.9, name="public")
    give(client, net(seed=2), 0.92, name="project", visibility="project", project="p")
    give(client, net(seed=3), 0.94, name="private", visibility="private")
    graph = describe(net())
    assert isinstance(client.coordinator, LocalCoordinator)
    for record in client.coordinator.models():
        as_in_a_service = client.coordinator.zoo.catalog.update
        as_in_a_service(record.id, owner_id="ann", project_id=record.project)
    for viewer, expected in (
        (None, "private"),
        (Viewer("ann"), "private"),
        (Viewer("bob", ("p",)), "project"),
        (Viewer("bob"), "public"),
    ):
        answer = client.coordinator.query(graph, Query(task="classification"), viewer=viewer).answer
        assert answer.parent_name == expected
        assert expected == "private" or "private" not in {rival.name for rival in answer.runners_up}


class Tied(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed, self.out = nn.Embedding(11, 6), nn.Linear(6, 11, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.out(self.embed(tokens))
        return found


def test_tied_weights_and_bfloat16(client: ModelKeeperClient, tmp_path: Path) -> None:
    parent, child, tokens = Tied(1), Tied(2), torch.arange(4)[None]
    record = client.register_model(parent, META | {"accuracy": 0.9}, example_inputs=(tokens,))
    _, meta = client.query_for_model(child, META, example_inputs=(tokens,))
    assert record is not None
    assert meta.parent == record.id
    assert child.out.weight is child.embed.weight
    assert torch.equal(child.embed.weight, parent.embed.weight)

    half, other = net(seed=1).to(torch.bfloat16), net(seed=2).to(torch.bfloat16)
    give(client, half, name="half")
    _, meta = client.query_for_model(other, META)
    assert meta.parent_name == "half"
    assert same(state(other), state(half))
    whole = net(seed=3)
    client.query_for_model(whole, META | {"parents": "half"})
    weight = whole.get_parameter("0.weight")
    assert weight.dtype == torch.float32
    assert torch.equal(weight, half.get_parameter("0.weight").float())


def test_a_folder_can_be_used_without_us(client: ModelKeeperClient, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    model = net(seed=1)
    record = give(client, model, name="<b>bold</b>", tags=["a: b"])
    folder = tmp_path / "zoo" / "models" / record.id
    assert same(load_file(folder / "model.safetensors"), state(model))
    config = json.loads((folder / "config.json").read_text())
    assert (config["id"], config["checksum"], config["name"]) == (record.id, record.checksum, "<b>bold</b>")
    card = (folder / "README.md").read_text()
    assert "<b>" not in card
    assert '- "a: b"' in card


# -- wrong use --------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_error", ["cold", "raise"])
def test_wrong_use_always_raises(tmp_path: Path, on_error: str) -> None:
    client = ModelKeeperClient(tmp_path, on_error=on_error)
    model = net()
    asked: list[tuple[Any, type[ModelKeeperError], str]] = [
        ({"dat": "x"}, InvalidMeta, "did you mean 'data'"),
        ({"data": 5}, InvalidMeta, "must be text"),
        ({"tags": 7}, InvalidMeta, "list of names"),
        ({"accuracy": 0.9}, InvalidMeta, "accuracy"),
        ({"minimum_similarity": 2}, InvalidMeta, "from 0 to 1"),
        ({"policy": "best"}, InvalidMeta, "buckets"),
        ([], InvalidMeta, "give a dict"),
    ]
    for meta, error, text in asked:
        with pytest.raises(error, match=text):
            client.query_for_model(model, meta=meta)
    said: list[tuple[dict[str, Any], type[ModelKeeperError], str]] = [
        (META, InvalidMetric, "missing"),
        (META | {"accuracy": "high"}, InvalidMetric, "no number"),
        (META | {"acuracy": 0.9}, InvalidMeta, "did you mean 'accuracy'"),
        (META | {"accuracy": 0.9, "visibility": "secret"}, InvalidMeta, "private, project, public"),
        (META | {"accuracy": 0.9, "name": "two\nlines"}, InvalidMeta, "printable"),
    ]
    for meta, error, text in said:
        with pytest.raises(error, match=text):
            client.register_model(model, meta=meta)
    for method in (client.query_for_model, client.register_model):
        with pytest.raises(UnknownFramework, match="dict"):
            method({}, meta=META | ({"accuracy": 0.9} if method == client.register_model else {}))
    with torch.no_grad():
        model.get_parameter("0.weight")[0, 0] = float("nan")
    if on_error == "raise":  # it is an outcome of a training, and an error only if that is wanted
        with pytest.raises(InvalidWeights, match="NaN"):
            give(client, model)
    assert client.coordinator.models() == []
    client.stop()


def test_wrong_settings_raise_at_once(tmp_path: Path) -> None:
    for given in (
        {"on_error": "ignore"}, {"capacityy": 5}, {"home": "x"}, {"policy": "best"}, {"admission": "maybe"},
        {"capacity": "many"}, {"capacity": 0}, {"minimum_similarity": float("nan")}, {"grace": float("nan")},
        {"half_life": 0}, {"threads": -1},
    ):  # fmt: skip
        with pytest.raises(InvalidSetting):
            ModelKeeperClient(tmp_path, **given)
    assert list(tmp_path.iterdir()) == []


# -- what is broken ---------------------------------------------------------------------------------


def file_instead_of_folder(home: Path) -> None:
    home.write_text("no folder")


def folder_instead_of_catalog(home: Path) -> None:
    (home / "catalog.db").mkdir(parents=True)


def junk_instead_of_catalog(home: Path) -> None:
    home.mkdir()
    (home / "catalog.db").write_bytes(b"junk" * 1000)


def file_instead_of_models(home: Path) -> None:
    home.mkdir()
    (home / "models").touch()


@pytest.mark.parametrize(
    "spoil",
    [file_instead_of_folder, folder_instead_of_catalog, junk_instead_of_catalog, file_instead_of_models],
)
def test_a_broken_home_is_a_cold_start_and_a_warning(tmp_path: Path, spoil: Any) -> None:
    spoil(tmp_path / "zoo")
    model = net()
    before = state(model)
    client = ModelKeeperClient(tmp_path / "zoo")
    if spoil is file_instead_of_models:  # nobody looks there before there are models
        with pytest.warns(KeeperWarning, match=r"The model was not registered\. ZooUnusable"):
            assert give(client, model) is None
        return
    with pytest.warns(KeeperWarning, match="The model starts cold") as warned:
        warmed, meta = client.query_for_model(model, meta=META)
    assert warned[0].filename == __file__
    assert warmed is model
    assert same(state(model), before)
    assert meta.cold
    assert re.search("the keeper could not help: (ZooUnusable|CorruptCatalog)", meta.reason)
    assert ".." not in str(meta)
    with pytest.warns(KeeperWarning, match="The model was not registered"):
        assert give(client, model) is None
    strict = ModelKeeperClient(tmp_path / "zoo", on_error="raise")
    with pytest.raises(ZooUnusable):
        strict.query_for_model(model, meta=META)
    with pytest.raises(ZooUnusable):
        give(strict, model)


def missing(path: Path) -> None:
    path.unlink()


def missing_folder(path: Path) -> None:
    shutil.rmtree(path.parent)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def emptied(path: Path) -> None:
    os.truncate(path, 0)


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def overwritten(path: Path) -> None:
    path.write_bytes(b"\xff" * path.stat().st_size)


@pytest.mark.parametrize("damage", [missing, missing_folder, cut, emptied, flipped, overwritten])
def test_a_damaged_parent_is_taken_out_and_the_next_one_is_taken(tmp_path: Path, damage: Any) -> None:
    with ModelKeeperClient(tmp_path) as writer:
        best = give(writer, net(seed=1), 0.95, name="best")
        next_best = give(writer, net(16, seed=2), 0.8, name="next")  # in another bucket
    damage(tmp_path / "models" / best.id / "model.safetensors")
    with ModelKeeperClient(tmp_path, on_error="raise") as client:
        model = net(seed=3)
        _, meta = client.query_for_model(model, meta=META)
        assert meta.parent == next_best.id
        assert "best could not be read and was taken out" in meta.warnings[0]
        record = client.coordinator.show(best.id)
        assert record.state == DAMAGED
        assert record.reason
        assert client.coordinator.log(action="damaged")[0].model == best.id
        assert client.query_for_model(net(), meta=META)[1].warnings == ()
        damage(tmp_path / "models" / next_best.id / "model.safetensors")
    with ModelKeeperClient(tmp_path, on_error="raise") as client:
        model = net(seed=3)
        before = state(model)
        _, meta = client.query_for_model(model, meta=META)
        assert meta.cold
        assert len(meta.warnings) == 1
        assert "next" not in meta.reason
        assert same(state(model), before)


def test_gc_finds_damage(tmp_path: Path) -> None:
    with ModelKeeperClient(tmp_path) as client:
        cut_one, flipped_one = give(client, net(seed=1)), give(client, net(seed=2), 0.91)
        cut(tmp_path / "models" / cut_one.id / "model.safetensors")
        flipped(tmp_path / "models" / flipped_one.id / "model.safetensors")
        assert client.coordinator.gc().damaged == (cut_one.id,)
        assert client.coordinator.gc(verify=True).damaged == (flipped_one.id,)
        coordinator = ModelKeeperClient(tmp_path).coordinator
        assert isinstance(coordinator, LocalCoordinator)
        with pytest.raises(CorruptWeights):
            coordinator.zoo.weights(flipped_one)


# -- training ---------------------------------------------------------------------------------------


def test_training_registers_on_a_clean_exit(client: ModelKeeperClient) -> None:
    first = give(client, net(seed=1), name="first", tags=["t", "u"])
    model = net(seed=2)
    with client.training(model, META | {"name": "mine", "exclude": ["nobody"], "tags": ["t"]}) as run:
        assert run.model is model
        assert run.answer.parent == first.id
        run.report(accuracy=0.3)
        run.report(accuracy=0.97, val_loss=0.1)
    assert run.record is not None
    assert client.coordinator.show("mine") == run.record
    assert (run.record.value, run.record.parent, run.record.tags) == (0.97, first.id, ("t",))
    assert run.record.metrics == {"accuracy": 0.97, "val_loss": 0.1}


def test_training_that_fails_registers_nothing(client: ModelKeeperClient) -> None:
    def diverge() -> None:
        with client.training(net(), META) as run:
            run.report(accuracy=0.9)
            raise RuntimeError("diverged")

    with pytest.raises(RuntimeError, match="diverged"):
        diverge()
    assert client.coordinator.models() == []
    with pytest.warns(KeeperWarning, match="never called") as warned, client.training(net(), META):
        pass
    assert warned[0].filename == __file__
    with pytest.warns(KeeperWarning, match="never called"), client.training(net(), META) as run:
        run.report(accuracy=float("nan"))
    with pytest.raises(InvalidMetric), client.training(net(), META) as run:
        run.report(accuracy=-3)
    for wrong in ({"dta": "x"}, {"visibility": "x"}, {"policy": "x"}):
        with pytest.raises(InvalidMeta), client.training(net(), META | wrong):
            pytest.fail("a typo is said before the training")
    assert client.coordinator.models() == []


# -- admission and retention ------------------------------------------------------------------------


def test_outliers_are_refused_or_kept_from_lending(tmp_path: Path) -> None:
    with ModelKeeperClient(tmp_path, on_error="raise") as client:
        for seed in range(5):
            give(client, net(seed=seed), 0.9 + seed / 1000)
        with pytest.raises(ModelRefused, match="spreads worse than the median of 5 peers"):
            give(client, net(seed=9), 0.1)
        assert "refused" in {event.action for event in client.coordinator.log()}
    with ModelKeeperClient(tmp_path) as client, pytest.warns(KeeperWarning, match="was not registered"):
        assert give(client, net(seed=9), 0.1) is None
    with ModelKeeperClient(tmp_path, admission="not_a_parent") as client:
        record = give(client, net(seed=9), 0.1, name="bad")
        assert record.state == "not_a_parent"
        assert "spreads worse" in record.reason
        _, meta = client.query_for_model(net(), meta=META | {"parents": ["bad"]})
        assert meta.parent_name != "bad"


def test_too_large_for_the_zoo(tmp_path: Path) -> None:
    with ModelKeeperClient(tmp_path, capacity="1kB") as client, pytest.warns(KeeperWarning, match="capacity"):
        give(client, net(64))


# -- threads and processes --------------------------------------------------------------------------


@pytest.mark.parametrize("uri", ["zoo", ":memory:"])
def test_threads_share_one_client(tmp_path: Path, uri: str) -> None:
    client = ModelKeeperClient(tmp_path / uri if uri == "zoo" else uri, on_error="raise", admission="off")

    def work(seed: int) -> Any:
        record = give(client, net(8 + seed % 3, seed=seed), 0.5 + seed / 100)
        _, meta = client.query_for_model(net(8, seed=seed + 100), meta=META)
        return record.id, meta.cold

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(work, range(12)))
    assert not any(cold for _, cold in done)
    assert {record.id for record in client.coordinator.models()} == {key for key, _ in done}
    client.stop()


def test_a_client_works_on_both_sides_of_a_fork(client: ModelKeeperClient) -> None:
    give(client, net(seed=1), name="before")
    client.query_for_model(net(seed=2), meta=META)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            _, meta = client.query_for_model(net(seed=3), meta=META)
            give(client, net(seed=4), 0.95, name="in the child")
            os._exit(0 if meta.parent_name == "before" else 2)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    _, meta = client.query_for_model(net(seed=5), meta=META)
    assert meta.parent_name == "in the child"


# -- the answer -------------------------------------------------------------------------------------

EVIL = '<script>alert("&")</script> [red]'


def test_the_answer_reads_like_a_mapping(client: ModelKeeperClient) -> None:
    give(client, net(seed=1), name="one")
    give(client, net(seed=2), 0.8, name="two")
    _, meta = client.query_for_model(net(), meta=META)
    assert isinstance(meta, Mapping)
    assert dict(meta) == dict(meta.items()) == {key: meta[key] for key in meta}
    assert len(meta) == len(list(meta)) == len(meta.keys()) == len(meta.values())
    assert "parent" in meta
    assert "nonsense" not in meta
    assert (meta.get("cold"), meta.get("nonsense", 5), {**meta}["parent_name"]) == (False, 5, "one")
    with pytest.raises(KeyError):
        meta["nonsense"]
    plain = json.loads(json.dumps(meta.to_dict()))
    assert (plain["parent_name"], plain["accuracy"], plain["cold"]) == ("one", 0.9, False)
    assert [rival["name"] for rival in plain["runners_up"]] == ["two"]
    assert msgspec.json.decode(msgspec.json.encode(meta), type=Answer) == meta
    assert {"describe", "prepare", "search", "plan", "read", "load"} <= meta.seconds.keys()


def test_the_answer_prints_as_a_report() -> None:
    rival = Rival(id="1" * 16, name=EVIL, similarity=0.5, metric="accuracy", value=0.5, why=EVIL)
    answer = Answer(
        parent="0" * 16, parent_name=EVIL, reason=EVIL, similarity=0.75, metric=EVIL, value=0.9, data=EVIL,
        doubts=(EVIL,), warnings=(EVIL,), runners_up=(rival,) * 7, considered=1234, seconds={"search": 0.5},
        actions={"copied": {"layers": 1, "tensors": 2, "parameters": 3, "percent": 4.5}},
    )  # fmt: skip
    for each in (answer, Answer(reason=EVIL)):
        text = str(each)
        assert "[red]" in text.replace("\n", "")
        markup = each._repr_html_()
        assert "<script" not in markup
        said = html.unescape(re.sub(r"<[^>]*>", " ", markup))
        letters = re.sub(r"[─-╿]", "", text)  # without the lines of tables; cells are folded in a terminal
        assert sorted("".join(said.split())) == sorted("".join(letters.split()))
    assert "similarity 0.750" in " ".join(str(answer).split())
    assert "and 2 more" in str(answer)
    assert "Considered 1,234 models" in str(answer)


# -- calibration ----------------------------------------------------------------------------------


def teach(client: ModelKeeperClient) -> tuple[nn.Module, torch.Tensor]:
    """A registered parent whose outputs depend on its inputs, and examples of these."""
    parent = net(16)
    examples = torch.randn(256, 6, generator=torch.Generator().manual_seed(1))
    give(client, parent)
    return parent, examples


@pytest.mark.usefixtures("unhurried")
def test_examples_bring_a_narrower_model_near_its_parent(client: ModelKeeperClient) -> None:
    parent, examples = teach(client)
    errors = {}
    for calibrate in (None, [examples]):
        model, answer = client.query_for_model(net(8, seed=3), META, calibrate=calibrate)
        with torch.no_grad():
            errors[calibrate is None] = (model(examples) - parent(examples)).square().mean().item()
        assert (answer.calibration is None) == (calibrate is None)
    assert errors[False] < errors[True] / 2
    assert answer.calibration is not None
    assert answer.calibration.kept
    assert answer["calibration"]["fitted"] >= 1
    assert "Calibrated on" in str(answer)
    assert json.dumps(answer.to_dict(), allow_nan=False)


def test_an_exact_start_is_not_calibrated(client: ModelKeeperClient) -> None:
    parent, examples = teach(client)
    model, answer = client.query_for_model(net(24, seed=3), META, calibrate=[examples])
    assert (answer.exact, answer.calibration) == (True, None)
    with torch.no_grad():
        torch.testing.assert_close(model(examples), parent(examples), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "program", [None, b"{}", b'{"format": "modelkeeper.program", "version": 99}', b"\xff"]
)
def test_without_a_usable_program_a_model_starts_warm_but_uncalibrated(
    tmp_path: Path, program: bytes | None
) -> None:
    with ModelKeeperClient(tmp_path / "zoo") as client:
        _, examples = teach(client)
        (path,) = (tmp_path / "zoo").glob("models/*/program.json")
        path.unlink() if program is None else path.write_bytes(program)
        plain, _ = client.query_for_model(net(8, seed=3), META)
        with pytest.warns(KeeperWarning, match="warm, but uncalibrated"):
            model, answer = client.query_for_model(net(8, seed=3), META, calibrate=[examples])
        assert same(state(model), state(plain))
        assert (answer.cold, answer.calibration, len(answer.warnings)) == (False, None, 1)


def test_examples_that_do_not_serve_leave_a_plain_warm_start(tmp_path: Path) -> None:
    with ModelKeeperClient(tmp_path / "zoo") as client:
        _, examples = teach(client)
        plain, _ = client.query_for_model(net(8, seed=3), META)
        for bad in (examples * float("nan"), examples[:0], examples[:, :2]):
            with pytest.warns(KeeperWarning, match="warm, but uncalibrated") as warned:
                model, answer = client.query_for_model(net(8, seed=3), META, calibrate=[bad])
            assert warned[0].filename == __file__
            assert same(state(model), state(plain))
            assert not answer.cold


# -- poor models ----------------------------------------------------------------------------------


def test_a_model_far_below_its_peers_does_not_lend(tmp_path: Path) -> None:
    """However similar it is, and though the admission had too few peers to judge by."""
    with ModelKeeperClient(tmp_path / "zoo", on_error="raise") as client:
        poor = give(client, net(8, seed=1), accuracy=0.2, name="poor")
        good = [give(client, net(width), accuracy=0.9, name=f"net{width}") for width in (14, 15, 16)]
        _, answer = client.query_for_model(net(8, seed=2), META)
        assert answer.parent in {record.id for record in good}
        lost = {rival.id: rival.why for rival in answer.runners_up}
        assert lost[poor.id] == "accuracy 0.2 is far below its peers"
        _, answer = client.query_for_model(net(8, seed=2), META | {"parents": ["poor"]})
        assert answer.parent == poor.id
        _, answer = client.query_for_model(net(8, seed=2), META | {"minimum_similarity": 0.95})
        assert answer.cold
        assert "far below its peers" in answer.reason
    with ModelKeeperClient(tmp_path / "zoo", on_error="raise", admission="off", policy="buckets") as client:
        _, answer = client.query_for_model(net(8, seed=2), META)
        assert answer.parent == poor.id


@pytest.mark.parametrize("policy", ["benefit", "buckets"])
def test_poor_models_do_not_lend_though_they_are_most_of_the_zoo(policy: str) -> None:
    with ModelKeeperClient(":memory:", on_error="raise", policy=policy) as client:
        poor = [give(client, net(8, seed=seed), accuracy=0.2, name=f"poor{seed}") for seed in range(3)]
        _, answer = client.query_for_model(net(8, seed=5), META)
        assert answer.parent in {record.id for record in poor}  # nobody knows yet that more is possible
        good = [give(client, net(width), accuracy=0.9, name=f"net{width}") for width in (14, 16)]
        _, answer = client.query_for_model(net(8, seed=5), META)
        assert answer.parent in {record.id for record in good}


def test_a_registration_runs_the_model_once_for_its_graph_and_once_for_each_size_of_its_program(
    client: ModelKeeperClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("modelkeeper.frontends.torch.describe")
    runs, record = [], module._record

    def counted(*arguments: Any, **options: Any) -> Any:
        ran = record(*arguments, **options)
        runs.append(str(ran[1]))
        return ran

    monkeypatch.setattr(module, "_record", counted)
    give(client, far())
    assert runs == ["1x3x32x32", "2x3x32x32", "3x3x32x32"]
    assert client.coordinator.show("Sequential").parameters == 122


def test_a_model_for_which_there_is_no_room_says_so(tmp_path: Path) -> None:
    client = ModelKeeperClient(tmp_path / "zoo", capacity=2000)  # for one of them
    best = client.register_model(net(), {**META, "accuracy": 0.9})
    assert best is not None
    assert best.state == "active"
    client.coordinator.pin(best.id)
    with pytest.warns(KeeperWarning, match="the zoo had no room for it"):
        record = client.register_model(net(seed=1), {**META, "accuracy": 0.5})
    assert record is not None
    assert (record.state, client.coordinator.show(record.id).state) == ("evicted", "evicted")
    client.close()
