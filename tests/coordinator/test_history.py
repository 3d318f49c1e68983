"""What a zoo notes of what happened in it, asked in process and over HTTP, and who may know what of that."""

import dataclasses
import time
from pathlib import Path

import msgspec
import pytest

from modelkeeper.coordinator import Coordinator
from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import DiskFull, InvalidMeta, ModelRefused, NotAllowed, UnknownModel
from modelkeeper.meta import Query
from modelkeeper.policy.curves import Curve, Point
from modelkeeper.settings import Settings
from modelkeeper.warmstart.race.rules import Race, Runner
from modelkeeper.zoo.catalog.starts import Start, StartFilter
from modelkeeper.zoo.history.savings import Saved
from modelkeeper.zoo.records import Record
from tests.helpers.service import Team, network, tensors, told

ASKED = Query(data="digits", task="classification", minimum_similarity=0.3)
GRAPH, CHILD = network(8), network(12)


# -- events -------------------------------------------------------------------------------------


def test_the_log_says_to_programs_what_was_lent_and_refused(coordinator: Coordinator) -> None:
    for number in range(4):
        good, weights = told(f"net{number}", 0.9 + number / 1000), tensors(GRAPH, number)
        coordinator.register(GRAPH, good, weights.items(), owner=f"ada{number}")
    answer = coordinator.query(CHILD, ASKED).answer
    said = {"child": CHILD.fingerprint, "similarity": answer.similarity, "start": answer.start}
    [lent] = coordinator.log(action="lent")
    assert lent.data == said
    assert lent.number > coordinator.log(action="registered")[0].number > 0
    with pytest.raises(ModelRefused):
        coordinator.register(GRAPH, told("poor", 0.1), tensors(GRAPH, 9).items(), owner="bob")
    [refused] = coordinator.log(action="refused")
    assert refused.user == "bob"
    said = {name: refused.data[name] for name in ("name", "owner", "metric", "value", "fingerprint")}
    assert said == {
        "name": "poor",
        "owner": "bob",
        "metric": "accuracy",
        "value": 0.1,
        "fingerprint": GRAPH.fingerprint,
    }
    assert refused.data["bytes"] > 0
    assert refused.data["reason"] in refused.detail
    gone = coordinator.remove("net0")
    [removed] = coordinator.log(action="removed")
    assert removed.data == {"name": "net0", "owner": gone.owner, "bytes": gone.bytes}
    assert removed.to_dict()["data"] == removed.data


def test_what_a_model_was_lent_to_is_not_for_all_who_see_the_model(keeper: Team) -> None:
    """The fingerprint of somebody's model would say which architecture it has."""
    ada, bob, admin = keeper.join("ada"), keeper.join("bob"), keeper.join("root", "admin")
    bob.register(GRAPH, told("net"), tensors(GRAPH).items())
    assert not ada.query(CHILD, ASKED).answer.cold
    for who, knows in ((ada, True), (admin, True), (bob, False)):
        [lent] = who.log(action="lent")
        assert lent.user == "ada"
        assert (lent.data.get("child") == CHILD.fingerprint) is knows
        assert "similarity" in lent.data
        assert (CHILD.fingerprint in str(msgspec.to_builtins(who.log()))) is knows
    keeper.accounts.remove_user("ada")
    again = keeper.join("ada")  # somebody else of the same name
    assert all("child" not in event.data for event in again.log())


def test_who_administers_says_to_programs_what_they_did(keeper: Team) -> None:
    admin, ada = keeper.join("root", "admin"), keeper.join("ada", models=7)
    keeper.accounts.add_project("vision", ["ada"])
    keeper.accounts.remove_project("vision")
    said = [event.data for event in admin.log(action="administered")]
    assert [data["change"] for data in said[:3]] == ["removed", "joined", "added"]
    assert said[1] == {"change": "joined", "user": "ada", "project": "vision"}
    [added] = [
        data for data in said if data["change"] == "added" and data.get("user") == "ada" and "id" in data
    ]
    assert added["quotas"] == {"models": 7}
    [token] = [data for data in said if data.get("scope") == "write"]
    assert not any(token["token"] in str(event) for event in ada.log())
    record = ada.register(GRAPH, told("net"), tensors(GRAPH).items()).record
    admin.pin(record.id)
    [pinned] = ada.log(action="pinned")
    assert (pinned.user, pinned.data["owner"], pinned.data["name"]) == ("root", "ada", "net")


