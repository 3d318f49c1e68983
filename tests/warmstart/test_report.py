"""Reports: what an answer says of one parent, and of several."""

import msgspec

from modelkeeper.warmstart.answer import Answer, Parent, Rival
from modelkeeper.warmstart.pipeline import _lost
from modelkeeper.warmstart.race.rules import Race
from modelkeeper.warmstart.report import report
from tests.display.test_tables import printed

A = Parent(
    id="1" * 16, name="A", similarity=0.5, metric="accuracy", value=0.85, data="digits", framework="torch"
)
B = Parent(id="2" * 16, name="B", similarity=0.25, metric="accuracy", value=0.8)
C = Parent(id="3" * 16, name="C", similarity=0.125)


def lines_of(given: Answer) -> list[str]:
    """The lines of a report, if the terminal were as wide as they are."""
    return [line.rstrip() for line in printed(report(given)).splitlines()]


def answer(*parents: Parent, exact: bool = True, dry_run: bool = False) -> Answer:
    fields = {
        name: getattr(parents[0], name) for name in ("similarity", "metric", "value", "data", "framework")
    }
    return Answer(
        parent=parents[0].id,
        parent_name=parents[0].name,
        parents=parents if len(parents) > 1 else (),
        reason="they fit",
        exact=exact,
        dry_run=dry_run,
        **fields,
    )


def test_one_parent() -> None:
    lines = lines_of(answer(A))
    assert lines[0] == (
        f"The model starts warm from A ({A.id}), a torch model: similarity 0.500, accuracy 0.85 on digits."
    )
    assert "Exact: before any training it computes what the parent computes." in lines
    assert answer(A).parents == (A,)


def test_what_a_cold_start_is_for_is_said_once() -> None:
    given = Answer(reason="the keeper could not help: it is down", warnings=("it is down.", "it is slow."))
    assert lines_of(given) == ["Cold start: the keeper could not help: it is down.", "Note: it is slow."]


def test_ids_of_runners_up_are_whole_in_a_narrow_terminal() -> None:
    why = "expected benefit 0.251 below 0.875 (standing 0.50, similarity 0.78, not exact)"
    rival = Rival(id="3" * 16, name="cnn24x2", similarity=0.7, metric="accuracy", value=0.9537, why=why)
    given = msgspec.structs.replace(answer(A), runners_up=(rival,))
    for width in (60, 80):
        assert f"({rival.id})" in printed(report(given), width)


def test_several_parents() -> None:
    lines = lines_of(answer(A, B))
    assert lines[:3] == [
        f"The model starts warm from A ({A.id}) and B ({B.id}), side by side:",
        "  A: a torch model, similarity 0.500, accuracy 0.85 on digits",
        "  B: similarity 0.250, accuracy 0.8",
    ]
    assert "Exact: before any training it computes the mean of what A and B compute." in lines
    lines = lines_of(answer(A, B, C, dry_run=True))
    assert lines[0].startswith(f"The model would start warm from A ({A.id}), B ({B.id}) and C ({C.id}), side")
    assert "Exact: before any training it computes the mean of what A, B and C compute." in lines
    assert "Approximate, since:" in str(answer(A, B, exact=False))


def test_answers_travel_with_all_their_parents() -> None:
    sent = msgspec.json.encode(answer(A, B))
    assert msgspec.json.decode(sent, type=Answer) == answer(A, B)
    plain = answer(A, B).to_dict()["parents"]
    assert [parent["id"] for parent in plain] == [A.id, B.id]
    assert answer(A, B)["parents"] == (A, B)


def test_parents_that_lost_a_race_are_all_runners_up() -> None:
    race = Race("cold", (), 10, 1.0)
    lost = _lost(answer(A, B), race)
    assert lost.cold
    assert lost.parents == ()
    assert [rival.name for rival in lost.runners_up] == ["A", "B"]
    assert "starting from A and B was not ahead" in lost.reason
