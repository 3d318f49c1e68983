"""Would the tests notice if the code were wrong? Mutants of policies and of transforming: `make mutants`.

A mutant is the package with one small fault: a comparison turned around, a number changed, a line of a
condition left out. Of all that cosmic-ray can make of the modules below, some are drawn at random, each is
tried against the tests of its package, and those that no test fails on are listed: they survived. Many of
these are no faults (a bound moved by one where nothing lies), so a score of 1 is not to be had.

It works on copies of the project below build/, since mutants are written into files. Tests of a mutant run in
a fork of a process that has imported what they need of others, PyTorch above all, so that it need not be
imported for each of them.
"""

import argparse
import importlib.util
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "modelkeeper"
COPIES = ROOT / "build" / "mutants" / "projects"
RESULTS = ROOT / "benchmarks" / "results" / "mutants.json"
# What is mutated, and the tests that should notice. Docstrings and types are no code.
PACKAGES = {
    "policy": ["tests/policy"],
    "transform": ["tests/transform", "tests/warmstart/test_transfer.py"],
}
MODULES = {
    "policy": "*",
    "transform": ("units", "maps", "plan", "gather", "pairing", "importance"),
}
# Alternatives of types are written with |; and what must be told which variables are meant.
LEFT_OUT = ("_BitOr_", "/Variable")
# Seconds of computing, however busy the machine is, in which the tests of a package end: a mutant that takes
# longer was noticed, and so was one that waits for ever.
PATIENCE = 150
FOR_EVER = 10 * PATIENCE
KEYS = ("package", "module", "line", "operator")
SURVIVED, NOTICED, INCOMPETENT = "survived", "noticed", "does not start"
# What forks have already: nothing of the project, as that is what changes.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch", "sympy", "sklearn"])
# The same examples each time; a thread for each, as tests/conftest.py says, who comes too late to a fork.
ENVIRONMENT = {"CI": "true", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Mutant:
    """One fault, and what became of it."""

    package: str
    module: str
    line: int
    operator: str
    became: str


@dataclass(frozen=True)
class Place:
    """Where a fault can be made: a file below src/modelkeeper, an operator, which of its places, the line."""

    package: str
    file: str
    operator: str
    occurrence: int
    line: int

    @property
    def module(self) -> str:
        """The name of the file."""
        return Path(self.file).stem


def main() -> None:
    """Draw mutants, try them, write what became of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sample", type=int, default=60, help="mutants of each package (60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="how many are tried at once (2)")
    parser.add_argument("--minutes", type=float, default=15, help="for each package; then none begins (15)")
    parser.add_argument("--only", choices=PACKAGES, help="of the other, what was found before stays")
    parser.add_argument("--again", action="store_true", help="only those that survived the run before")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    os.environ |= ENVIRONMENT
    copies = [Copy.make(COPIES / str(number)) for number in range(chosen.workers)]
    there = json.loads(chosen.out.read_text()) if chosen.out.exists() else None
    before = there if chosen.again else None
    tried: list[Mutant] = []
    possible, seconds = {}, {}
    for package in [chosen.only] if chosen.only else PACKAGES:
        began = time.monotonic()
        copies[0].passes(PACKAGES[package], check=True)
        every = list(places(package))
        possible[package] = len(every)
        random.Random(chosen.seed).shuffle(every)
        drawn = every[: chosen.sample]
        if before:
            left = [tuple(each[key] for key in KEYS) for each in before["survivors"]]
            drawn = [each for each in drawn if tuple(getattr(each, key) for key in KEYS) in left]
        tried += try_all(drawn, copies, time.monotonic() + 60 * chosen.minutes)
        seconds[package] = round(time.monotonic() - began)
    found = summary(tried, possible)
    report = merged(before, found, tried) if before else found
    for package, taken in seconds.items():
        report["packages"][package] |= {"seed": chosen.seed, "seconds": taken}
    if there and chosen.only and not before:
        report["packages"] = there["packages"] | report["packages"]
        report["survivors"] += [each for each in there["survivors"] if each["package"] != chosen.only]
    chosen.out.write_text(json.dumps(report, indent=1) + "\n")
    for package, row in report["packages"].items():
        print(f"{package}: {row['noticed']} of {row['tried']} noticed, {row['score']:.2f}")


def places(package: str) -> Iterator[Place]:
    """Where faults can be made in a package."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    wanted = MODULES[package]
    for file in sorted((SOURCE / package).rglob("*.py")):
        if file.name == "__init__.py" or (wanted != "*" and file.stem not in wanted):
            continue
        nodes = list(ast_nodes(get_ast(file.read_text())))
        for name in sorted(operator_names()):
            if any(word in name for word in LEFT_OUT):
                continue
            operator = get_operator(name)()
            lines = [line for node in nodes for (line, _), _ in operator.mutation_positions(node)]
            for occurrence, line in enumerate(lines):
                yield Place(package, str(file.relative_to(SOURCE)), name, occurrence, line)


def try_all(drawn: list[Place], copies: list["Copy"], until: float) -> list[Mutant]:
    """What became of those that were begun in time; each copy has one at a time."""
    waiting, tried = iter(list(enumerate(drawn, 1))), []
    turn = threading.Lock()

    def work(copy: Copy) -> None:
        while time.monotonic() < until:
            with turn:
                number, place = next(waiting, (0, None))
            if place is None:
                return
            mutant = Mutant(place.package, place.module, place.line, place.operator, copy.try_out(place))
            with turn:
                tried.append(mutant)
                told = f"{mutant.module}:{mutant.line} {mutant.operator}: {mutant.became}"
                print(f"{place.package} {number}/{len(drawn)}: {told}", flush=True)

    with ThreadPoolExecutor(len(copies)) as pool:
        list(pool.map(work, copies))
    return tried


class Copy:
    """The project where it may be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls, folder: Path) -> "Copy":
        """Copy the project as it is, with its native module."""
        shutil.rmtree(folder, ignore_errors=True)
        for part in ("src", "tests", "benchmarks/__init__.py", "benchmarks/helpers", "pyproject.toml"):
            source, target = ROOT / part, folder / part
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, target)
        for native in Path(sysconfig.get_path("platlib")).glob("modelkeeper/_native*.so"):
            shutil.copy(native, folder / "src" / "modelkeeper")
        return cls(folder)

    def try_out(self, place: Place) -> str:
        """What becomes of a mutant?"""
        from cosmic_ray.mutating import mutate_code
        from cosmic_ray.plugins import get_operator

        file = self.folder / "src" / "modelkeeper" / place.file
        before = file.read_bytes()
        changed = mutate_code(before, get_operator(place.operator)(), place.occurrence)
        if changed is None:
            return INCOMPETENT
        _write(file, changed.encode())
        try:
            compile(changed, str(file), "exec")
            return SURVIVED if all(map(self.passes, self._likely_first(place))) else NOTICED
        except SyntaxError:
            return INCOMPETENT
        finally:
            _write(file, before)

    def _likely_first(self, place: Place) -> list[list[str]]:
        """Those of the module itself, which are read and run alone, before all other tests."""
        tests, name = PACKAGES[place.package], f"test_{Path(place.file).name}"
        own = [
            str(each.relative_to(self.folder)) for each in (self.folder / "tests" / place.package).rglob(name)
        ]
        return [own, tests] if own else [tests]

    def passes(self, tests: list[str], *, check: bool = False) -> bool:
        """Do these tests pass?"""
        log = self.folder / "pytest.log"
        run = FORKS.Process(target=_run_tests, args=(self.folder, log, tests))
        run.start()
        run.join(FOR_EVER)
        late = run.is_alive()
        if late:
            run.kill()
            run.join()
        if check and run.exitcode:
            told = "they take too long" if late else log.read_text()[-3000:]
            sys.exit(f"the tests fail without any mutant:\n{told}")
        return run.exitcode == 0


def _write(file: Path, content: bytes) -> None:
    """Write a module; what was compiled of it is gone, even if it is as long and of the same second."""
    file.write_bytes(content)
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


class AnyExample:
    """Hypothesis need not look for the smallest example that fails, which takes longer than all the rest."""

    def pytest_configure(self) -> None:
        """When tests/conftest.py has named its settings, and no test has taken them."""
        from hypothesis import Phase, settings

        found = settings(settings.get_profile("ci"), phases=[Phase.explicit, Phase.generate])
        settings.register_profile("mutants", found)
        settings.load_profile("mutants")


def _run_tests(folder: Path, log: Path, tests: list[str]) -> None:
    """Run tests of a copy, in a fork; the first that fails ends it."""
    import pytest

    resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE))
    with log.open("wb") as out:
        for stream in (1, 2):
            os.dup2(out.fileno(), stream)
    here = [str(folder), str(folder / "src")]
    os.chdir(folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(here)
    # The installed project would find its modules in src of this one.
    sys.path[:] = [*here, *(each for each in sys.path if Path(each or ".").resolve() != ROOT)]
    sys.meta_path[:] = [each for each in sys.meta_path if "Redirecting" not in type(each).__name__]
    sys.modules.pop("benchmarks", None)
    sys.dont_write_bytecode = False  # or each fork would compile all anew
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    sys.exit(pytest.main([*options, *tests], plugins=[AnyExample()]))


def merged(before: dict[str, Any], again: dict[str, Any], tried: list[Mutant]) -> dict[str, Any]:
    """A run, and what became of its survivors when they were tried again."""
    known = {tuple(getattr(each, key) for key in KEYS) for each in tried}
    left = [each for each in before["survivors"] if tuple(each[key] for key in KEYS) not in known]
    packages = {}
    for name, row in before["packages"].items():
        noticed = row["noticed"] + again["packages"].get(name, {}).get("noticed", 0)
        packages[name] = {**row, "noticed": noticed, "score": round(noticed / max(1, row["tried"]), 3)}
    return {"packages": packages, "survivors": [*again["survivors"], *left]}


def summary(tried: list[Mutant], possible: dict[str, int]) -> dict[str, Any]:
    """How many were noticed, and which were not."""
    packages = {}
    for package, number in possible.items():
        counted = [each for each in tried if each.package == package and each.became != INCOMPETENT]
        noticed = sum(each.became == NOTICED for each in counted)
        packages[package] = {
            "possible": number,
            "tried": len(counted),
            "noticed": noticed,
            "score": round(noticed / max(1, len(counted)), 3),
        }
    survivors = [asdict(each) for each in tried if each.became == SURVIVED]
    return {"packages": packages, "survivors": survivors}


if __name__ == "__main__":
    main()
