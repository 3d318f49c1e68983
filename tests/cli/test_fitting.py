"""Tables in narrow terminals: whole columns go, and what is left can be read."""

import pytest

from modelkeeper.cli.tables import events, records, starts
from modelkeeper.zoo.catalog.starts import Start
from modelkeeper.zoo.records import Event, Record
from tests.display.test_tables import printed

MODEL = Record(
    id="0123456789abcdef", name="resnet20", owner="ada", framework="torch", parameters=12_000, bytes=47_000,
    fingerprint="", graph="", checksum="", created=0.0, last_used=0.0, data="digits", task="classification",
    metric="accuracy", value=0.9537,
)  # fmt: skip


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_list_of_models_is_legible_at_any_width(width: int) -> None:
    text = printed(records([MODEL], 1), width)
    for word in (MODEL.id, "resnet20", "digits", "accuracy 0.9537"):
        assert word in text
    assert max(map(len, text.splitlines())) <= width


def test_what_was_left_out_is_said() -> None:
    assert "Left out, as the terminal is narrow: framework, size" in printed(records([MODEL], 1), 80)
    assert "Left out" not in printed(records([MODEL], 1), 160)


def test_an_empty_list_leaves_nothing_out_that_fits() -> None:
    assert "task" in printed(records([], 0), 80)


def test_starts_and_events_keep_ids_whole() -> None:
    start = Start(
        id="fedcba9876543210", at=0.0, child="f00", user="ada", data="digits", task="classification",
        parents=(MODEL.id,), similarity=0.85, exact=True, schedule=0.25, model="00112233445566ff",
    )  # fmt: skip
    text = printed(starts([start]), 80)
    assert MODEL.id in text
    assert "00112233445566ff" in text
    event = Event(at=0.0, action="registered", model=MODEL.id, user="ada", detail="words " * 30)
    assert MODEL.id in printed(events([event]), 80)