# -- curves -------------------------------------------------------------------------------------

POINTS = tuple(Point(step, step / 2, 0.5 + step / 1000) for step in range(200))
CURVE = Curve(metric="accuracy", points=POINTS)


def test_how_a_training_went_is_kept_beside_the_model(coordinator: Coordinator) -> None:
    said = msgspec.structs.replace(told("net"), curve=CURVE)
    record = coordinator.register(GRAPH, said, tensors(GRAPH).items()).record
    assert coordinator.curve(record) == CURVE
    without = coordinator.register(GRAPH, told("other"), tensors(GRAPH, 1).items()).record
    assert coordinator.curve(without) is None
    coordinator.remove("net")
    assert coordinator.curve(record) == CURVE, "the record stays, and what it says"
    too_long = Curve(metric="accuracy", points=(*POINTS, Point(200, 100.0, 0.7)))
    for wrong in (too_long, Curve(metric="a\nb", points=POINTS[:1])):
        bad = msgspec.structs.replace(told("bad"), curve=wrong)
        with pytest.raises(InvalidMeta):
            coordinator.register(GRAPH, bad, tensors(GRAPH, 2).items())


def test_the_last_version_of_a_training_has_the_curve_of_all(coordinator: Coordinator) -> None:
    run = msgspec.structs.replace(told("net"), run="a" * 16, finished=False)
    records: list[Record] = []
    for points, finished in ((POINTS[:3], False), (POINTS[:5], False), (POINTS[7:9], True)):
        curve = Curve(metric="accuracy", points=points)
        said = msgspec.structs.replace(run, curve=curve, finished=finished)
        weights = tensors(GRAPH, len(records))
        records.append(coordinator.register(GRAPH, said, weights.items()).record)
    drawn = coordinator.curve(records[-1])
    assert drawn is not None
    assert [point.step for point in drawn.points] == [0, 1, 2, 3, 4, 7, 8]
    assert drawn.points[-1].seconds == POINTS[4].seconds + POINTS[8].seconds
    assert coordinator.curve(records[0]) is None


def test_who_may_not_see_a_model_does_not_see_its_curve(keeper: Team) -> None:
    ada, bob, partner = keeper.join("ada"), keeper.join("bob"), keeper.join("eve", "partner")
    said = msgspec.structs.replace(told("net", visibility="private"), curve=CURVE)
    record = ada.register(GRAPH, said, tensors(GRAPH).items()).record
    assert ada.curve(record) == CURVE
    with pytest.raises(UnknownModel):
        bob.curve(record)
    with pytest.raises(NotAllowed):
        partner.curve(record)


def test_a_zoo_that_is_to_record_nothing_keeps_no_curve() -> None:
    zoo = LocalCoordinator(Settings(home=":memory:", history=False))
    said = msgspec.structs.replace(told("net"), curve=CURVE)
    assert zoo.curve(zoo.register(GRAPH, said, tensors(GRAPH).items()).record) is None
    zoo.close()


# -- starts -------------------------------------------------------------------------------------

RACE = Race(
    winner="warm",
    runners=(
        Runner("warm", "p", 30, 0.5, 0.4, "won"),
        Runner("cold", "", 30, 2.3, 1.1, "lost"),
    ),
    steps=60,
    seconds=3.0,
)


