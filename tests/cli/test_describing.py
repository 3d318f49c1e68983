"""The command line, with a small model that a user might have in the current folder."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from modelkeeper.cli import main
from modelkeeper.graph import from_json

MODELS = """
import functools
import torch
from torch import nn

print("what the user's module prints")

class Net(nn.Module):
    def __init__(self, width=8, classes=3):
        super().__init__()
        self.hidden = nn.Linear(4, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(torch.relu(self.hidden(x)))

class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11)
        self.head.weight = self.table.weight

    def forward(self, ids, mask):
        return self.head(self.table(ids) * mask)

def make(width, *, classes=3):
    return Net(width, classes)

class family:
    small = functools.partial(make, 2)

net = Net()
number = 5

def broken():
    raise RuntimeError("no such weights")
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module of models in the current folder, a new one for each test."""
    name = f"models_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODELS)
    (tmp_path / "needs.py").write_text("import not_installed\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("COLUMNS", "200")
    yield name
    for each in (name, "needs"):
        sys.modules.pop(each, None)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["describe", *arguments])


def test_every_command_has_help_and_an_example_and_every_option_has_help() -> None:
    def commands(command: click.Command, called: str) -> Iterator[tuple[click.Command, str]]:
        yield command, called
        for name, child in getattr(command, "commands", {}).items():
            yield from commands(child, f"{called} {name}")

    for command, called in commands(main, "modelkeeper"):
        assert command.help, f"{command.name} has no help"
        example = re.search(rf"^ +{called}\b", command.help.partition("\b\n")[2], re.MULTILINE)
        assert example, f"{command.name} has no example"
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{command.name} {parameter.name} has no help"
            else:
                assert str(parameter.metavar or parameter.human_readable_name) in command.help, (
                    f"{command.name} {parameter.name}"
                )


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_questions_are_answered_without_numpy_or_torch(option: str) -> None:
    code = f"""
import sys
from modelkeeper.cli import main
try:
    main(["{option}"], prog_name="modelkeeper")
finally:
    assert not {{"numpy", "torch", "rich"}} & set(sys.modules), "imported for {option}"
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "modelkeeper, version 0" in run.stdout or "describe" in run.stdout


def test_as_a_module_in_a_process_of_its_own(models: str) -> None:
    command = [sys.executable, "-m", "modelkeeper", "describe", f"{models}:Net", "--json"]
    run = subprocess.run(command, capture_output=True, check=True)
    assert [layer.kind for layer in from_json(run.stdout).layers] == ["input", "linear", "linear", "output"]


@pytest.mark.parametrize(
    ("factory", "width"),
    [
        ("net", 8),
        ("Net", 8),
        ("Net()", 8),
        ("Net(5)", 5),
        ("make(width=6)", 6),
        ("make(7, classes=2)", 7),
        ("family.small", 2),
        (" Net( width = 9 ) ", 9),
    ],
)
def test_a_factory_is_a_model_a_class_or_a_function(models: str, factory: str, width: int) -> None:
    result = run(f"{models}:{factory}", "--json")
    assert result.exit_code == 0, result.output
    assert from_json(result.stdout_bytes).layers[1].tensors[0].shape == (width, 4)


def test_what_the_users_code_prints_stays_out_of_the_json(models: str) -> None:
    result = run(f"{models}:net", "--json")
    assert json.loads(result.stdout)["format"] == "modelkeeper.graph"
    assert "what the user's module prints" in result.stderr


def test_the_table_shows_the_graph(models: str) -> None:
    result = run(f"{models}:net")
    assert result.exit_code == 0, result.output
    for text in ("hidden", "linear", "weight 8x4", "s0", "1 > relu", "parameters  67", "free", "fingerprint"):
        assert text in result.stdout


def test_inputs_can_be_given(models: str) -> None:
    result = run(f"{models}:Tokens", "--input", "int64:2,5", "--input", "2,5,8")
    assert result.exit_code == 0, result.output
    assert "(tied)" in result.stdout
    assert "parameters  99" in result.stdout


