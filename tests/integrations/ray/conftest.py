"""A cluster of Ray on this machine, once for all; what Ray warns of among itself is no warning of ours."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray")

FOREIGN = (
    r"ignore::DeprecationWarning:ray",
    r"ignore::FutureWarning:ray",
    r"ignore::ResourceWarning:ray",
    r"ignore:unclosed:ResourceWarning",
    r"ignore::pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Only the tests of this folder: it is called for all that were collected."""
    for item in items:
        if item.path.is_relative_to(__file__.rpartition("/")[0]):
            item.add_marker(pytest.mark.xdist_group("ray"))  # one cluster, where groups are asked for
            for text in FOREIGN:
                item.add_marker(pytest.mark.filterwarnings(text))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two workers; nothing of it is left."""
    if " " in sys.executable:
        pytest.skip(
            f"Ray starts no workers by a path with a space, and waits for them for ever: {sys.executable}"
        )
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_AIR_NEW_OUTPUT": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ |= {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1"}
    place = str(Path(__file__).parents[3])
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100_000_000,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": place, "OMP_NUM_THREADS": "1"}},
    )
    yield ray
    ray.shutdown()
