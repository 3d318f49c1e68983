"""What the documents show is run: examples that no longer work are found here, not by a reader."""

import doctest
import importlib
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def blocks(path: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / path).read_text(), re.DOTALL | re.MULTILINE)


def test_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert blocks("README.md")
    for block in blocks("README.md"):
        shown = re.findall(r"# -> (.*)", block)
        exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})
        assert capsys.readouterr().out.splitlines() == shown


def test_the_demo_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "demo.py"), run_name="__main__")
    assert capsys.readouterr().out.count("fingerprint") == 2


@pytest.mark.parametrize("module", ["modelkeeper.transform.apply"])
def test_examples_in_docstrings_run(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted
    assert not found.failed
