"""Help for whoever is stuck: what an error means, and completion as shells ask for it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modelkeeper import errors
from modelkeeper.cli import main


def run(*arguments: str, code: int = 0, **environment: str) -> Result:
    result = CliRunner().invoke(main, list(arguments), env=environment)
    assert result.exit_code == code, result.output
    return result


def test_an_error_ends_with_its_code_and_where_more_is_said(tmp_path: Path) -> None:
    failed = run("show", "m", "--zoo", str(tmp_path / "none"), code=1)
    assert failed.stderr.splitlines()[-1] == (
        "More on zoo_unusable: docs/troubleshooting.md#zoo_unusable, or: modelkeeper error zoo_unusable"
    )
    assert failed.stdout == ""


def test_a_code_gives_cause_and_remedy() -> None:
    said = run("error", "disk_full").stdout
    assert errors.DiskFull.remedy in said
    assert "There is no room" in said
    listed = json.loads(run("error", "--json").stdout)
    assert [row["code"] for row in listed] == sorted(kind.code for kind in errors.kinds())
    assert all(row["cause"] and row["remedy"] for row in listed)
    assert "no error 'xyz'; without" in run("error", "xyz", code=2).stderr
    assert "did you mean disk_full? Without" in run("error", "disk_ful", code=2).stderr
    assert run("error", "DiskFull").stdout == said  # as a traceback names it


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_line_for_a_shell_is_printed_alone_on_standard_output(shell: str) -> None:
    named, guessed = run("completion", shell), run("completion", SHELL=f"/usr/bin/{shell}")
    assert named.stdout == guessed.stdout
    assert f"_MODELKEEPER_COMPLETE={shell}_source" in named.stdout
    assert named.stdout.count("\n") == 1
    assert "give bash" in run("completion", SHELL="/bin/tcsh", code=2).stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_with_the_line_that_is_printed(tmp_path: Path) -> None:
    program = tmp_path / "modelkeeper"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m modelkeeper "$@"\n')
    program.chmod(0o755)
    script = f"""
        {run("completion", "bash").stdout}
        COMP_WORDS=(modelkeeper rest) COMP_CWORD=1
        $(complete -p modelkeeper | sed 's/.*-F \\([^ ]*\\).*/\\1/') modelkeeper rest modelkeeper
        echo "${{COMPREPLY[@]}}"
    """
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "restore", done.stderr
