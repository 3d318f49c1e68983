"""A short soak: the service is killed while clients register and query. `make soak` runs it for long."""

from pathlib import Path

from benchmarks.helpers.soaking import soak


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    tally = soak(8.0, 4, tmp_path)
    assert tally.wrong == []
    assert tally.counts["kills"] >= 1
    assert tally.counts["registered"] + tally.counts["sent later"] > 0
