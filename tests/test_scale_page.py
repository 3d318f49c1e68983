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


def test_results_of_any_form_are_shown_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_page, "RESULTS", tmp_path)
    (tmp_path / "shards.json").write_text('{"shards": [{"count": 8, "ms": {"p50": 1234.5}}], "note": "x"}')
    said = scale_page.others()
    assert "| shards 1, ms, p50 | 1,230 |" in said
    assert "[shards.json](../benchmarks/results/shards.json)" in said
