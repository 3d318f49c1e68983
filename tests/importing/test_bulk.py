"""Folders with everything mixed into a zoo: what comes, what fails and why, and again where it stopped."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from click.testing import CliRunner
from safetensors.torch import save_file
from torch import nn

from modelkeeper import ModelKeeperClient, import_models
from modelkeeper.cli import main
from modelkeeper.importing import FAILED, IMPORTED, SKIPPED, WOULD, Outcome

NETS = """
from torch import nn
def make(width=6):
    return nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, 3))
"""


def make(width: int = 6) -> nn.Module:
    return nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, 3))


def bert() -> Any:
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    return transformers.BertForSequenceClassification(config)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MODELKEEPER_URI", str(tmp_path / "zoo"))
    (tmp_path / f"nets_{tmp_path.name}.py").write_text(NETS)
    (tmp_path / "runs").mkdir()
    return tmp_path


def factory(here: Path) -> str:
    return f"nets_{here.name}:make"


def statuses(outcomes: list[Outcome]) -> dict[str, str]:
    return {outcome.name: outcome.status for outcome in outcomes}


def test_a_mixed_folder(here: Path) -> None:
    runs = here / "runs"
    torch.save(make().state_dict(), runs / "plain.pt")
    torch.save(make().state_dict(), runs / "old.pth", _use_new_zipfile_serialization=False)
    save_file(make().state_dict(), runs / "safe.safetensors")
    wide = {f"module.{name}": value for name, value in make(9).state_dict().items()}
    torch.save({"model": wide, "config": {"width": 9, "lr": 1}, "val_accuracy": 0.8}, runs / "wide.pt")
    torch.save(make(7).state_dict(), runs / "other.pt")
    torch.save(make(), runs / "whole.pt")
    torch.save({"state": {}}, runs / "optimizer.pt")
    bert().save_pretrained(runs / "bert", max_shard_size="1KB")
    (runs / "lora").mkdir()
    (runs / "lora" / "adapter_config.json").write_text("{}")
    (runs / "broken.safetensors").write_bytes(b"x" * 30)
    with ModelKeeperClient() as client:
        tried = import_models(client, runs, model=factory(here), dry_run=True)
        assert client.coordinator.count() == 0
        outcomes = import_models(client, runs, model=factory(here), meta={"task": "classification"})
        assert statuses(outcomes) == {
            **dict.fromkeys(("plain", "old", "safe", "wide", "bert"), IMPORTED),
            **dict.fromkeys(("other", "whole", "lora", "broken"), FAILED),
        }
        assert {
            name: WOULD if status == IMPORTED else status for name, status in statuses(outcomes).items()
        } == (statuses(tried))
        why = {outcome.name: outcome.reason for outcome in outcomes}
        assert "0.weight (7, 5) instead of (6, 5)" in why["other"]
        assert "torch.nn.modules.container.Sequential" in why["whole"]
        assert "merge" in why["lora"]
        record = client.coordinator.show("wide")
        assert (record.metric, record.value, record.task) == ("accuracy", 0.8, "classification")
        assert client.coordinator.show("plain").value is None
        again = import_models(client, runs, model=factory(here))
        assert [outcome.status for outcome in again if outcome.status != FAILED] == [SKIPPED] * 5
        whole = import_models(client, runs / "whole.pt", trust=True)
        assert statuses(whole) == {"whole": IMPORTED}
        client.coordinator.remove(client.coordinator.show("plain").id)
        assert statuses(import_models(client, runs / "plain.pt", model=factory(here))) == {"plain": IMPORTED}


def test_a_hub_cache_gives_its_main_revision(here: Path) -> None:
    cache = here / "hub" / "models--org--tiny"
    for revision in ("old", "new"):
        bert().save_pretrained(cache / "snapshots" / revision)
    (cache / "blobs").mkdir()
    for name in ("config.json", "model.safetensors"):
        path = cache / "snapshots" / "old" / name
        path.rename(cache / "blobs" / name)
        path.symlink_to(os.path.relpath(cache / "blobs" / name, path.parent))
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("old")
    (here / "hub" / "datasets--org--d" / "snapshots" / "x").mkdir(parents=True)
    with ModelKeeperClient() as client:
        (outcome,) = import_models(client, here / "hub")
        assert (outcome.name, outcome.status) == ("org/tiny", IMPORTED)
        parent = client.coordinator.show("org/tiny")
        child = bert()
        _, answer = client.query_for_model(child, {"parents": ["org/tiny"]})
        assert answer.parent == parent.id


def test_lightning_checkpoints_say_what_they_are(here: Path) -> None:
    state = {f"net.{name}": value for name, value in make(8).state_dict().items()}
    key = "ModelCheckpoint{'monitor': 'val_loss', 'mode': 'min'}"
    scored = {"monitor": "val_loss", "current_score": torch.tensor(0.25)}
    checkpoint = {
        "pytorch-lightning_version": "2.6",
        "state_dict": state | {"criterion.weight": torch.ones(3)},
        "hyper_parameters": {"width": 8, "lr": 0.1},
        "callbacks": {key: scored},
    }
    torch.save(checkpoint, here / "runs" / "epoch=1.ckpt")
    with ModelKeeperClient() as client:
        (outcome,) = import_models(client, here / "runs", model=factory(here))
        assert (outcome.status, outcome.metric, outcome.value) == (IMPORTED, "loss", 0.25), outcome.reason
        assert outcome.notes == ("1 of its tensors are of no part of the model",)


@pytest.mark.slow
def test_several_processes_and_a_file_of_meta(here: Path) -> None:
    for width in (6, 7, 8):
        torch.save({"state_dict": make(width).state_dict(), "config": {"width": width}}, f"runs/w{width}.pt")
    Path("meta.csv").write_text("path,data,tags,val_loss\nruns/*.pt,digits,a;b,\n*w8.pt,,,0.5\n")
    with ModelKeeperClient() as client:
        outcomes = import_models(client, ["runs"], model=factory(here), meta_file="meta.csv", jobs=2)
        assert [(outcome.name, outcome.status) for outcome in outcomes] == [
            (f"w{width}", IMPORTED) for width in (6, 7, 8)
        ], outcomes
        record = client.coordinator.show("w8")
        assert (record.data, record.tags, record.metric, record.value) == ("digits", ("a", "b"), "loss", 0.5)


def test_the_command_prints_tables_and_json(here: Path) -> None:
    torch.save(make().state_dict(), "runs/good.pt")
    run = CliRunner()
    shown = run.invoke(main, ["import", "runs", "--model", factory(here), "--dry-run"])
    assert shown.exit_code == 0, shown.output
    assert "1 would be imported" in shown.output
    tried = run.invoke(main, ["import", "runs", "--model", factory(here), "--dry-run", "--zoo", "nowhere"])
    assert (tried.exit_code, tried.output) == (0, shown.output)
    assert not Path("nowhere").exists()  # looking makes no zoo
    Path("runs/bad.pt").write_bytes(b"GGUF")
    ran = run.invoke(main, ["import", "runs", "--model", factory(here), "--json"])
    assert ran.exit_code == 1, ran.output
    by_name = {outcome["name"]: outcome for outcome in json.loads(ran.stdout)}
    assert by_name["good"]["status"] == IMPORTED
    assert "GGUF" in by_name["bad"]["reason"]
    assert "No such file" in run.invoke(main, ["import", "nowhere"]).output


def test_what_is_pickled_is_never_run_without_trust(here: Path) -> None:
    code = (
        "import torch\n"
        "class Evil:\n"
        "    def __reduce__(self): return (open, ('touched', 'w'))\n"
        "torch.save({'a': Evil()}, 'runs/evil.pt')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with ModelKeeperClient() as client:
        (outcome,) = import_models(client, "runs", model=factory(here))
    assert outcome.status == FAILED
    assert not Path("touched").exists()
