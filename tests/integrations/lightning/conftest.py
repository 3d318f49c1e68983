"""What Lightning warns of among itself, and of how quick these trainings are, is no warning of ours."""

import pytest

FOREIGN = (
    r"ignore:The '\w+' does not have many workers:UserWarning",
    r"ignore:The number of training batches:UserWarning",
    r"ignore:.*`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning",
    r"ignore:Be aware that when using `ckpt_path`:UserWarning",  # of its own ModelCheckpoint
    r"ignore:Checkpoint directory .* exists and is not empty:UserWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Only the tests of this folder: it is called for all that were collected."""
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            for text in FOREIGN:
                item.add_marker(pytest.mark.filterwarnings(text))
