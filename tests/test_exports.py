"""What users may import. A change here is a change for them: say so in CHANGELOG.md."""

import importlib
import pkgutil

import pytest

import modelkeeper

EXPORTS = {
    "modelkeeper": [
        "KeeperWarning",
        "ModelKeeperClient",
        "ModelKeeperError",
        "Report",
        "__version__",
        "import_models",
        "transfer",
    ],
    "modelkeeper.graph": [
        "Atom",
        "Axis",
        "Concat",
        "Edge",
        "Expression",
        "Fixed",
        "Graph",
        "Layer",
        "Note",
        "Pin",
        "Product",
        "Space",
        "Tensor",
        "consumers",
        "from_json",
        "leaves",
        "to_json",
        "walk",
    ],
    "modelkeeper.transform": [
        "Decisions",
        "Entry",
        "Plan",
        "SideBySide",
        "apply",
        "lay",
        "make_plan",
        "side_by_side",
    ],
    "modelkeeper.integrations.keras": ["WarmStart"],
    "modelkeeper.frontends": ["Frontend", "describe", "frontend_for", "register", "unregister"],
    "modelkeeper.frontends.onnx": ["FRONTEND", "OnnxModel", "describe", "load", "open_onnx", "read", "save"],
    "modelkeeper.frontends.torch": [
        "EXAMPLES",
        "FRONTEND",
        "Program",
        "TorchFrontend",
        "calibrate",
        "collect",
        "describe",
        "difference",
        "duplicate",
        "example",
        "example_of",
        "labelled",
        "load",
        "read",
        "recalibrate",
        "record_program",
        "run",
    ],
}


@pytest.mark.parametrize("name", EXPORTS)
def test_a_module_exports_just_this(name: str) -> None:
    module = importlib.import_module(name)
    assert sorted(module.__all__) == EXPORTS[name]
    assert all(hasattr(module, each) for each in module.__all__)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # fastai, if nobody has imported it yet
def test_what_a_package_exports_is_there() -> None:
    names = [info.name for info in pkgutil.walk_packages(modelkeeper.__path__, "modelkeeper.") if info.ispkg]
    for module in map(importlib.import_module, names):
        missing = [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)]
        assert not missing, module.__name__


def test_the_version_is_that_of_the_installed_package() -> None:
    assert modelkeeper.__version__ == importlib.import_module("importlib.metadata").version("modelkeeper")
    with pytest.raises(AttributeError, match="has no attribute 'versoin'"):
        modelkeeper.versoin
