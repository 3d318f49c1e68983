"""Small models of Hugging Face's, data for them, and what their packages warn of among themselves."""

import os

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test asks the hub

FOREIGN = (
    # A DataLoader for a GPU that is not there.
    r"ignore:'pin_memory' argument is set as true but no accelerator:UserWarning:torch",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Only the tests of this folder: it is called for all that were collected."""
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            for text in FOREIGN:
                item.add_marker(pytest.mark.filterwarnings(text))
