"""Without an extra: `transfer` works, and whatever needs the extra says which to install."""

import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from modelkeeper import extras
from modelkeeper.errors import NotInstalled

ROOT = Path(__file__).parents[1]
# A process in which the packages of the extra cannot be found.
WITHOUT_ZOO = """
import importlib.abc, sys
from modelkeeper import extras

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in extras.MODULES["zoo"]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

kept = extras.find_spec
extras.find_spec = lambda name: None if name in extras.MODULES["zoo"] else kept(name)
sys.meta_path.insert(0, Missing())
"""
TRANSFER = """
import torch
from torch import nn
from modelkeeper import transfer
nets = [nn.Sequential(nn.Linear(4, n), nn.ReLU(), nn.Linear(n, 3)) for n in (8, 16, 6)]
batches = [torch.randn(8, 4) for _ in range(4)]
print(transfer(nets[0], nets[1], verify=True).exact)
print(transfer(nets[0], nets[2], calibrate=batches).exact)
raced = [(batch, batch.sum(1, keepdim=True).expand(-1, 3)) for batch in batches]
transfer(nets[0], nets[1], probe=raced, loss=nn.functional.mse_loss)
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT_ZOO + code], capture_output=True, text=True)


def test_the_table_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, modules in extras.MODULES.items():
        assert sorted(modules) == sorted(line.partition(">")[0].replace("-", "_") for line in project[extra])


def test_transfer_needs_nothing_of_the_zoo() -> None:
    done = run(TRANSFER)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "False"]


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("from modelkeeper import ModelKeeperClient", "a client or a zoo"),
        ("import modelkeeper; modelkeeper.import_models", "a client or a zoo"),
        ("import modelkeeper.coordinator", "a client or a zoo"),
        ("import modelkeeper.integrations.lightning", "a client or a zoo"),
        ("from modelkeeper.__main__ import main; main()", "the command line"),
    ],
)
def test_what_needs_the_zoo_says_so(code: str, what: str) -> None:
    done = run(code)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    names = ", ".join(extras.MODULES["zoo"])
    assert last.endswith(f'{what} needs {names}, which are not installed: pip install "modelkeeper[zoo]".')
    assert ("Traceback" in done.stderr) is (what != "the command line")


def test_what_is_there_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    extras.need("zoo", "a test")
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "obstore" else find_spec(name))
    with pytest.raises(NotInstalled, match="a test needs obstore, which is not installed: pip install"):
        extras.need("zoo", "a test")
    with pytest.raises(ImportError):  # as who tries an import expects
        extras.need("zoo", "a test")
