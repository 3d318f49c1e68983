"""Is everything that a package exports there? What is public, docs/stability.md says: see test_release.py."""

import importlib
import pkgutil

import pytest

import modelkeeper


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # fastai, if nobody has imported it yet
@pytest.mark.filterwarnings(
    "ignore:Using extra keyword arguments on .Field:DeprecationWarning"
)  # Ray, likewise
def test_what_a_package_exports_is_there() -> None:
    names = [info.name for info in pkgutil.walk_packages(modelkeeper.__path__, "modelkeeper.") if info.ispkg]
    for module in map(importlib.import_module, names):
        missing = [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)]
        assert not missing, module.__name__


def test_the_version_is_that_of_the_installed_package() -> None:
    assert modelkeeper.__version__ == importlib.import_module("importlib.metadata").version("modelkeeper")
    with pytest.raises(AttributeError, match="has no attribute 'versoin'"):
        modelkeeper.versoin
