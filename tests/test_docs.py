"""What the documents show is run: examples that no longer work are found here, not by a reader."""

import doctest
import importlib
import re
import runpy
from pathlib import Path

import pytest

from modelkeeper.cli import main
from modelkeeper.settings import Settings

ROOT = Path(__file__).parent.parent


def blocks(path: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / path).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning:keras")
@pytest.mark.parametrize("page", ["README.md", "docs/frameworks.md", "docs/importing.md"])
def test_the_pages_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert blocks(page)
    for block in blocks(page):
        shown = re.findall(r"# -> (.*)", block)
        exec(compile(block, page, "exec"), {"__name__": "__main__"})
        assert capsys.readouterr().out.splitlines() == shown


def test_the_demo_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    demo = runpy.run_path(str(ROOT / "examples" / "demo.py"), run_name="demo")
    plot = tmp_path / "plots" / "demo.png"
    demo["main"](["--seeds", "2", "--steps", "4", "--parent-steps", "2", "--plot", str(plot)])
    output = capsys.readouterr().out
    assert plot.read_bytes().startswith(b"\x89PNG")
    for text in ("The model starts warm from", "widened", "seed 1", "mean", "spread", "of 2 seeds"):
        assert text in output, text


def test_the_readme_names_every_command_and_every_setting() -> None:
    text = (ROOT / "README.md").read_text()
    for name in main.commands:
        assert re.search(rf"(modelkeeper|/) {name}\b", text), f"modelkeeper {name} is not in the README"
    for name in Settings.__struct_fields__:
        assert f"`MODELKEEPER_{name.upper()}`" in text, f"{name} is not in the README"


@pytest.mark.parametrize("module", ["modelkeeper.transform.apply"])
def test_examples_in_docstrings_run(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted
    assert not found.failed
