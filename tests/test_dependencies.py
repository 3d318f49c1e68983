"""What the project stands on: may it, and is it just what was looked at?

Our own licence is Apache-2.0. What is installed beside may be permissive, or copyleft of single files or of
a library that others can exchange (MPL, LGPL); anything else would bind whoever passes our program on. Who
adds a dependency whose licence is not listed here reads it, and lists it.
"""

import hashlib
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from tests.helpers.vendored import IN_DOCS, KEPT, SHOWN, VENDOR

ROOT = Path(__file__).parents[1]
PERMISSIVE = (
    "0bsd apache-2.0 bsd-2-clause bsd-3-clause bsl-1.0 cc0-1.0 cnri-python isc llvm-exception mit mit-0 "
    "mit-cmu psf-2.0 zlib"
)
EXCHANGEABLE = "lgpl-3.0-only lgpl-3.0-or-later mpl-2.0"
ALLOWED = {*PERMISSIVE.split(), *EXCHANGEABLE.split()}
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, BUILD = PYPROJECT["project"], PYPROJECT["build-system"]["requires"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
# How metadata that is older than licence expressions says the same.
WORDS = {
    "3-clause bsd license": "bsd-3-clause",
    "apache": "apache-2.0",  # kubernetes-validate: its file LICENSE is version 2.0
    "apache 2.0": "apache-2.0",
    "apache 2.0 license": "apache-2.0",
    "apache license 2.0": "apache-2.0",
    "apache license, version 2.0": "apache-2.0",
    "apache software license": "apache-2.0",
    "bsd license": "bsd-3-clause",
    "bsd": "bsd-3-clause",
    "gnu lesser general public license v3 (lgplv3)": "lgpl-3.0-only",
    "isc license (iscl)": "isc",
    "mit license": "mit",
    "mozilla public license 2.0 (mpl 2.0)": "mpl-2.0",
    "python software foundation license": "psf-2.0",
}
# Their metadata does not say; the files that they come with do.
READ = {"huey": "mit", "namex": "apache-2.0", "skops": "mit"}


def licences(one: metadata.Distribution) -> set[str]:
    """Every licence that the metadata of a distribution names, as SPDX does, in small letters."""
    said = one.metadata
    if "License-Expression" in said:
        words = re.findall(r"[A-Za-z0-9.+-]+", said["License-Expression"])
        return {word.lower() for word in words} - {"and", "or", "with"}
    classified = [line.split(" :: ")[-1] for line in said.get_all("Classifier") or () if "License ::" in line]
    known = [line for line in classified if line != "OSI Approved"]
    name = said["Name"].lower()
    if not known and name in READ:
        return {READ[name]}
    text = known or [re.split(r" AND | OR |\n", "".join((said.get_all("License") or [""])[:1]))[0].strip()]
    return {WORDS.get(line.lower(), line.lower()) for line in text}


def test_the_licence_of_everything_installed_is_known_and_allowed() -> None:
    installed = {one.metadata["Name"]: licences(one) for one in metadata.distributions()}
    assert len(installed) > 30
    other = {name: found for name, found in sorted(installed.items()) if not found <= ALLOWED}
    assert other == {}, "read their licences; see the words above"


def test_everything_installed_runs_on_the_oldest_python_that_we_promise() -> None:
    """Debian 12 has Python 3.11.2: a pin that asks for 3.11.5 would keep its users from installing."""
    oldest = PROJECT["requires-python"].removeprefix(">=") + ".0"
    asking = {one.metadata["Name"]: one.metadata for one in metadata.distributions()}
    newer = {
        name: said["Requires-Python"]
        for name, said in asking.items()
        if "Requires-Python" in said and oldest not in SpecifierSet(said["Requires-Python"])
    }
    assert newer == {}


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("License-Expression: GPL-3.0-or-later", False),
        ("License-Expression: MIT AND AGPL-3.0-only", False),
        ("License-Expression: Apache-2.0 WITH LLVM-exception", True),
        ("Classifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)", False),
        ("Classifier: License :: OSI Approved :: MIT License", True),
        ("License: GPL-3.0-or-later", False),
        ("Summary: says nothing", False),
    ],
)
def test_copyleft_and_silence_are_found(text: str, allowed: bool, tmp_path: Path) -> None:
    folder = tmp_path / "sample-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: sample\nVersion: 1\n{text}\n")
    assert (licences(metadata.PathDistribution(folder)) <= ALLOWED) is allowed


