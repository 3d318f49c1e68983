"""Front ends are found by entry points and imported when a model comes; a broken one harms no other."""

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch import nn

from modelkeeper.errors import UnknownFramework
from modelkeeper.frontends import frontend_for, register, registry, unregister
from modelkeeper.frontends.torch import FRONTEND, TorchFrontend
from modelkeeper.plugins import Registry


class Model:
    """Of a framework that nobody knows."""


class Known(TorchFrontend):
    name = "known"

    def takes(self, model: object) -> bool:
        return isinstance(model, Model)


class Clumsy(Known):
    def takes(self, model: object) -> bool:
        raise RuntimeError("never thought of that")


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> str:
    """A third party's package with front ends, and the package that defines `Model`."""
    module: Any = ModuleType("third_party")
    module.GOOD, module.CLUMSY, module.NONE = Known(), Clumsy(), object()
    monkeypatch.setitem(sys.modules, "third_party", module)
    return Model.__module__.partition(".")[0]


def declare(monkeypatch: pytest.MonkeyPatch, name: str, *values: str) -> None:
    known = registry.FRONTENDS
    frontends = Registry(known.what, known.group, known.built_in, replaceable=True)
    entries = tuple(EntryPoint(name, value, known.group) for value in values)
    monkeypatch.setitem(frontends.__dict__, "_installed", entries)
    monkeypatch.setattr(registry, "FRONTENDS", frontends)


def test_an_entry_point_adds_a_front_end(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownFramework, match="Model is no model of a known framework"):
        frontend_for(Model())
    declare(monkeypatch, package, "third_party:GOOD")
    assert frontend_for(Model()).name == "known"
    assert frontend_for(nn.Linear(1, 1)) is FRONTEND


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("no_such_package:FRONTEND", "ModuleNotFoundError"),
        ("third_party:MISSING", "AttributeError"),
        ("third_party:NONE", "it has no name, runner"),
        ("third_party:CLUMSY", "never thought of that"),
    ],
)
def test_a_broken_entry_point_is_named_and_others_work(
    package: str, value: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, package, value, "third_party:GOOD")
    with pytest.warns(RuntimeWarning, match=f"{package} = {value} cannot be used: .*{problem}"):
        assert frontend_for(Model()).name == "known"
    declare(monkeypatch, package, value)
    with pytest.warns(RuntimeWarning, match="cannot be used"), pytest.raises(UnknownFramework, match=package):
        frontend_for(Model())


def test_an_entry_point_that_cannot_be_loaded_is_named_once(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, package, "no_such_package:FRONTEND", "third_party:GOOD")
    with pytest.warns(RuntimeWarning, match="the front end .* cannot be used") as caught:
        frontend_for(Model())
    assert [Path(warning.filename) for warning in caught] == [Path(__file__)]
    assert frontend_for(Model()).name == "known"  # a second warning would be an error


def test_an_entry_point_of_another_framework_is_not_imported(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, "keras", "no_such_package:FRONTEND")
    assert frontend_for(nn.Linear(1, 1)) is FRONTEND
    with pytest.raises(UnknownFramework, match="keras, onnx, torch"):
        frontend_for(Model())


@pytest.fixture
def registered() -> Iterator[Known]:
    frontend = Known()
    register(frontend)
    yield frontend
    unregister("known")


def test_what_is_registered_is_asked_first_and_can_go_again(registered: Known) -> None:
    assert frontend_for(Model()) is registered
    replacement = Known()
    register(replacement)
    assert frontend_for(Model()) is replacement
    unregister("known")
    with pytest.raises(UnknownFramework):
        frontend_for(Model())


def test_what_is_registered_may_have_the_name_of_what_is_built_in() -> None:
    replacement = TorchFrontend()
    register(replacement)
    assert frontend_for(nn.Linear(1, 1)) is replacement
    unregister(replacement.name)
    assert frontend_for(nn.Linear(1, 1)) is FRONTEND


def test_what_is_no_front_end_cannot_be_registered() -> None:
    wrong: Any = object()
    with pytest.raises(TypeError, match="object is no front end: it has no name"):
        register(wrong)


def test_an_installed_package_is_found_by_its_metadata(tmp_path: Path) -> None:
    """In a process of its own, with metadata as an installer writes them."""
    (tmp_path / "fake_framework.py").write_text("class Model: ...\n")
    (tmp_path / "adapter.py").write_text(
        "from modelkeeper.frontends.torch import TorchFrontend\n"
        "class Fake(TorchFrontend):\n"
        "    name = 'fake'\n"
        "    def takes(self, model): return type(model).__name__ == 'Model'\n"
        "FRONTEND = Fake()\n"
    )
    info = tmp_path / "adapter-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: adapter\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[modelkeeper.frontends]\nfake_framework = adapter:FRONTEND\n")
    code = (
        "import sys; from modelkeeper.frontends import frontend_for; import fake_framework;"
        "assert 'torch' not in sys.modules; print(frontend_for(fake_framework.Model()).name)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("fake\n", "")
