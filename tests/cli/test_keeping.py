"""The commands of the zoo, over a zoo of small models that a user might have in the current folder."""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import load_file, save_file

from modelkeeper.cli import main
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.settings import Settings, login
from modelkeeper.warmstart.race.rules import Race, Runner
from modelkeeper.weights import open_file
from modelkeeper.zoo.catalog.starts import Start
from modelkeeper.zoo.records import Event

MODELS = """
import torch
from torch import nn

print("what the user's module prints")

def net(width=8, depth=1, classes=3, seed=0):
    torch.manual_seed(seed)
    layers = [nn.Linear(4, width), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, classes))

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11)
        self.head.weight = self.table.weight

    def forward(self, ids):
        return self.head(self.table(ids))

def image():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3))

def spoiled():
    model = net()
    with torch.no_grad():
        model[0].weight[0, 0] = float("nan")
    return model
"""
META = ("--data", "flowers", "--task", "classification")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of models in the current folder; the zoo is the folder `zoo`."""
    (tmp_path / "zoo_models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "220")
    monkeypatch.setenv("MODELKEEPER_URI", "zoo")
    return "zoo_models"


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == code, result.output
    return result


def said(*arguments: str, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code).stdout)


def register(*arguments: str, accuracy: str = "0.9") -> str:
    return str(said("register", *arguments, *META, "--accuracy", accuracy)["record"]["id"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A zoo with a parent, its child and its grandchild; ids by name."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "zoo_models.py").write_text(MODELS)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        patch.setenv("MODELKEEPER_URI", "zoo")
        ids = {"parent": register("zoo_models:net", "--name", "parent", "--tag", "nightly")}
        child = ("zoo_models:net(12)", "--name", "child", "--parent", ids["parent"])
        ids["child"] = register(*child, accuracy="0.93")
        grandchild = ("zoo_models:net(12, 2)", "--name", "grandchild", "--parent", ids["child"])
        ids["grandchild"] = register(*grandchild, accuracy="91")
    return folder / "zoo", ids


@pytest.fixture
def family(made: tuple[Path, dict[str, str]], here: str) -> dict[str, str]:
    """That zoo, in the current folder."""
    shutil.copytree(made[0], "zoo")
    return made[1]


def test_what_is_registered_is_listed_and_shown(family: dict[str, str]) -> None:
    text = run("models").stdout
    assert all(each in text for each in (*family, *family.values()))
    for each in ("torch", "flowers", "classification", "accuracy 0.93", "67", "active", "3 models"):
        assert each in text, each
    assert " ago" in text or " now" in text
    shown = run("show", "child").stdout
    for each in (
        family["child"],
        "torch",
        "accuracy 0.93",
        "99",
        family["parent"],
        "models/" + family["child"],
    ):
        assert each in shown, each
    assert run("show", family["child"][:6]).stdout.splitlines()[0] == shown.splitlines()[0]


def test_json_is_what_the_python_objects_say(family: dict[str, str]) -> None:
    coordinator = LocalCoordinator(Settings(home="zoo"))

    def plain(value: object) -> object:
        return json.loads(json.dumps(value))

    assert said("models") == [plain(each.to_dict()) for each in coordinator.models()]
    shown = coordinator.show("child")
    credit = msgspec.to_builtins(coordinator.credit(shown))
    assert said("show", "child") == plain(shown.to_dict() | {"credit": credit})
    assert said("tree", "child") == plain(coordinator.tree("child").to_dict())
    assert said("stats") == plain(coordinator.stats())
    assert said("log") == [plain(each.to_dict()) for each in coordinator.log()]
    coordinator.close()


def test_models_can_be_chosen_and_sorted(family: dict[str, str], here: str) -> None:
    def names(*arguments: str) -> list[str]:
        return [each["name"] for each in said("models", *arguments)]

    assert names() == ["grandchild", "child", "parent"]
    assert names("--sort", "-value") == ["child", "grandchild", "parent"]
    assert names("--sort", "value", "--limit", "1") == ["parent"]
    assert names("--tag", "nightly") == ["parent"]
    assert names("--name", "grand") == ["grandchild"]
    assert names("--data", "flowers", "--task", "other") == []
    assert names("--state", "removed") == []
    assert "1 of them shown" in run("models", "--limit", "1").stdout
    assert "of them" not in run("models", "--limit", "0").stdout
    run("models", "--sort", "colour", code=2)


def test_a_tree_shows_ancestors_and_descendants(family: dict[str, str]) -> None:
    lines = run("tree", "child").stdout.splitlines()
    assert lines[0].startswith("parent")
    assert "child" in lines[1]
    assert "grandchild" in lines[2]
    assert lines[1].index("child") < lines[2].index("grandchild")


def test_a_model_with_several_parents_is_registered_and_shown(family: dict[str, str], here: str) -> None:
    both = ("--parent", "grandchild", "--parent", family["parent"])
    child = register(f"{here}:net(12, 3)", "--name", "both", *both)
    shown = said("show", "both")
    assert (shown["parent"], shown["more_parents"]) == (family["grandchild"], [family["parent"]])
    assert f"{family['grandchild']} and {family['parent']}" in run("show", "both").stdout
    del shown["credit"]
    below = said("tree", "parent")["descendants"]
    assert [each["record"]["name"] for each in below] == ["child", "both"]
    assert below[0]["descendants"][0]["descendants"][0] == {
        "record": shown, "ancestors": [], "descendants": [], "again": True,
        "more_ancestors": 0, "more_descendants": 0,
    }  # fmt: skip
    lines = run("tree", child).stdout.splitlines()
    assert [line.split(" (")[0].strip("│├└─ ") for line in lines] == [
        "parent", "both", "child", "grandchild", "both"
    ]  # fmt: skip
    assert lines[-1].endswith("[again]")
    assert [each["name"] for each in said("tree", "both")["ancestors"]] == ["grandchild", "parent", "child"]


def test_how_many_may_lend_is_an_option(family: dict[str, str], here: str) -> None:
    found = said("query", f"{here}:net(12)", *META, "--most-parents", "1")
    assert [each["id"] for each in found["parents"]] == [found["parent"]]
    run("query", f"{here}:net(12)", "--most-parents", "9", code=2)


@pytest.mark.parametrize("command", ["show", "tree", "remove", "pin", "unpin"])
def test_a_wrong_id_names_near_ones(family: dict[str, str], command: str) -> None:
    error = run(command, "grandchidl", code=1).stderr
    assert "no model 'grandchidl'" in error
    assert "Did you mean grandchild" in error
    typo = family["child"][:-1] + ("0" if family["child"][-1] != "0" else "1")
    assert family["child"] in run(command, typo, code=1).stderr


def test_a_query_is_answered_and_explained(family: dict[str, str], here: str) -> None:
    found = said("query", f"{here}:net(12, seed=5)", *META)
    assert found["parent"] == family["child"]
    assert found["exact"]
    assert found["dry_run"]  # nothing was asked to be written
    assert said("show", "child")["hits"] == 0
    text = run("explain", f"{here}:net(12, seed=5)", *META).stdout
    assert (found["framework"], found["runners_up"][0]["framework"]) == ("torch", "torch")
    for each in (
        f"would start warm from {login()}/child",
        "a torch model",
        "copied",
        "100",
        "not taken",
        "grandchild",
    ):
        assert each in text, each
    named = said("query", f"{here}:net(12)", *META, "--parent", "grandchild")
    assert named["parent"] == family["grandchild"]
    others = said("query", f"{here}:net(12)", *META, "--exclude", "child", "--policy", "buckets")
    assert others["parent"] in (family["parent"], family["grandchild"])


def test_a_query_by_a_graph_needs_no_framework(family: dict[str, str], here: str) -> None:
    Path("graph.json").write_bytes(run("show", "child", "--graph").stdout_bytes)
    code = """
