"""Which Pythons are there, and how is an environment made with pinned tools?

find((3, 12))                       an interpreter of 3.12 or newer, or None
Environment.make(folder, python)    a fresh one
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "constraints.txt"
TOOLS = ROOT / "release" / "tools.txt"
Version = tuple[int, int]
NEWEST = 20  # minor versions of Python that are looked for
ABI3: Version = (3, 12)  # nanobind's stable ABI begins here, and so does wheel.py-api in pyproject.toml


def version_of(python: str | Path) -> Version | None:
    """The version of an interpreter; None if it does not run (pyenv leaves such behind)."""
    code = "import sys; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60)
    except OSError:
        return None
    words = done.stdout.split()
    return (int(words[0]), int(words[1])) if done.returncode == 0 and len(words) == 2 else None


def interpreters() -> Iterator[str]:
    """Pythons of this machine: the one that runs, those on the path, those of pyenv and uv."""
    yield sys.executable
    for minor in range(11, NEWEST):
        if found := shutil.which(f"python3.{minor}"):
            yield found
    homes = (
        Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions",
        Path.home() / ".local/share/uv/python",
    )
    for home in homes:
        yield from map(str, sorted(home.glob("*/bin/python3")))


def find(least: Version, below: Version = (4, 0)) -> str | None:
    """The first interpreter whose version is `least` or newer, and below another."""
    for python in interpreters():
        version = version_of(python)
        if version is not None and least <= version < below:
            return python
    return None


def run(
    command: Sequence[str | Path], *, folder: Path = ROOT, environment: Mapping[str, str] | None = None
) -> str:
    """Run a command to its end, and give what it printed.

    Raises:
        SystemExit: It failed; all that it said is shown.
    """
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        words = " ".join(map(str, command))
        sys.exit(f"{done.stdout}\n{done.stderr}\n{words} failed with {done.returncode}")
    return done.stdout


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, python: str) -> "Environment":
        """Make one anew."""
        shutil.rmtree(folder, ignore_errors=True)
        run([python, "-m", "venv", folder])
        return cls(folder)

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def install(self, *what: str | Path) -> None:
        """Install packages in the pinned versions; `what` may hold options of pip."""
        self("-m", "pip", "install", "-qq", "--disable-pip-version-check", "-c", CONSTRAINTS, *what)

    def __call__(self, *arguments: str | Path, folder: Path = ROOT) -> str:
        """Run its Python, with its programs first on the path."""
        path = f"{self.python.parent}{os.pathsep}{os.environ['PATH']}"
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return run([self.python, *arguments], folder=folder, environment=environment | {"PATH": path})
