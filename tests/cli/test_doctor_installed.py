"""What is installed: requirements against versions, and frameworks that do not work."""

import sys
from importlib import metadata

import pytest

from modelkeeper.cli import doctor_installed
from modelkeeper.cli.doctor_installed import FAIL, OK, WARN, installed, requirements, unfit


@pytest.mark.parametrize(
    ("version", "requirement", "problem"),
    [
        ("3.12.0", "keras>=3.12,<3.13", None),
        ("3.15.1", "keras>=3.12,<3.13", "keras is 3.15.1, not <3.13"),
        ("2.13.0+cpu", "torch>=2.6", None),
        ("2.5.1", "torch>=2.6", "torch is 2.5.1, not >=2.6"),
        ("2.0", "torch>=2.0.0", None),
        ("2.60.0", "ray[train,tune]>=2.40", None),
        ("4.1", "sample!=4.1", "sample is 4.1, not !=4.1"),
    ],
)
def test_bounds_are_compared_number_by_number(
    version: str, requirement: str, problem: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: version)
    assert unfit(requirement) == problem


def test_what_is_not_installed_is_no_wrong_version() -> None:
    assert unfit("no-such-package-of-ours>=1") == ""


def test_our_own_requirements_are_read_from_the_metadata() -> None:
    named = {line.partition(">")[0].strip() for line in requirements()}
    assert named == {"ml-dtypes", "msgspec", "numpy", "rich"}
    assert any(line.startswith("fastapi") for line in requirements("server"))


def test_a_known_bad_version_is_a_warning_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_installed, "_DEVICES", {})
    kept = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.1" if name == "httpx" else kept(name))
    [row] = [row for row in installed() if row.check == "versions"]
    assert row.state == WARN
    assert "httpx is 0.1, not >=0.28 (zoo)" in row.found
    assert "'.[zoo]'" in row.advice


def test_no_advice_installs_what_an_index_calls_modelkeeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is another project: by name, modelkeeper is named only to add an extra to what is installed."""
    monkeypatch.setattr(doctor_installed, "_DEVICES", {})
    monkeypatch.setitem(sys.modules, "modelkeeper._native", None)
    monkeypatch.delattr("modelkeeper._native", raising=False)
    [row] = [row for row in installed() if row.check == "native module"]
    assert row.state == FAIL
    assert row.advice.endswith(" --no-deps .")


def test_a_framework_that_cannot_be_imported_is_a_failure_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = {"numpy": "raise OSError('libbroken.so: not found')", "msgspec": "found = ['cpu']"}
    monkeypatch.setattr(doctor_installed, "_DEVICES", broken)
    rows = {row.check: row for row in installed()}
    assert rows["numpy"].state == FAIL
    assert "libbroken.so" in rows["numpy"].found
    assert (rows["msgspec"].state, rows["msgspec"].advice) == (OK, "")
    assert rows["msgspec"].found.endswith(", cpu")