def package(requirement: str) -> str:
    """The name of what a requirement asks for."""
    return re.match(r"[\w.-]+", requirement)[0].lower()  # type: ignore[index]


def asked(*extras: str) -> set[str]:
    """The packages that extras of ours name, and those extras that they are made of."""
    found = set()
    for extra in extras:
        for line in PROJECT["dependencies"] if extra == "dependencies" else EXTRAS[extra]:
            inner = re.fullmatch(r"modelkeeper\[(.*)\]", line)
            found |= asked(*inner[1].split(",")) if inner else {package(line)}
    return found


def test_the_core_asks_for_what_transfer_needs_and_no_more() -> None:
    """That it can do without the rest, tests/test_extras.py shows."""
    assert asked("dependencies") == {"ml-dtypes", "msgspec", "numpy", "rich"}


def test_the_extra_all_is_all_that_go_together() -> None:
    tools = {"docs", "evaluation", "lint", "test"}
    apart = {"autokeras", "fastai"}
    inside = {name for line in EXTRAS["all"] for name in line[len("modelkeeper[") : -1].split(",")}
    assert inside == EXTRAS.keys() - tools - apart - {"all"}
    assert not asked("zoo", "server") & {"torch", "keras", "tensorflow-cpu", "jax", "onnx"}


def pins() -> list[tuple[str, str]]:
    """Names and versions in constraints.txt."""
    text = (ROOT / "constraints.txt").read_text()
    return [
        (name.lower().replace("_", "-"), version)
        for name, version in re.findall(r"^(\S+)==(\S+)$", text, re.M)
    ]


def test_constraints_are_pins() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:1] != "#"]
    assert len(pins()) == len(lines) > 100


def test_every_file_of_the_container_is_pinned_by_its_hash() -> None:
    text = (ROOT / "deploy" / "requirements.txt").read_text()
    blocks = re.findall(r"^(\S+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.M)
    comments = [line for line in text.splitlines() if line.startswith("#")]
    written = sum(1 + hashes.count("\n") for _, _, hashes in blocks)
    assert written + len(comments) == len(text.splitlines()), "lines that are no pins"
    constraints = dict(pins())
    assert {name: version for name, version, _ in blocks} == {
        name: constraints[name] for name, _, _ in blocks
    }, "run `make hashes`"
    names = asked("dependencies", "server", "postgresql") | set(map(package, BUILD))
    assert names - {name for name, _, _ in blocks} == set(), "run `make hashes`"


def test_each_file_of_others_has_its_licence_beside_it() -> None:
    kept = [
        path for folder in (VENDOR, SHOWN, IN_DOCS) for path in (ROOT / folder).rglob("*") if path.is_file()
    ]
    assert len(kept) >= 5
    for path in kept:
        licence = path.with_name(f"{path.name.partition('.')[0]}.LICENSE.txt")
        assert "copyright" in licence.read_text().lower() or "Mozilla" in licence.read_text(), path


def test_what_others_wrote_and_we_keep_is_what_was_looked_at() -> None:
    kept = {
        path for folder in (VENDOR, SHOWN, IN_DOCS) for path in (ROOT / folder).rglob("*") if path.is_file()
    }
    looked_at = {ROOT / here: expected for package in KEPT for here, expected in package.kept.values()}
    assert kept == looked_at.keys()
    for path, expected in looked_at.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == expected, f"{path}: make vendor"
