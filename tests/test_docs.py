"""What the documents show is run: examples that no longer work are found here, not by a reader."""

import doctest
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from modelkeeper.cli import main

ROOT = Path(__file__).parent.parent


def blocks(path: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / path).read_text(), re.DOTALL | re.MULTILINE)


# Pages whose examples are run here, and those that tests of their own run with the tools that they show.
RUN = ["README.md"]
RUN += [
    f"docs/{page}.md"
    for page in (
        *("concepts/alignment", "concepts/graph", "concepts/growth", "concepts/plan", "concepts/selection"),
        *("describing", "frameworks", "importing", "index", "integrations/README", "recovery", "sharing"),
        *("start", "transfer"),
    )
]
RUN_ELSEWHERE = {
    "docs/keras.md": "integrations/keras/test_real.py",
    **{
        f"docs/integrations/{tool}.md": f"integrations/{test}.py"
        for tool, test in {
            "fastai": "fastai/test_callback",
            "huggingface": "huggingface/test_real",
            "lightning": "lightning/test_callback",
            "mlflow": "mlflow/test_runs",
            "optuna": "optuna/test_trials",
            "ray": "ray/test_real",
            "skorch": "skorch/test_callback",
            "trackers": "test_tracking",
        }.items()
    },
}


def test_every_example_of_a_page_is_run_by_some_test() -> None:
    pages = ["README.md", *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
    assert {page for page in pages if blocks(page)} == {*RUN, *RUN_ELSEWHERE}
    for page, test in RUN_ELSEWHERE.items():
        assert Path(page).name in (ROOT / "tests" / test).read_text(), f"{test} does not run {page}"


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept:DeprecationWarning:keras")
@pytest.mark.parametrize("page", RUN)
def test_the_pages_run(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert blocks(page)
    for block in blocks(page):
        shown = re.findall(r"# -> (.*)", block)
        exec(compile(block, page, "exec"), {"__name__": "__main__"})
        assert capsys.readouterr().out.splitlines() == shown


def run_demo(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """As a user runs it, without a display."""
    environment = {name: value for name, value in os.environ.items() if name != "DISPLAY"} | variables
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_the_demo_runs(tmp_path: Path) -> None:
    picture, figures = tmp_path / "pictures" / "demo.png", tmp_path / "demo.json"
    quick = ["--seed", "3", "--steps", "8", "--networks", "3", "--out", str(picture), "--json", str(figures)]
    done = run_demo(*quick)
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    found = json.loads(figures.read_text())
    first, *rest = found["networks"]
    assert first["parent"] == "none"
    assert first["cold"] == first["warm"] == first["cut"]  # an empty zoo: the same training, counted for all
    names = {network["name"] for network in found["networks"]}
    for network in rest:
        assert network["parent"] in names | {"none"}
        assert network["cold"]["steps"] == 8
        assert network["warm"]["steps"] == network["cut"]["steps"] <= 8
    summed = sum(network["warm"]["seconds"] + network["keeper"] for network in found["networks"])
    assert found["summary"]["seconds"]["warm"] == pytest.approx(summed)  # the keeper's time counts
    steps = found["summary"]["steps"]
    for text in ("from none", f"{steps['warm']} steps where cold took {steps['cold']}", "cold cut as short"):
        assert text in " ".join(done.stdout.split()), text


def test_the_demo_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('no torch', name='torch')")
    done = run_demo("--help", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "The demo needs torch" in done.stderr
    assert 'pip install -c constraints.txt ".[torch,evaluation]"' in done.stderr
    assert "Traceback" not in done.stderr


def test_the_overview_names_every_command() -> None:
    text = (ROOT / "docs/commands.md").read_text()
    for name in main.commands:
        assert re.search(rf"(modelkeeper|/) {name}\b", text), f"modelkeeper {name} is not in docs/commands.md"


def shell_lines() -> list[tuple[str, str]]:
    """Every call of ours in a block that a reader copies into a shell, with its page."""
    pages = [ROOT / name for name in ("README.md", "SECURITY.md", "CHANGELOG.md")]
    found = []
    for page in (*pages, *sorted((ROOT / "docs").rglob("*.md"))):
        text = page.read_text()
        # Blocks of any language are matched, so that none begins where another one ends.
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            for line in block.splitlines() if language in ("", "sh", "bash") else ():
                found += [(page.name, call) for call in calls_of(line)]
    return found


def calls_of(line: str) -> list[str]:
    """The calls in a line: up to what redirects it, and each of several in a row."""
    parts = re.split(r"\s*(?:;|&&|\|\|)\s*", line)
    return [
        re.split(r"\s[|>]", part)[0] for part in parts if part.startswith(("modelkeeper ", "pip ", "make "))
    ]


def test_lines_for_a_shell_can_be_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What explains a line stands behind a #, and each call is one that the program takes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "held_out.safetensors").touch()  # the one file that must be there for a call to be right
    lines = shell_lines()
    assert len(lines) > 90
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page, line in lines:
        program, *words = shlex.split(line, comments=True)
        if program == "pip":
            named = [word for word in words if not word.startswith("-") and word != "constraints.txt"]
            assert words[0] == "install", f"{page}: {line}"
            assert not any(word in ("or", "and") or word.startswith("modelkeeper") for word in named), line
        elif program == "make":
            assert all(word in targets or "=" in word for word in words), f"{page}: {line}"
        else:
            command: click.Command = main
            while isinstance(command, click.Group) and words and not words[0].startswith("-"):
                command = command.commands[words.pop(0)]
            try:
                command.make_context(line, words).close()
            except (click.exceptions.Exit, click.exceptions.NoArgsIsHelpError):
                continue  # --version, --help
            except click.UsageError as problem:
                pytest.fail(f"{page}: {line}: {problem.format_message()}")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("module", ["modelkeeper.transform.apply"])
def test_examples_in_docstrings_run(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted
    assert not found.failed
