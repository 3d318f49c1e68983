"""What whoever waits is shown: on a terminal, and nowhere else."""

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.settings import Settings
from tests.helpers import zoos

SLOW = """
import sys, time
from modelkeeper.cli import options
options.PATIENCE = 0.01
with options.progress("copying", in_bytes=True, silent=SILENT) as bar:
    bar(10, 100)
    time.sleep(0.3)
with options.waiting("counting", silent=SILENT):
    time.sleep(0.3)
print("done")
"""


def run(*command: str, terminal: bool) -> tuple[str, str]:
    """What a command wrote to standard output, and to standard error: a terminal or a pipe."""
    if not terminal:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout, done.stderr
    ours, theirs = pty.openpty()
    said: list[bytes] = []

    def read() -> None:
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # so Linux says that nobody has it open any more
                return
            if not piece:
                return
            said.append(piece)

    environment = os.environ | {"TERM": "xterm"}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment)
    os.close(theirs)
    reader = threading.Thread(target=read)
    reader.start()
    out, _ = child.communicate(timeout=120)
    reader.join()
    os.close(ours)
    assert child.returncode == 0
    return out, b"".join(said).decode()


@pytest.mark.parametrize(("terminal", "silent"), [(True, False), (True, True), (False, False)])
def test_who_waits_is_told_on_a_terminal_alone(terminal: bool, silent: bool) -> None:
    out, err = run(sys.executable, "-c", SLOW.replace("SILENT", str(silent)), terminal=terminal)
    assert out == "done\n"
    shown = terminal and not silent
    assert ("copying" in err, "counting ..." in err) == (shown, shown)
    assert bool(err) is shown


def test_a_command_shows_a_bar_but_not_beside_json(tmp_path: Path) -> None:
    coordinator = LocalCoordinator(Settings(home=str(tmp_path / "zoo")))
    zoos.register(coordinator, zoos.net(8), "one")
    coordinator.close()
    command = [sys.executable, "-m", "modelkeeper", "backup", str(tmp_path / "copies"), "--zoo"]
    command += [str(tmp_path / "zoo")]
    assert "copying" in run(*command, terminal=True)[1]
    assert run(*command, "--json", terminal=True)[1] == ""
    assert run(*command, terminal=False)[1] == ""


def test_a_bundle_shows_how_much_of_it_was_read(tmp_path: Path) -> None:
    for name in ("zoo", "other"):
        coordinator = LocalCoordinator(Settings(home=str(tmp_path / name)))
        if name == "zoo":
            zoos.register(coordinator, zoos.net(8), "one")
        coordinator.close()
    bundle = str(tmp_path / "one.mk")
    ours = [sys.executable, "-m", "modelkeeper"]
    run(*ours, "export", "one", "-o", bundle, "--zoo", str(tmp_path / "zoo"), terminal=False)
    out, err = run(*ours, "import", bundle, "--zoo", str(tmp_path / "other"), terminal=True)
    assert "importing" in err
    assert "one" in out