import sys
from modelkeeper.cli import main
try:
    main(["query", "graph.json", "--dry-run", "--data", "flowers", "--json"], prog_name="modelkeeper")
finally:
    unused = {"torch", "alembic", "scipy", "sklearn", "httpx", "sqlalchemy.orm"}
    assert not unused & set(sys.modules), unused & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["parent"] == family["child"]


@pytest.mark.parametrize("command", ["stats", "models", "log"])
def test_a_light_command_imports_little(family: dict[str, str], command: str) -> None:
    code = f"""
import sys
from modelkeeper.cli import main
try:
    main(["{command}"], prog_name="modelkeeper")
finally:
    unused = {{"torch", "alembic", "scipy", "sklearn", "httpx", "sqlalchemy.orm"}}
    unused |= {{"obstore", "numpy"}}
    assert not unused & set(sys.modules), unused & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_cold_start_is_exit_code_3(family: dict[str, str], here: str) -> None:
    found = said("query", f"{here}:image", "--min-similarity", "0.9", "--output", "warm.safetensors", code=3)
    assert found["cold"]
    assert not Path("warm.safetensors").exists()
    assert "Cold start" in run("query", f"{here}:net", "--task", "other", code=3).stdout


def test_warm_weights_are_written_whole_from_a_factory(family: dict[str, str], here: str) -> None:
    found = said("query", f"{here}:net(12, 3)", *META, "--output", "warm.safetensors")
    assert not found["cold"]
    assert not found["dry_run"]
    assert said("show", found["parent"])["hits"] == 1
    tensors = load_file("warm.safetensors")
    assert {name: array.shape for name, array in tensors.items()}["4.weight"] == (12, 12)
    assert len(tensors) == 8
    parent = load_file(f"zoo/models/{found['parent']}/model.safetensors")
    np.testing.assert_array_equal(tensors["0.weight"], parent["0.weight"])
    assert [path.name for path in Path().glob(".warm*")] == []


def test_from_a_graph_only_what_is_lent_is_written(family: dict[str, str], here: str) -> None:
    Path("graph.json").write_bytes(run("show", "child", "--graph").stdout_bytes)
    found = said("query", "graph.json", "--data", "other", "--output", "warm.safetensors")
    assert found["actions"]["kept"]["tensors"] > 0
    assert 0 < len(load_file("warm.safetensors")) < 4
    run("query", "graph.json", "--data", "other", "--output", "nowhere/warm.safetensors", code=1)


def test_a_file_of_weights_is_registered_with_its_architecture(here: str) -> None:
    register(f"{here}:net(seed=3)", "--name", "first")
    folder = Path("zoo/models") / said("show", "first")["id"]
    weights = load_file(folder / "model.safetensors")
    save_file(weights, "trained.safetensors")
    assert "graph.json" in run("register", "trained.safetensors", "--accuracy", "0.9", code=1).stderr
    second = register("trained.safetensors", "--model", f"{here}:net")
    assert said("show", second)["name"] == "trained"
    assert said("show", second)["checksum"] == said("show", "first")["checksum"]
    third = register("trained.safetensors", "--model", str(folder / "graph.json"))
    assert said("show", third)["checksum"] == said("show", "first")["checksum"]
    # a folder of a zoo says itself what it is
    fourth = said("register", str(folder), "--zoo", "other")["record"]
    assert (fourth["name"], fourth["data"], fourth["value"]) == ("first", "flowers", 0.9)
    assert said("register", str(folder), "--zoo", "other", "--accuracy", "0.8")["record"]["value"] == 0.8
    # and so does a file of weights beside a graph; what they compute comes along
    beside = str(folder / "model.safetensors")
    fifth = said("register", beside, "--zoo", "other", "--accuracy", "0.9")["record"]
    program = (folder / "program.json").read_bytes()
    for copy in (fourth, fifth):
        assert (Path("other/models") / copy["id"] / "program.json").read_bytes() == program


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda tensors: tensors.pop("0.bias"), "are not in it: 0.bias"),
        (lambda tensors: tensors.update(extra=np.ones(3, np.float32)), "are not in the model: extra"),
        (lambda tensors: tensors.update({"0.bias": np.ones(9, np.float32)}), "0.bias (9,) instead of"),
        (lambda tensors: tensors["0.bias"].fill(np.nan), "NaN"),
    ],
)
@pytest.mark.parametrize("source", ["factory", "graph"])
def test_a_file_that_does_not_fit_is_refused(here: str, change: Any, problem: str, source: str) -> None:
    Path("g.json").write_bytes(run("describe", f"{here}:net", "--json").stdout_bytes)
    register(f"{here}:net", "--name", "first")
    tensors = {
        name: array.copy()
        for name, array in load_file(f"zoo/models/{said('show', 'first')['id']}/model.safetensors").items()
    }
    change(tensors)
    save_file(tensors, "wrong.safetensors")
    model = f"{here}:net" if source == "factory" else "g.json"
    error = run("register", "wrong.safetensors", "--model", model, "--accuracy", "0.9", code=1).stderr
    assert problem in error
    assert [each["name"] for each in said("models")] == ["first"]


def test_tied_weights_go_by_any_of_their_names(here: str) -> None:
    head = np.ones((11, 8), np.float32)
    save_file({"head.weight": head, "head.bias": np.zeros(11, np.float32)}, "tied.safetensors")
    found = said("register", "tied.safetensors", "--model", f"{here}:Tied", "--accuracy", "0.5")["record"]
    weights = open_file(f"zoo/models/{found['id']}/model.safetensors")
    np.testing.assert_array_equal(weights["table.weight"], head)


def test_what_is_no_file_of_weights_says_so(here: str) -> None:
    Path("bad.safetensors").write_bytes(b"x" * 20)
    assert "header" in run("register", "bad.safetensors", "--accuracy", "1", code=1).stderr
    assert "No such file" in run("register", "missing.safetensors", "--accuracy", "1", code=1).stderr
    assert "goes with a file" in run("register", f"{here}:net", "--model", f"{here}:net", code=2).stderr
    assert "NaN" in run("register", f"{here}:spoiled", "--accuracy", "0.5", code=1).stderr


def test_metrics_can_be_given_in_several_ways(here: str) -> None:
    loss = said("register", f"{here}:net", "--metric", "val_loss=0.31", "--metric", "train_loss=0.2")[
        "record"
    ]
    assert (loss["metric"], loss["value"], loss["lower_is_better"]) == ("loss", 0.31, True)
    elo = said("register", f"{here}:net", "--metric", "elo=1510:higher")["record"]
    assert (elo["metric"], elo["value"], elo["lower_is_better"]) == ("elo", 1510, False)
    for wrong in ("elo", "elo=", "elo=x", "elo=1:up", "elo=5"):
        assert "elo" in run("register", f"{here}:net", "--metric", wrong, code=2).stderr
    unknown = said("register", f"{here}:net")["record"]
    assert (unknown["metric"], unknown["value"]) == ("", None)
    assert "how good it is, is not known" in run("register", f"{here}:net").stdout
    assert "2" in run("register", f"{here}:net", "--accuracy", "200", code=2).stderr
    assert (
        "visibility" in run("register", f"{here}:net", "--accuracy", "1", "--visibility", "x", code=2).stderr
    )


def test_models_are_listed_the_best_first(here: str) -> None:
    for loss in ("1.7", "0.3", "0.9"):
        run("register", f"{here}:net", "--metric", f"val_loss={loss}")
    run("register", f"{here}:net")
    assert [each["value"] for each in said("models", "--sort", "-value")] == [0.3, 0.9, 1.7, None]
    assert [each["value"] for each in said("models", "--sort", "value")] == [1.7, 0.9, 0.3, None]


def test_a_model_that_is_evicted_at_once_says_so(here: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = register(f"{here}:net", accuracy="0.9")
    monkeypatch.setenv("MODELKEEPER_CAPACITY", str(said("show", first)["bytes"] + 1))
    run("pin", first)
    shown = run("register", f"{here}:net(seed=1)", "--accuracy", "0.9", code=4).stdout
    assert "it was evicted at once" in " ".join(shown.split())
    assert shown.startswith("Not kept: ")
    refused = said("register", f"{here}:net(seed=2)", "--accuracy", "0.9", code=4)
    assert refused["record"]["state"] == "evicted"


def test_a_refused_model_is_exit_code_4(here: str) -> None:
    for seed in range(5):
        register(f"{here}:net(seed={seed})", accuracy="0.9")
    error = run("register", f"{here}:net", *META, "--accuracy", "0.1", code=4).stderr
    assert "was not registered" in error
    assert said("log", "--action", "refused")[0]["detail"].startswith("Sequential: accuracy 0.1")


def test_models_are_pinned_and_removed(family: dict[str, str]) -> None:
    assert f"pinned {login()}/child" in run("pin", "child").stdout
    assert "active, pinned" in run("show", "child").stdout
    assert f"already pinned: {login()}/child" in run("pin", "child").stdout
    assert not said("unpin", "child", "parent")[0]["pinned"]
    assert f"not pinned: {login()}/parent" in run("unpin", "parent").stdout
    assert [each["action"] for each in said("log", "--model", "parent")].count("unpinned") == 0
    assert f"removed {login()}/child" in run("remove", family["child"], "grandchild").stdout
    assert [each["name"] for each in said("models")] == ["parent"]
    assert {each["name"] for each in said("models", "--state", "removed")} == {"child", "grandchild"}
    assert not Path("zoo/models", family["child"]).exists()
    assert "[removed]" in run("tree", "parent").stdout
    assert "removed by hand" in run("show", "child").stdout, "by its name, too"
    for command in ("remove", "pin"):
        assert "no model" in run(command, family["child"], code=1).stderr
    assert [each["action"] for each in said("log", "--model", family["child"])][:3] == [
        "removed",
        "unpinned",
        "pinned",
    ]


def test_gc_sweeps_and_finds_damage(family: dict[str, str]) -> None:
    Path("zoo/models/0123456789abcdef").mkdir()
    assert said("gc")["folders"] == []  # too young
    file = Path("zoo/models", family["child"], "model.safetensors")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    assert said("gc", "--grace", "0")["folders"] == ["models/0123456789abcdef"]
    assert family["child"] in run("gc", "--verify").stdout
    assert "damaged 1" in run("stats").stdout


def test_stats_and_log_are_for_people(family: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELKEEPER_CAPACITY", "1MB")
    text = run("stats").stdout
    for each in ("architectures", "of 1.0 MB", "flowers", "active 3"):
        assert each in text, each
    assert run("log", "--limit", "2").stdout.count("registered") == 2


def test_what_starts_saved_and_how_a_training_went_are_for_people(family: dict[str, str]) -> None:
    found = said("savings", "--by", "user")
    assert {"by": "user", "complete": True}.items() <= found.items()
    assert found["bytes"] > 0
    assert "not to be added up" in run("savings").stdout
    with closing(LocalCoordinator(Settings(home="zoo"))) as coordinator:
        race = Race(
            "warm", (Runner("warm", "p", 4, 0.5, 0.4, ""), Runner("cold", "", 4, 2.0, 1.0, "")), 8, 1.0
        )
        coordinator.zoo.starts.add(
            Start(id="a" * 16, at=time.time(), child="c", parents=("p",), schedule=0.5)
        )
        coordinator.zoo.starts.add(Start(id="b" * 16, at=time.time(), child="c", parents=("p",)))
        coordinator.raced("b" * 16, race)
    text = run("savings").stdout
    for each in ("3 steps, 0.4 s in 1 start", "of 1 not known", "races 8 steps"):
        assert each in text, each
    assert "50 %" in run("starts").stdout
    assert [start["id"][0] for start in said("starts", "--warm")] == ["b", "a"]
    assert {start["cold"] for start in said("starts", "--cold")} <= {True}
    assert said("starts", "--parent", "parent", "--model", "child") == []
    assert said("starts", "--user", "nobody") == []
    assert "race: warm won" in run("starts", "--limit", "1").stdout
    assert "no model" in run("starts", "--model", "nothing", code=1).stderr
    assert said("show", "child", "--curve") is None
    assert "not reported" in run("show", "child", "--curve").stdout


def test_only_register_and_query_make_a_zoo(here: str) -> None:
    for command in (["models"], ["show", "x"], ["tree", "x"], ["stats"], ["log"], ["gc"], ["remove", "x"]):
        assert "there is no zoo" in run(*command, "--zoo", "typo", code=1).stderr
    assert not Path("typo").exists()
    assert said("query", f"{here}:net", "--zoo", "new", code=3)["cold"]
    assert said("models", "--zoo", "new") == []
    assert "0 models" in run("models", "--zoo", "new").stdout


def test_what_others_registered_does_not_steer_the_terminal(family: dict[str, str]) -> None:
    coordinator = LocalCoordinator(Settings(home="zoo"))
    evil = "\x1b[2J\x9b31m[red]"
    coordinator.zoo.catalog.update(family["child"], name=f"child{evil}", reason=evil, data=evil, tags=[evil])
    coordinator.zoo.catalog.note(Event(at=0.0, action=evil, detail=evil, user=evil))
    coordinator.zoo.starts.add(Start(id="e" * 16, at=0.0, child="c", user=evil, task=evil, data=evil))
    coordinator.close()
    for command in (
        ["models"],
        ["show", family["child"]],
        ["tree", "parent"],
        ["stats"],
        ["log"],
        ["starts"],
    ):
        for extra in ([], ["--json"]):
            output = run(*command, *extra).stdout
            assert "\x1b" not in output
            assert "\x9b" not in output
            assert extra or "[red]" in output
    error = run("show", "child\x1b[2J", code=1).stderr
    assert "\x1b" not in error
    assert "\x9b" not in error


def test_commands_in_processes_of_their_own(family: dict[str, str]) -> None:
    def process(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "modelkeeper", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))

    folder = f"zoo/models/{family['child']}"  # weights and graph: no framework is needed
    done = process("register", folder, "--name", "copy", "--accuracy", "0.95", "--json")
    assert done.returncode == 0, done.stderr
    found = process("query", f"{folder}/graph.json", *META, "--json")
    assert json.loads(found.stdout)["parent"] == json.loads(done.stdout)["record"]["id"]
    assert process("query", f"{folder}/graph.json", "--task", "none").returncode == 3
    assert process("show", "nobody").returncode == 1
    assert process("models", "--no-such-option").returncode == 2


def test_tables_survive_a_narrow_terminal(family: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert max(len(line) for line in run("models").stdout.splitlines()) <= 60
