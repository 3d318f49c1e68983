"""A plan as figures: what is taken from the parent, what each action covers, as data and as bytes."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from modelkeeper.drawings import COLOURS
from modelkeeper.graph import Graph
from modelkeeper.transform import make_plan
from modelkeeper.transform.plan import ACTIONS, Entry, Plan
from tests.helpers.perceptrons import chain

EMPTY = Graph("test", ())


def plan(*entries: Entry, doubts: tuple[str, ...] = ()) -> Plan:
    return replace(make_plan(EMPTY, EMPTY, ()), entries=entries, doubts=doubts)


def entry(name: str, action: str, parameters: int, source: str = "") -> Entry:
    layer = name.partition(".")[0]
    return Entry(tensor=name, layer=layer, action=action, parameters=parameters, source=source)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    actions = draw(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(ACTIONS), st.integers(0, 50))))
    return plan(
        *(
            entry(f"{layer}.{number}", action, parameters, "" if action in ("inserted", "kept") else "x")
            for number, (layer, action, parameters) in enumerate(actions)
        )
    )


@given(plans())
def test_the_actions_cover_everything_once(made: Plan) -> None:
    summary = made.summary()
    assert set(summary) == {entry.action for entry in made.entries}
    assert list(summary) == [action for action in ACTIONS if action in summary]
    assert sum(row["tensors"] for row in summary.values()) == len(made.entries)
    assert sum(row["parameters"] for row in summary.values()) == sum(
        entry.parameters for entry in made.entries
    )
    assert sum(row["layers"] for row in summary.values()) == len({entry.layer for entry in made.entries})
    if made.entries:
        assert sum(row["percent_of_layers"] for row in summary.values()) == pytest.approx(100, abs=0.1)
    assert 0 <= made.coverage <= 1


def test_a_layer_counts_for_the_action_that_most_of_its_numbers_are_under() -> None:
    made = plan(
        entry("fc.weight", "widened", 90, "fc.weight"),
        entry("fc.bias", "kept", 10),
        entry("head.weight", "kept", 100),
    )
    assert made.summary() == {
        "widened": {"tensors": 1, "layers": 1, "parameters": 90, "percent": 45.0, "percent_of_layers": 50.0},
        "kept": {"tensors": 2, "layers": 1, "parameters": 110, "percent": 55.0, "percent_of_layers": 50.0},
    }


def test_a_layer_without_numbers_counts_for_an_action_that_its_tensors_have() -> None:
    made = plan(entry("empty.weight", "kept", 0), entry("fc.weight", "copied", 5, "fc.weight"))
    assert {action: row["layers"] for action, row in made.summary().items()} == {"copied": 1, "kept": 1}
    alone = plan(entry("empty.weight", "kept", 0)).summary()
    assert alone["kept"]["layers"] == 1
    assert alone["kept"]["percent_of_layers"] == 100


def test_inserted_identities_are_not_taken_from_the_parent() -> None:
    made = plan(entry("a.weight", "copied", 30, "a.weight"), entry("b.weight", "inserted", 10))
    assert made.coverage == 0.75
    assert plan().coverage == 0


@given(plans())
def test_the_report_is_the_plan_as_plain_data(made: Plan) -> None:
    report = json.loads(made.to_json())
    assert report == made.report()
    assert report["exact"] == made.exact is True
    assert [row["tensor"] for row in report["entries"]] == [entry.tensor for entry in made.entries]


def test_one_doubt_is_enough() -> None:
    assert not plan(doubts=("units are dropped",)).exact
    assert plan(doubts=("units are dropped",)).report()["doubts"] == ["units are dropped"]


def test_a_single_number_is_all_of_a_plan() -> None:
    made = plan(entry("scale.factor", "copied", 1, "scale.factor"))
    assert made.coverage == 1
    assert made.summary()["copied"] == {
        "tensors": 1, "layers": 1, "parameters": 1, "percent": 100.0, "percent_of_layers": 100.0
    }  # fmt: skip


def test_figures_are_rounded_for_people() -> None:
    made = plan(entry("a.w", "copied", 1, "a.w"), entry("b.w", "kept", 5), entry("c.w", "kept", 0))
    assert made.summary()["copied"]["percent"] == 16.67
    assert made.summary()["kept"]["percent_of_layers"] == 66.67
    assert made.report()["coverage"] == 0.1667
    assert made.verdict() == "16.7 % of the numbers are lent; exact"
    doubtful = plan(entry("a.w", "copied", 1, "a.w"), doubts=("units are dropped", "a mask differs"))
    assert doubtful.verdict() == "100.0 % of the numbers are lent; approximate (units are dropped)"


def test_of_equal_actions_a_layer_counts_for_the_first_by_name_in_order() -> None:
    made = plan(entry("fc.weight", "kept", 5), entry("fc.bias", "widened", 5, "x"))
    assert {action: row["layers"] for action, row in made.summary().items()} == {"widened": 1, "kept": 0}


def test_a_picture_shows_who_lends_to_whom_and_how() -> None:
    """Layers that own tensors alone; what takes the maps of another tensor is lent by its lender."""
    made = replace(
        make_plan(chain(4, 4), chain(4, 6), [(1, 1), (3, 3)]),
        entries=(
            entry("l0.weight", "copied", 12, "l0.weight"),
            entry("l0.bias", "kept", 4),
            replace(entry("l1.weight", "inserted", 24), like="l2.weight"),
            entry("l2.weight", "widened", 12, "l2.weight"),
            entry("l2.bias", "kept", 12),
        ),
    )
    shown = str(made.plot())
    notes = re.findall(r"<title>(.*?)</title>", shown)
    assert notes == ["l0 4×3", "l1 not lent", "l2 2×4", "l0 copied 4×3", "l1 inserted 6×4", "l2 widened 2×6"]
    wires = re.findall(r'd="M\d+ ([\d.]+)C.*? ([\d.]+)" fill="none" stroke="(#\w+)"', shown)
    rows = {54.0: 0, 74.0: 1, 94.0: 2}
    assert [(rows[float(left)], rows[float(right)], colour) for left, right, colour in wires] == [
        (0, 0, COLOURS["copied"]), (2, 1, COLOURS["inserted"]), (2, 2, COLOURS["widened"])
    ]  # fmt: skip
    empty = replace(made, entries=())
    assert "l0 kept 4×3" in re.findall(r"<title>(.*?)</title>", str(empty.plot()))
