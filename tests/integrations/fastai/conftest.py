"""What fastai warns of, when it is imported and later, is no warning of ours."""

import contextlib
import warnings

import pytest

with warnings.catch_warnings(), contextlib.suppress(ModuleNotFoundError):
    warnings.simplefilter("ignore")  # torch.jit.script is deprecated, and more of the kind
    import fastai.callback.schedule
    import fastai.callback.tracker
    import fastai.metrics  # noqa: F401


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Only the tests of this folder: it is called for all that were collected."""
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):  # its files of weights name numpy.core
            item.add_marker(pytest.mark.filterwarnings("ignore:numpy.core is deprecated:DeprecationWarning"))
