"""What is built of the tree, and by whom: wheels, the jobs of a public CI, the list of what is deployed.

`make wheel`, `make test-wheel` and `make sbom` do it; here is what can be said without them.
"""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from release import environments, sbom, wheel
from tests.helpers.vendored import KEPT

ROOT = Path(__file__).parents[1]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.M))

SOURCE = [f"src/{name}" for name in wheel.NEEDED] + [
    "src/modelkeeper/text.py",
    "tests/test_text.py",
    "LICENSE",
]
INSIDE = [*wheel.NEEDED, "modelkeeper/text.py", "modelkeeper/_native.abi3.so", "m.dist-info/licenses/LICENSE"]


def test_a_wheel_that_holds_the_package_is_right() -> None:
    assert list(wheel.differences(SOURCE, INSIDE)) == []


@pytest.mark.parametrize(
    ("more", "less", "problem"),
    [
        ("tests/test_text.py", "", "tests/test_text.py should not be in it"),
        ("modelkeeper/old.py", "", "modelkeeper/old.py should not be in it"),
        ("", "modelkeeper/py.typed", "modelkeeper/py.typed is not in it"),
        ("", "modelkeeper/_native.abi3.so", "0 native modules"),
        ("modelkeeper/_native.cpython-311.so", "", "2 native modules"),
        ("", "m.dist-info/licenses/LICENSE", "its licence is not in it"),
    ],
)
def test_what_is_wrong_with_a_wheel_is_named(more: str, less: str, problem: str) -> None:
    inside = [name for name in [*INSIDE, *filter(None, [more])] if name != less]
    assert list(wheel.differences(SOURCE, inside)) == [problem]


def test_what_a_wheel_must_hold_is_there() -> None:
    assert [name for name in wheel.NEEDED if not (ROOT / "src" / name).is_file()] == []


def test_the_stable_abi_begins_where_all_files_say_so() -> None:
    tag = "cp{}{}".format(*environments.ABI3)
    assert PYPROJECT["tool"]["scikit-build"]["wheel"]["py-api"] == tag
    assert f"{tag}-*" in PYPROJECT["tool"]["cibuildwheel"]["build"]
    assert re.search(r"nanobind_add_module\(_native STABLE_ABI", (ROOT / "CMakeLists.txt").read_text())


def test_cibuildwheel_is_told_of_three_systems() -> None:
    said = PYPROJECT["tool"]["cibuildwheel"]
    assert {"linux", "macos", "windows"} < said.keys()
    assert all(said[system]["archs"] for system in ("linux", "macos", "windows"))


def test_without_a_compiler_the_build_says_what_to_install(tmp_path: Path) -> None:
    """CMake looks into folders of the system besides the path: it is told not to."""
    tools = Path(sys.executable).parent
    options = [
        "-G",
        "Ninja",
        f"-DCMAKE_MAKE_PROGRAM={tools / 'ninja'}",
        "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF",
    ]
    variables = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX")}
    done = subprocess.run(
        [tools / "cmake", "-S", ROOT, "-B", tmp_path, *options],
        env=variables | {"PATH": str(tools)},
        capture_output=True,
        text=True,
    )
    said = " ".join(done.stderr.split())
    assert done.returncode != 0
    assert "found no C++ compiler. Install one (Debian/Ubuntu: apt-get install g++; macOS:" in said


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_jobs_of_a_public_ci_run_what_is_here(path: Path) -> None:
    """Each step that runs something runs .ci/run, or a target of the Makefile; and the schema is kept."""
    jobs = yaml.safe_load(path.read_text())["jobs"]
    lines = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert lines
    for line in lines:
        words = line.split()
        assert words == [".ci/run"] or (words[0] == "make" and set(words[1:]) <= TARGETS), line
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        str(path),
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_all_jobs_are_looked_at() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "wheels.yml"]
    assert {"wheel", "test-wheel", "sbom"} <= TARGETS
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


@pytest.mark.parametrize("name", ["tools.txt", "sbom.txt"])
def test_tools_of_a_release_are_pinned(name: str) -> None:
    lines = [line for line in (ROOT / "release" / name).read_text().splitlines() if not line.startswith("#")]
    assert lines
    assert all(re.match(r"[\w-]+==[\d.]+(;|$)", line) for line in lines), lines


def test_the_bill_of_materials_has_what_is_kept_in_the_repository() -> None:
    bill = sbom.with_vendored({"components": [{"name": "numpy"}]})
    named = {one["name"]: one for one in bill["components"]}
    assert named.keys() == {"numpy", *(package.name for package in KEPT)}
    assert (named["uplot"]["scope"], named["axe-core"]["scope"]) == ("required", "excluded")
    licence = {"uplot": "MIT", "axe-core": "MPL-2.0", "iframe-worker": "MIT"}
    assert all(named[name]["licenses"] == [{"license": {"id": said}}] for name, said in licence.items())
    assert all(file["hashes"][0]["content"] for name in licence for file in named[name]["components"])


def test_pythons_are_found_by_version() -> None:
    here = (sys.version_info.major, sys.version_info.minor)
    assert environments.version_of(sys.executable) == here
    assert environments.find(here, (here[0], here[1] + 1)) is not None
    assert environments.find((3, 99)) is None
    assert environments.version_of("/no/such/python") is None
