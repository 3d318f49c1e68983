"""Build what is published, into dist/: the sdist, and wheels from the sdist alone.

    python -m release.wheel        `make wheel`

For Python 3.11 there is a wheel of its own; from 3.12 on one wheel, of the stable ABI, serves all. Each needs
an interpreter: what is not on this machine is said, and the rest is built. On Linux, auditwheel says which
systems a wheel runs on, and names it so. Then what is inside is compared with the source.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from release.environments import ABI3, ROOT, TOOLS, Environment, find

DIST, BUILD = ROOT / "dist", ROOT / "build" / "wheel"
BUILD_TOOLS = ("scikit-build-core", "nanobind", "cmake", "ninja")
PACKAGE = "src/modelkeeper"
# Of each kind of file that is no code, one that must be there: an empty list would compare well, too.
NEEDED = (
    "modelkeeper/py.typed",
    "modelkeeper/_native.pyi",
    "modelkeeper/server/ui/templates/base.html",
    "modelkeeper/server/ui/static/base.css",
    "modelkeeper/server/ui/static/dom.js",
    "modelkeeper/server/ui/static/vendor/uPlot.LICENSE.txt",
    "modelkeeper/zoo/database/migrations/env.py",
)


def main() -> None:
    """Build all that can be built here."""
    missing = []
    scratch = BUILD / "raw"
    for folder in (DIST, scratch):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    sdist: Path | None = None
    for name, least, below in (("cp311", (3, 11), ABI3), ("abi3", ABI3, (4, 0))):
        python = find(least, below)
        if python is None:
            missing.append(name)
            continue
        tools = _tools(BUILD / name, python)
        if sdist is None:
            tools("-m", "build", "--sdist", "--no-isolation", "--outdir", DIST, ROOT)
            [sdist] = DIST.glob("*.tar.gz")
            print(f"{sdist.relative_to(ROOT)}: {sdist.stat().st_size / 1e6:.1f} MB")
        wheel = _wheel(tools, sdist, scratch / name)
        problems = compare(sdist, wheel)
        if problems:
            sys.exit(f"{wheel.name}: " + "; ".join(problems))
        print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB, holds what it should")
    if sdist is None:
        sys.exit("No Python 3.11 or newer found: install one.")
    for name in missing:
        print(f"No wheel {name}: there is no Python for it on this machine.")


def _tools(folder: Path, python: str) -> Environment:
    made = Environment.make(folder, python)
    made.install("-r", TOOLS, *BUILD_TOOLS)
    return made


def _wheel(tools: Environment, sdist: Path, scratch: Path) -> Path:
    """A wheel from the sdist, named after the systems that it runs on."""
    scratch.mkdir()
    tools(
        *"-m pip wheel --no-deps --no-build-isolation --no-cache-dir -w".split(),
        scratch,
        sdist,
        folder=scratch,
    )
    [built] = scratch.glob("*.whl")
    if sys.platform != "linux":
        return Path(shutil.move(built, DIST))
    before = set(DIST.iterdir())
    tools("-m", "auditwheel", "repair", "-w", DIST, built)
    [repaired] = set(DIST.iterdir()) - before
    if "manylinux" not in repaired.name and "musllinux" not in repaired.name:
        sys.exit(f"{repaired.name} runs on this machine alone, as auditwheel says")
    return repaired


def compare(sdist: Path, wheel: Path) -> list[str]:
    """What is wrong with the files of a wheel, given those of the sdist that it was built from."""
    with tarfile.open(sdist) as source:
        files = [PurePosixPath(*PurePosixPath(one.name).parts[1:]) for one in source if one.isfile()]
    with zipfile.ZipFile(wheel) as archive:
        inside = [name for name in archive.namelist() if not name.endswith("/")]
    return list(differences(map(str, files), inside))


def differences(source: Iterable[str], inside: Iterable[str]) -> Iterable[str]:
    """What a wheel lacks or has too much, by the names of the files of the source and its own."""
    expected = {name.removeprefix("src/") for name in source if name.startswith(f"{PACKAGE}/")}
    found = {name for name in inside if ".dist-info/" not in name}
    native = {
        name for name in found if name.startswith("modelkeeper/_native.") and name.endswith((".so", ".pyd"))
    }
    if len(native) != 1:
        yield f"{len(native)} native modules"
    for name in sorted((expected | set(NEEDED)) - found):
        yield f"{name} is not in it"
    for name in sorted(found - native - expected):
        yield f"{name} should not be in it"
    if not any(name.endswith("licenses/LICENSE") for name in inside if ".dist-info/" in name):
        yield "its licence is not in it"


if __name__ == "__main__":
    try:  # so that who builds the same commit gets the same files
        said = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True)
        if said.returncode == 0:
            os.environ.setdefault("SOURCE_DATE_EPOCH", said.stdout.strip())
    except OSError:
        print("There is no git: times of files are of now.")
    main()
