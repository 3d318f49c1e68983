"""Would the tests notice if the code were wrong? Mutants of policies and of transforming: `make mutants`.

A mutant is the package with one small fault: a comparison turned around, a number changed, a line of a
condition left out. Of all that cosmic-ray can make of the modules below, some are drawn at random, each is
tried against the tests of its package, and those that no test fails on are listed: they survived. Many of
these are no faults (a bound moved by one where nothing lies), so a score of 1 is not to be had.

It works on a copy of the project below build/, since mutants are written into files.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
COPY = ROOT / "build" / "mutants" / "project"
RESULTS = ROOT / "benchmarks" / "results" / "mutants.json"
# What is mutated, and the tests that should notice. Docstrings and types are no code.
PACKAGES = {
    "policy": ["tests/policy"],
    "transform": [
        f"tests/transform/test_{name}.py"
        for name in ("units", "maps", "plan", "planner", "gather", "pairing", "importance", "apply")
    ],
}
MODULES = {
    "policy": "*",
    "transform": ("units", "maps", "plan", "gather", "pairing", "importance"),
}
# Alternatives of types are written with |; and what must be told which variables are meant.
LEFT_OUT = ("_BitOr_", "/Variable")
PATIENCE = 240.0  # seconds in which the tests of a package end; a mutant that takes longer was noticed
SURVIVED, NOTICED, INCOMPETENT = "survived", "noticed", "does not start"
# Imported before the tests, in the copy: the installed project would find its modules in src of this one.
FOUND_HERE = """
import sys
sys.meta_path[:] = [each for each in sys.meta_path if "Redirecting" not in type(each).__name__]
"""


@dataclass(frozen=True)
class Mutant:
    """One fault, and what became of it."""

    package: str
    module: str
    line: int
    operator: str
    became: str


def main() -> None:
    """Draw mutants, try them, write what became of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sample", type=int, default=60, help="mutants of each package (60)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=30, help="begin no further one after so long (30)")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    copy_project()
    until, began, tried, possible = time.monotonic() + 60 * chosen.minutes, time.monotonic(), [], {}
    for package, tests in PACKAGES.items():
        run_tests(tests, check=True)
        every = list(mutants(package))
        possible[package] = len(every)
        random.Random(chosen.seed).shuffle(every)
        for number, (file, operator, occurrence, line) in enumerate(every[: chosen.sample]):
            if time.monotonic() > until:
                break
            became = try_out(file, operator, occurrence, tests)
            tried.append(Mutant(package, file.stem, line, operator, became))
            print(
                f"{package} {number + 1}/{chosen.sample}: {file.stem}:{line} {operator}: {became}", flush=True
            )
    report = summary(tried, possible) | {"seed": chosen.seed, "seconds": round(time.monotonic() - began)}
    chosen.out.write_text(json.dumps(report, indent=1) + "\n")
    for package, row in report["packages"].items():
        print(f"{package}: {row['noticed']} of {row['tried']} noticed, {row['score']:.2f}")


def copy_project() -> None:
    """The project as it is, with its native module, where it may be changed."""
    shutil.rmtree(COPY, ignore_errors=True)
    for part in ("src", "tests", "benchmarks/__init__.py", "benchmarks/helpers", "pyproject.toml"):
        source, target = ROOT / part, COPY / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    for native in Path(sysconfig.get_path("platlib")).glob("modelkeeper/_native*.so"):
        shutil.copy(native, COPY / "src" / "modelkeeper")
    (COPY / "found_here.py").write_text(FOUND_HERE)


def mutants(package: str) -> Iterator[tuple[Path, str, int, int]]:
    """All faults of a package: the file, the operator, which of its places, and on which line that is."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    folder, wanted = COPY / "src" / "modelkeeper" / package, MODULES[package]
    for file in sorted(folder.rglob("*.py")):
        if file.name == "__init__.py" or (wanted != "*" and file.stem not in wanted):
            continue
        nodes = list(ast_nodes(get_ast(file.read_text())))
        for name in sorted(operator_names()):
            if any(word in name for word in LEFT_OUT):
                continue
            operator, occurrence = get_operator(name)(), 0
            for node in nodes:
                for (line, _), _ in operator.mutation_positions(node):
                    yield file, name, occurrence, line
                    occurrence += 1


def try_out(file: Path, operator: str, occurrence: int, tests: list[str]) -> str:
    """What becomes of a mutant?"""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    before = file.read_bytes()
    changed = mutate_code(before, get_operator(operator)(), occurrence)
    if changed is None:
        return INCOMPETENT
    file.write_text(changed)
    try:
        compile(changed, str(file), "exec")
        return SURVIVED if run_tests(tests) else NOTICED
    except SyntaxError:
        return INCOMPETENT
    finally:
        file.write_bytes(before)


def run_tests(tests: list[str], *, check: bool = False) -> bool:
    """Do the tests of the copy pass?"""
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "found_here"]
    environment = {"PYTHONPATH": f"{COPY}:{COPY / 'src'}", "PATH": "/usr/bin:/bin", "CI": "true"}
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        done = subprocess.run(
            command, cwd=COPY, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    if check and done.returncode:
        sys.exit(f"the tests fail without any mutant:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    return done.returncode == 0


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
