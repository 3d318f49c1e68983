"""Three coordinators behind nginx over PostgreSQL and S3, as compose.yaml has them, while all parts fail.

`make soak ARGS=--replicas` does the same for longer.
"""

from pathlib import Path

import pytest

from benchmarks.helpers.soaking_replicas import soak_replicas
from tests.helpers.parts import or_skip

CLIENTS = 16


@pytest.mark.slow
@pytest.mark.xdist_group("topology")  # it takes both cores: one at a time
def test_nothing_is_lost_and_every_client_goes_on(tmp_path: Path) -> None:
    """A replica is killed every 10 s, PostgreSQL and S3 are restarted, PostgreSQL hangs; round robin.

    All that was acknowledged is in the catalog, and in the store with its bytes; what waited in spools was
    sent; what was lent and downloaded was right; every client succeeded after every fault.
    """
    with or_skip():
        tally = soak_replicas(40.0, CLIENTS, tmp_path, timeout=30.0)  # a busy machine is no fault
    assert tally.wrong == []
    assert [fault.what for fault in tally.faults] == [
        "replica SIGKILL",
        "postgres restarted",
        "replica SIGTERM",
        "s3 restarted",
        "replica SIGKILL",
        "postgres hangs",
        "replica SIGTERM",
    ]
    assert len(tally.finished) == CLIENTS
    assert len(tally.acknowledged) >= CLIENTS
    assert tally.counts["compared"] >= CLIENTS
    assert tally.counts["downloaded"] > 0
