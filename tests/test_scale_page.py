"""docs/scale.md says what was measured, and nothing else."""

import re
from pathlib import Path

import pytest

from benchmarks import scale_page


def test_the_page_is_what_the_results_say() -> None:
    page = scale_page.PAGE.read_text()
    assert scale_page.filled(page) == page, "results are newer than docs/scale.md: make scale-page"


def test_prices_in_words_are_those_that_are_counted_with() -> None:
    words = " ".join(scale_page.PAGE.read_text().split())
    assert (
        f"a machine of {scale_page.MACHINE_CORES} cores and {scale_page.MACHINE_GB} GB at "
        f"{scale_page.MACHINE_DOLLARS:g} $ a month, {scale_page.STORE_DOLLARS:g} $ a month for a TB"
    ) in words
    assert f"{scale_page.DATABASE_DOLLARS:g} $ a month for a GB" in words
    assert f"{scale_page.MODEL_MB:g} MB of weights a model, {scale_page.RECORD_KB:g} kB" in words


def test_without_results_the_page_claims_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_page, "RESULTS", tmp_path)
    made = {name: make() for name, make in scale_page.tables().items()}
    assert all(not re.search(r"\d", text.replace("soak ARGS", "")) for text in made.values())


def test_tables_say_what_speaks_against_us_beside_the_rest() -> None:
    """First-time queries, strangers of a zoo of many architectures, what Serve's proxy keeps, all sizes."""
    made = {name: make() for name, make in scale_page.tables().items()}
    assert "first time, p50 ms" in made["queries"]
    for database in ("SQLite", "PostgreSQL"):
        assert f"| {database} | strangers, budget 256 |" in made["queries"]
    largest = (scale_page.read("matching") or {})["zoos"][-1]
    slowest = largest["queries"]["without relatives, 1 core"]["ms"]["max"]
    assert f"{slowest:,.0f} (the slowest of" in made["queries"]
    assert "| Ray: back from what it saved, s |" in made["shards"]
    assert "shared memory" in made["serving"]
    assert "wrong answers, lost models | 0 |" in made["soak"]
    assert not re.search(r"the first \d+ of", scale_page.PAGE.read_text())