@pytest.mark.parametrize(
    "shape", ["", "x", "1,", "1,-2", "1x3", "0,3", "float33:1,2", "opaque:1", "1;2", ":1"]
)
def test_a_wrong_shape_is_wrong_usage(models: str, shape: str) -> None:
    result = run(f"{models}:net", "--input", shape)
    assert result.exit_code == 2
    assert "--input" in result.stderr


@pytest.mark.parametrize("arguments", [(), ("a:b", "c:d"), ("a:b", "--jsn")])
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize(
    ("factory", "problem"),
    [
        ("@", "there is no module before a colon"),
        (":net", "there is no module before a colon"),
        ("not a module:net", "there is no module before a colon"),
        ("@:", "no name with literal arguments"),
        ("@:net[0]", "no name with literal arguments"),
        ("@:Net(width=open('x'))", "no name with literal arguments"),
        ("@:Net(*[1])", "no name with literal arguments"),
        ("@:Net(**{'width': 1})", "no name with literal arguments"),
        ("@:Net(1)(2)", "no name with literal arguments"),
        ("@:__import__('os').system('true')", "no name with literal arguments"),
        ("@:" + "(" * 5_000, "no name with literal arguments"),
        ("nowhere_to_be_found:net", "no module 'nowhere_to_be_found' is installed or in"),
        ("@.deeper:net", "is installed or in"),
        ("needs:net", "importing needs raised ModuleNotFoundError: No module named 'not_installed'"),
        ("@:nett", "has no 'nett' (but 'net')"),
        ("@:family.large", "family has no 'large'"),
        ("@:make", "calling it raised TypeError: make() missing 1 required positional argument: 'width'"),
        ("@:Net(width='wide')", "calling it raised"),
        ("@:broken", "calling it raised RuntimeError: no such weights"),
        ("@:number", "int is no model of a known framework"),
        ("@:torch", "module is no model of a known framework"),
        ("@:family", "family is no model of a known framework"),
    ],
)
def test_a_factory_that_gives_no_model_says_why(models: str, factory: str, problem: str) -> None:
    result = run(factory.replace("@", models))
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert problem in result.stderr
    assert result.stdout == ""


def test_a_model_that_does_not_run_says_why(models: str) -> None:
    result = run(f"{models}:net", "--input", "2,5")
    assert result.exit_code == 1
    assert "cannot describe Net" in result.stderr


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_letters_that_a_terminal_does_not_have_stop_nothing(models: str, encoding: str) -> None:
    call = [sys.executable, "-m", "modelkeeper", "diff", f"{models}:Net(8)", f"{models}:Net(16)"]
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    done = subprocess.run(call, capture_output=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "weight 8x4 ? 16x4" in done.stdout.decode(encoding)


def diff(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["diff", *arguments])


def test_two_models_are_shown_aligned(models: str) -> None:
    result = diff(f"{models}:Net(8)", f"{models}:Net(16, 5)")
    assert result.exit_code == 0, result.output
    for text in (
        "hidden",
        "~",
        "weight 8x4 → 16x4",
        "bias 3 → 5",
        "similarity",
        "only in the child   0 layers",
    ):
        assert text in result.stdout


def test_an_alignment_as_json_and_from_a_file(models: str, tmp_path: Path) -> None:
    (tmp_path / "trained.json").write_bytes(run(f"{models}:net", "--json").stdout_bytes)
    found = json.loads(diff("trained.json", f"{models}:make(9)", "--json").stdout)
    assert found["format"] == "modelkeeper.alignment"
    assert [(pair["parent"], pair["child"]) for pair in found["pairs"]] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert 0.5 < found["similarity"] < 1.0
    assert found["pairs"][1]["differs"] == ["weight 8x4 → 9x4", "bias 8 → 9"]
    assert json.loads(diff("trained.json", f"{models}:net", "--json").stdout)["similarity"] == 1.0


def test_a_file_that_is_no_graph_is_refused(models: str, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    result = diff("other.json", f"{models}:net")
    assert result.exit_code == 1
    assert "invalid graph" in result.stderr
