"""Models on the command line that are files: ONNX, from describing to warm starts."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

from modelkeeper.cli import main
from modelkeeper.frontends.onnx import OnnxModel, read
from modelkeeper.graph import from_json
from tests.helpers.onnx_models import computed, convolutions, perceptron

META = ("--data", "flowers", "--task", "classification")
INPUT = {"x": np.random.default_rng(3).normal(size=(4, 5)).astype(np.float32)}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a trained model and a wider one; the zoo is in the folder `zoo`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELKEEPER_URI", str(tmp_path / "zoo"))
    onnx.save(perceptron(6, seed=0), tmp_path / "small.onnx")
    onnx.save(perceptron(9, seed=1), tmp_path / "wide.onnx")
    onnx.save(convolutions(6), tmp_path / "image.onnx")
    return tmp_path


def run(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == code, result.output
    return result


def test_describe_prints_the_graph_of_a_file() -> None:
    assert "inner" in run("describe", "small.onnx").stdout
    graph = from_json(run("describe", "image.onnx", "--json").stdout.encode())
    assert graph.framework == "onnx"
    assert [layer.kind for layer in graph.layers][1:3] == ["conv", "batch_norm"]


def test_describe_takes_the_shapes_of_inputs() -> None:
    assert "conv" in run("describe", "image.onnx", "--input", "2,3,8,8").stdout
    refused = run("describe", "image.onnx", "--input", "2,3,9,9", code=1)
    assert "'x' is ['batch', 3, 8, 8], an example of [2, 3, 9, 9] was given" in refused.stderr
    assert (
        "it takes 1: x" in run("describe", "image.onnx", "--input", "1,3,8,8", "--input", "1", code=1).stderr
    )


def test_diff_takes_files_graphs_and_factories(here: Path) -> None:
    (here / "torch_models.py").write_text(
        "from torch import nn\n"
        "net = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))\n"
    )
    (here / "small.json").write_text(run("describe", "small.onnx", "--json").stdout)
    for other in ("small.onnx", "small.json", "torch_models:net"):
        compared = json.loads(run("diff", "small.onnx", other, "--json").stdout)
        assert compared["similarity"] == pytest.approx(1)
    assert json.loads(run("diff", "small.onnx", "wide.onnx", "--json").stdout)["similarity"] < 1
    assert "inner" in run("diff", "small.onnx", "wide.onnx").stdout


def test_diff_takes_models_of_a_zoo(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registered = json.loads(run("register", "small.onnx", "--accuracy", "0.9", *META, "--json").stdout)
    run("register", "wide.onnx", "--accuracy", "0.8", "--name", "broad", *META)
    by_files = json.loads(run("diff", "small.onnx", "wide.onnx", "--json").stdout)
    identity = registered["record"]["id"]
    for parent, child in (("small", "broad"), (identity, "wide.onnx"), (identity[:6], "broad")):
        assert json.loads(run("diff", parent, child, "--json").stdout) == by_files
    assert "inner" in run("diff", "small", "broad").stdout
    assert run("describe", "broad", "--json").stdout == run("show", "broad", "--graph").stdout
    assert "Saved" in run("diff", "small", "broad", "--svg", "pictures/diff.svg").stdout
    assert "widened" in (here / "pictures" / "diff.svg").read_text()
    assert "cannot be written" in run("tree", "small", "--svg", "small.onnx/tree.svg", code=1).stderr
    assert "Saved" in run("tree", "small", "--svg", "tree.svg").stdout
    assert "small" in (here / "tree.svg").read_text()
    assert "no curve" in run("show", "small", "--curve", "--svg", "curve.svg", code=1).stderr
    monkeypatch.delenv("MODELKEEPER_URI")
    assert json.loads(run("diff", "small", "broad", "--zoo", "zoo", "--json").stdout) == by_files
    assert "there is no zoo" in run("diff", "small", "broad", "--zoo", "nowhere", code=1).stderr
    assert not (here / "nowhere").exists()
    assert "ada/small" in run("diff", "ada/small", "broad", "--zoo", "zoo", code=1).stderr
    for path in ("./small", "gone.onnx", "gone/small.onnx"):
        assert "No such file" in run("diff", path, "wide.onnx", code=1).stderr


def test_a_registered_file_warms_another_one(here: Path) -> None:
    registered = json.loads(run("register", "small.onnx", "--accuracy", "0.9", *META, "--json").stdout)
    assert registered["record"]["name"] == "small"
    assert json.loads(run("show", "small", "--json").stdout)["framework"] == "onnx"
    before = (here / "wide.onnx").read_bytes()
    answer = json.loads(run("query", "wide.onnx", *META, "-o", "warmed.onnx", "--json").stdout)
    assert answer["parent"] == registered["record"]["id"]
    assert answer["exact"]
    expected, found = computed(here / "small.onnx", INPUT), computed(here / "warmed.onnx", INPUT)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert (here / "wide.onnx").read_bytes() == before


def test_weights_of_a_file_can_be_written_as_safetensors_and_registered_by_them(here: Path) -> None:
    run("register", "small.onnx", "--accuracy", "0.9", *META)
    run("query", "small.onnx", *META, "--output", "warm.safetensors")
    run(
        "register",
        "warm.safetensors",
        "--model",
        "small.onnx",
        "--accuracy",
        "0.91",
        "--name",
        "again",
        *META,
    )
    names = {record["name"] for record in json.loads(run("models", "--json").stdout)}
    assert names == {"small", "again"}


def test_a_dry_run_and_a_cold_start_write_nothing(here: Path) -> None:
    run("query", "wide.onnx", "-o", "warmed.onnx", code=3)
    run("register", "small.onnx", "--accuracy", "0.9", *META)
    run("query", "wide.onnx", *META, "-o", "warmed.onnx", "--dry-run")
    assert not (here / "warmed.onnx").exists()


def test_what_cannot_be_is_said_in_one_line(here: Path) -> None:
    (here / "broken.onnx").write_bytes(b"no model")
    run("register", "small.onnx", "--accuracy", "0.9", *META)
    for arguments, code, text in (
        (("describe", "missing.onnx"), 1, "missing.onnx cannot be used: No such file"),
        (("describe", "broken.onnx"), 1, "it is no ONNX file"),
        (("register", "broken.onnx", "--accuracy", "0.9"), 1, "it is no ONNX file"),
        (("register", "small.onnx", "--model", "wide.onnx"), 2, "small.onnx is a model already"),
        (("query", "small.onnx", *META, "-o", "small.onnx"), 1, "it is the model's own file"),
        (("query", "small.json", "-o", "warm.onnx"), 2, "is no ONNX file"),
        (("query", "small.json", "-o", "warm.pt"), 2, "warm.pt: weights are written as safetensors"),
    ):
        assert text in run(*arguments, code=code).stderr


def test_without_the_package_it_is_said_what_to_install() -> None:
    code = (
        "import sys; sys.modules['onnx'] = None\n"
        "from modelkeeper.cli import main\n"
        "main(['describe', 'small.onnx'])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert 'pip install "modelkeeper[onnx]"' in ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_file_that_was_warmed_is_read_again(here: Path) -> None:
    run("register", "small.onnx", "--accuracy", "0.9", *META)
    run("query", "small.onnx", *META, "-o", "warmed.onnx")
    warmed = dict(read(OnnxModel(here / "warmed.onnx")))
    for name, array in read(OnnxModel(here / "small.onnx")):
        np.testing.assert_array_equal(array, warmed[name])