def test_every_start_is_recorded_and_knows_its_model(coordinator: Coordinator) -> None:
    cold = coordinator.query(CHILD, ASKED).answer
    parent = coordinator.register(GRAPH, told("parent"), tensors(GRAPH).items()).record
    warm = coordinator.query(CHILD, ASKED).answer
    assert coordinator.query(CHILD, ASKED, dry_run=True).answer.start == ""
    second, first = coordinator.starts()
    assert (first.id, second.id) == (cold.start, warm.start)
    assert (first.cold, first.parents, first.model) == (True, (), "")
    assert second.number > first.number
    assert second.parents == (parent.id,)
    assert (second.child, second.task, second.data) == (CHILD.fingerprint, "classification", "digits")
    assert (second.similarity, second.exact, second.actions) == (warm.similarity, warm.exact, warm.actions)
    assert second.schedule == warm.advice.schedule
    assert second.seconds.keys() == warm.seconds.keys() >= {"search", "plan"}
    assert 0 < second.benefit["expected"] <= 1
    assert second.benefit.keys() >= {"similarity", "standing", "credit"}
    said = msgspec.structs.replace(told("child"), start=warm.start)
    child = coordinator.register(CHILD, said, tensors(CHILD).items()).record
    [known] = coordinator.starts(StartFilter(model=child.id))
    assert (known.id, known.model) == (warm.start, child.id)
    assert coordinator.log(action="lent")[0].data["model"] == child.id
    coordinator.raced(warm.start, RACE)
    assert coordinator.starts(StartFilter(cold=False))[0].race == RACE
    assert coordinator.starts(StartFilter(cold=True)) == [first]
    assert known.to_dict()["cold"] is False
    bad = msgspec.structs.replace(told("bad"), start="../../x")
    with pytest.raises(InvalidMeta, match="start"):
        coordinator.register(CHILD, bad, tensors(CHILD, 1).items())
    for start, race in (
        ("0" * 16, RACE),
        (warm.start, dataclasses.replace(RACE, steps=-1)),
        (warm.start, dataclasses.replace(RACE, winner="w" * 1000)),
        (warm.start, dataclasses.replace(RACE, runners=RACE.runners * 20)),
    ):
        with pytest.raises(InvalidMeta):
            coordinator.raced(start, race)


def test_starts_are_listed_page_by_page_and_filtered(coordinator: Coordinator) -> None:
    for data in ("a", "b", "a", "a"):
        coordinator.query(GRAPH, Query(data=data, task="t"))
    everything = coordinator.starts()
    assert [start.data for start in everything] == ["a", "a", "b", "a"]
    pages, before = [], None
    while page := coordinator.starts(StartFilter(data="a"), limit=2, before=before):
        pages.append(page)
        before = page[-1].number
    assert [len(page) for page in pages] == [2, 1]
    assert [*pages[0], *pages[1]] == [start for start in everything if start.data == "a"]
    first = everything[-1]
    assert coordinator.starts(StartFilter(until=first.at)) == []
    assert coordinator.starts(StartFilter(since=first.at, until=everything[-2].at)) == [first]
    for nothing in ({"child": "0" * 64}, {"parent": "0" * 16}, {"task": "x"}, {"user": "nobody"}):
        assert coordinator.starts(StartFilter(**nothing)) == []  # type: ignore[arg-type]


def test_who_may_see_a_start(keeper: Team) -> None:
    """Mine; that of a model that I see, without parents that I do not; administrators all."""
    ada, bob = keeper.join("ada"), keeper.join("bob")
    admin, partner = keeper.join("root", "admin"), keeper.join("eve", "partner")
    hidden = ada.register(GRAPH, told("hidden", visibility="private"), tensors(GRAPH).items()).record
    start = ada.query(CHILD, ASKED).answer.start
    for who in (ada, admin):
        assert [each.id for each in who.starts()] == [start]
        assert who.starts()[0].user == "ada"
    assert bob.starts() == []
    with pytest.raises(NotAllowed):
        partner.starts()
    with pytest.raises(InvalidMeta, match="none of yours"):
        bob.raced(start, RACE)
    ada.raced(start, RACE)
    stolen = msgspec.structs.replace(told("bobs"), start=start)
    bob.register(CHILD, stolen, tensors(CHILD, 2).items())
    assert ada.starts()[0].model == "", "who did not start it cannot have trained it"
    said = msgspec.structs.replace(told("open"), start=start)
    child = ada.register(CHILD, said, tensors(CHILD).items()).record
    [seen] = bob.starts()
    assert (seen.id, seen.model, seen.parents, seen.similarity) == (start, child.id, (), None)
    assert (seen.benefit, seen.race, seen.actions) == ({}, None, {})
    assert hidden.id not in str(seen)
    assert ada.starts()[0].parents == (hidden.id,)
    [lent] = ada.log(action="lent")
    assert lent.data["model"] == child.id
    ada.query(CHILD, ASKED)
    secret = msgspec.structs.replace(told("s", visibility="private"), start=ada.starts()[0].id)
    ada.register(CHILD, secret, tensors(CHILD, 3).items())
    assert [each.id for each in bob.starts()] == [start]


