"""Does what lies in dist/ work elsewhere? In fresh environments, in a folder with a space, without source.

    python -m release.trial        `make test-wheel`, after `make wheel`

- the core alone, from the wheel, with no compiler on the path: what does it bring, how long does it take?
- from the sdist without a compiler: does the error say what to install?
- the wheel for this Python with PyTorch, a zoo and a service: the core suites of the tests, a service whose
  pages are asked for, `modelkeeper doctor`
- the wheel of the stable ABI in newer Pythons: the doctor, in 3.12 tests without a framework
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from pathlib import Path

from release.environments import ABI3, CONSTRAINTS, NEWEST, ROOT, Environment, find

DIST = ROOT / "dist"
# What `pip install modelkeeper` may bring: what the core asks for, and what that needs (all of it rich's).
CORE = {"ml-dtypes", "msgspec", "numpy", "rich", "markdown-it-py", "mdurl", "pygments"}
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "networkx", "scipy")
# No test of these needs a program or a framework that is not installed here.
SUITES = (
    "graph",
    "matching",
    "policy",
    "transform",
    "cli",
    "test_client.py",
    "test_native.py",
    "zoo/files/test_blobs.py",
    "zoo/catalog/test_catalog.py",
    "zoo/database/test_migrations.py",
)
NO_FRAMEWORK = (
    *(f"graph/test_{name}.py" for name in ("fingerprint", "hostile", "structure", "wire")),
    *(f"matching/test_{name}.py" for name in ("index", "search", "similarity")),
    "policy",
    "test_native.py",
    "zoo/files/test_blobs.py",
    "zoo/catalog/test_catalog.py",
)
LEFT_OUT = "not postgres and not s3 and not scale and not keras and not real_network"
IGNORED = ("matching/test_real.py", "cli/test_model_argument.py")  # they need networks and runtimes of others
NEEDED = (
    "tests",
    "benchmarks/__init__.py",
    "benchmarks/helpers",
)  # tests share some networks with benchmarks


def main() -> None:
    """Try all that is in dist/."""
    parser = argparse.ArgumentParser(description="Try what `make wheel` built.")
    parser.add_argument("--quick", action="store_true", help="install and run the doctor, but no tests")
    quick = parser.parse_args().quick
    folder = Path(tempfile.mkdtemp(prefix="modelkeeper wheel "))
    try:
        _try(folder, quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("All of it works.")


def _try(folder: Path, quick: bool) -> None:
    wheels = {_minor(path): path for path in DIST.glob("*.whl")}
    if not wheels:
        sys.exit("There is no wheel in dist/: make wheel")
    _copy_tests(folder / "elsewhere")
    for minor in range(11, NEWEST):
        built = minor if minor < ABI3[1] else ABI3[1]
        python = find((3, minor), (3, minor + 1)) if built in wheels else None
        if python is None:
            continue
        wheel, name = wheels[built], f"3.{minor}"
        _core(folder / f"core {name}", python, wheel)
        if minor == min(wheels):
            _without_compiler(folder / "sdist", python)
            _whole(folder / f"whole {name}", python, wheel, folder / "elsewhere", quick)
        else:
            tested = minor == ABI3[1] and not quick  # for the newer ones the doctor is enough
            _no_framework(folder / f"zoo {name}", python, wheel, folder / "elsewhere", not tested)


def _minor(wheel: Path) -> int:
    """Which Python a wheel begins to serve, of 3.x."""
    return int(wheel.name.split("-")[2].removeprefix("cp3"))


def _copy_tests(elsewhere: Path) -> None:
    for name in NEEDED:
        source, target = ROOT / name, elsewhere / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "vendor"))
        else:
            shutil.copy(source, target)
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    lines = [
        f"{key} = {' '.join(value) if isinstance(value, list) else value}" for key, value in options.items()
    ]
    (elsewhere / "pytest.ini").write_text("[pytest]\n" + "\n".join(lines) + "\n")


def _bare(environment: Environment) -> dict[str, str]:
    """Variables with nothing on the path but the environment: no compiler, no CMake."""
    kept = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX", "PYTHONPATH")}
    return kept | {"PATH": str(environment.python.parent)}


def _core(folder: Path, python: str, wheel: Path) -> None:
    environment = Environment.make(folder, python)
    before = _packages(environment)
    began = time.monotonic()
    command: list[str | Path] = [
        environment.python,
        *"-m pip install -qq --no-cache-dir -c".split(),
        CONSTRAINTS,
        wheel,
    ]
    subprocess.run(command, check=True, env=_bare(environment), cwd=folder)
    taken = time.monotonic() - began
    brought = _packages(environment) - before - {"modelkeeper"}
    if brought != CORE:
        sys.exit(f"modelkeeper brings {sorted(brought)}, not {sorted(CORE)}")
    code = "import modelkeeper, modelkeeper._native; print(modelkeeper.__version__, modelkeeper.transfer)"
    environment("-I", "-c", code, folder=folder)
    said = f"{wheel.name}: in {folder.name} within {taken:.1f} s, without a compiler"
    print(f"{said}; brings {', '.join(sorted(brought))}")


def _packages(environment: Environment) -> set[str]:
    listed = json.loads(environment("-m", "pip", "list", "--format", "json", "--disable-pip-version-check"))
    return {one["name"].lower().replace("_", "-") for one in listed}


def _without_compiler(folder: Path, python: str) -> None:
    """CMake looks into folders of the system besides the path: it is told not to."""
    [sdist] = DIST.glob("*.tar.gz")
    environment = Environment.make(folder, python)
    variables = _bare(environment) | {"CMAKE_ARGS": "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF"}
    command: list[str | Path] = [
        environment.python,
        *"-m pip install --no-cache-dir -c".split(),
        CONSTRAINTS,
        sdist,
    ]
    done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True)
    said = " ".join((done.stdout + done.stderr).split())
    if done.returncode == 0 or "found no C++ compiler. Install one" not in said:
        sys.exit(f"Without a compiler the sdist should say what to install, but said: {said[-3000:]}")
    print(f"{sdist.name}: without a compiler it says what to install")


def _whole(folder: Path, python: str, wheel: Path, elsewhere: Path, quick: bool) -> None:
    environment = Environment.make(folder, python)
    environment.install(f"{wheel}[zoo,server,torch,onnx]", *TOOLS)
    _served(environment, folder)
    print(f"{wheel.name}: a service of it shows its pages")
    _doctor(environment, folder)
    if not quick:
        _test(environment, elsewhere, SUITES)


def _no_framework(folder: Path, python: str, wheel: Path, elsewhere: Path, quick: bool) -> None:
    environment = Environment.make(folder, python)
    environment.install(f"{wheel}[zoo]", *TOOLS)
    _doctor(environment, folder)
    if not quick:
        _test(environment, elsewhere, NO_FRAMEWORK)


def _doctor(environment: Environment, folder: Path) -> None:
    said = environment(
        "-I", "-m", "modelkeeper", "doctor", "--json", "--write", "--zoo", folder / "zoo", folder=folder
    )
    rows = json.loads(said.strip().splitlines()[-1])["checks"]
    where = next(row["found"] for row in rows if row["check"] == "native module")
    if not Path(where).is_relative_to(folder):
        sys.exit(f"the native module is not that of the wheel, but {where}")
    print(f"{folder.name}: the doctor finds {', '.join(sorted({row['state'] for row in rows}))}")


def _test(environment: Environment, elsewhere: Path, suites: tuple[str, ...]) -> None:
    variables = {name: value for name, value in os.environ.items() if name not in ("ALL_PARTS", "PYTHONPATH")}
    chosen = [f"tests/{suite}" for suite in suites] + [f"--ignore=tests/{name}" for name in IGNORED]
    options = ["-q", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider", "-k", LEFT_OUT]
    done = subprocess.run(
        [environment.python, "-m", "pytest", *options, *chosen], cwd=elsewhere, env=variables | {"CI": "true"}
    )
    if done.returncode:
        sys.exit(f"{environment.folder.name}: tests failed")


def _served(environment: Environment, folder: Path) -> None:
    """A service of the wheel, whose pages come from the files in it."""
    command: list[str | Path] = [
        environment.python,
        *"-I -m modelkeeper serve --no-auth --port 0 --home".split(),
        folder / "served",
    ]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr is not None
        try:
            said = next((line for line in service.stderr if " listens at " in line), "")
            if not said:
                sys.exit("the service did not start")
            address = said.split(" listens at ")[1].strip()
            page = _fetched(f"{address}/ui")
            linked = re.findall(r'(?:href|src)="(/[^"]+\.(?:css|js|svg)[^"]*)"', page)
            if not linked:
                sys.exit(f"/ui names no files: {page[:500]}")
            for name in linked:
                _fetched(address + name)
        finally:
            service.terminate()
            service.communicate(timeout=60)


def _fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as reply:
        text: str = reply.read().decode()
    return text


if __name__ == "__main__":
    main()
