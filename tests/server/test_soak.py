"""A short soak: the service is killed while clients register and query, beside others who mean harm."""

from pathlib import Path

from benchmarks.helpers.soaking import soak


def test_nothing_acknowledged_is_lost_and_nobody_honest_refused(tmp_path: Path) -> None:
    tally = soak(10.0, 3, tmp_path, idle=100, between_kills=(3.0, 6.0))
    assert tally.wrong == []
    assert tally.counts["kills"] >= 1
    assert tally.counts["registered"] + tally.counts["sent later"] > 0
    assert tally.counts["hostile: wrong tokens"] > 0
    assert tally.counts["hostile: heavy queries"] > 0