def test_what_cannot_be_recorded_stops_no_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    zoo = LocalCoordinator(Settings(home=str(tmp_path)))
    zoo.register(GRAPH, told("net"), tensors(GRAPH).items())

    def full(start: Start) -> None:
        raise DiskFull("catalog", "the disk is full", "Make room.")

    monkeypatch.setattr(zoo.zoo.starts, "add", full)
    for _ in range(2):
        answer = zoo.query(GRAPH, ASKED).answer
        assert not answer.cold
        assert answer.start == ""
    assert "start" not in zoo.log(action="lent")[0].data
    assert "not recorded" in caplog.text
    zoo.close()


def test_nothing_is_recorded_where_nobody_wants_it_and_old_starts_go() -> None:
    silent = LocalCoordinator(Settings(home=":memory:", history=False))
    assert silent.query(GRAPH, ASKED).answer.start == ""
    assert silent.starts() == []
    silent.close()
    zoo = LocalCoordinator(Settings(home=":memory:", keep_starts=30.0))
    new = zoo.query(GRAPH, ASKED).answer.start
    zoo.zoo.starts.add(Start(id="0" * 16, at=time.time() - 31 * 86400, child="c"))
    assert len(zoo.starts()) == 2
    zoo.gc()
    assert [start.id for start in zoo.starts()] == [new]
    zoo.close()


# -- savings ------------------------------------------------------------------------------------


def test_what_starts_saved_is_told_alike(coordinator: Coordinator) -> None:
    assert coordinator.savings().groups == ()
    cold = coordinator.query(GRAPH, ASKED).answer
    said = msgspec.structs.replace(told("cold"), curve=CURVE, start=cold.start)
    parent = coordinator.register(GRAPH, said, tensors(GRAPH).items()).record
    warm = coordinator.query(GRAPH, ASKED).answer
    faster = msgspec.structs.replace(CURVE, points=(Point(9, 3.0, CURVE.best.score),))
    said = msgspec.structs.replace(told("warm", parent=parent.id), curve=faster, start=warm.start)
    coordinator.register(GRAPH, said, tensors(GRAPH, 1).items())
    coordinator.raced(warm.start, RACE)
    found = coordinator.savings("week")
    [week] = found.groups
    assert (week.starts, week.cold) == (2, 1)
    last = CURVE.points[-1]
    assert week.matched == Saved(1, last.step - 9, last.seconds - 3.0)
    assert (week.measured.starts, week.estimated) == (1, Saved())
    assert found.bytes == sum(record.bytes for record in coordinator.models())
    assert found.query_seconds > 0
    assert coordinator.savings("project", StartFilter(until=found.since)).groups == ()
    with pytest.raises(InvalidMeta, match="choose one of"):
        coordinator.savings("day")


def test_savings_are_of_what_may_be_seen(keeper: Team) -> None:
    ada, bob = keeper.join("ada"), keeper.join("bob")
    admin, partner = keeper.join("root", "admin"), keeper.join("eve", "partner")
    ada.query(GRAPH, ASKED)
    assert [group.name for group in ada.savings("user").groups] == ["ada"]
    assert [group.name for group in admin.savings("user").groups] == ["ada"]
    assert bob.savings("user").groups == ()
    with pytest.raises(NotAllowed):
        partner.savings()
