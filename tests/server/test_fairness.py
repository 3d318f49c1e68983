"""Can one colleague crowd out others? Pins, capacity and admission over a real service."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.errors import ModelKeeperError, NotAllowed, QuotaExceeded, UnknownModel
from modelkeeper.meta import Query
from modelkeeper.zoo.records import Record
from tests.helpers.service import network, team, tensors, told

GRAPH = network()


def _register(who: RemoteCoordinator, name: str, accuracy: float, seed: int) -> Record:
    return who.register(GRAPH, told(name, accuracy), tensors(GRAPH, seed).items()).record


def test_nine_pins_of_one_writer_neither_evict_nor_refuse_another(tmp_path: Path) -> None:
    with team(tmp_path / "measured") as there:
        size = _register(there.join("ann"), "one", 0.9, 0).bytes
    with team(tmp_path / "zoo", capacity=10 * size, quota_pins=20) as there:
        ann, eve = there.join("ann"), there.join("eve")
        honest = [_register(ann, f"honest{number}", 0.94 + 0.004 * number, number) for number in range(6)]
        for number in range(9):
            with contextlib.suppress(UnknownModel):  # beyond her share it gave way at once
                eve.pin(_register(eve, f"loud{number}", 1.0, 100 + number).id)
        left = {record.id for record in ann.models()}
        assert len(left & {record.id for record in honest}) >= 5
        assert sum(record.bytes for record in ann.models()) <= 10 * size
        done = ann.register(GRAPH, told("later", 0.95), tensors(GRAPH, 77).items())
        assert done.admission.verdict == "admitted"
        assert len([record for record in ann.models() if record.owner == "ann"]) >= 5


def test_pins_count_against_a_quota_also_at_once(tmp_path: Path) -> None:
    with team(tmp_path, quota_pins=2, rate=1000.0) as there:
        ann, boss = there.join("ann"), there.join("boss", "admin")
        made = [_register(ann, f"m{number}", 0.9, number) for number in range(8)]

        def pin(record: Record) -> str:
            try:
                ann.pin(record.id)
            except ModelKeeperError as refused:
                return type(refused).__name__
            return "pinned"

        with ThreadPoolExecutor(8) as pool:
            became = list(pool.map(pin, made))
        assert sorted(became) == ["QuotaExceeded"] * 6 + ["pinned"] * 2
        pinned = [record for record in ann.models() if record.pinned]
        assert len(pinned) == 2
        ann.pin(pinned[0].id)  # again: it is pinned already
        other = next(record for record in made if record.id not in {each.id for each in pinned})
        with pytest.raises(QuotaExceeded, match="2 models are pinned, 2 are allowed"):
            ann.pin(other.id)
        ann.pin(pinned[0].id, False)
        assert ann.pin(other.id).pinned
        assert boss.pin(pinned[0].id).pinned  # administrators may
        there.accounts.add_user("ann", pins=4)
        more = RemoteCoordinator(there.url, token=there.token("ann"), spool=tmp_path / "s", timeout=20)
        assert more.pin(next(r for r in more.models() if not r.pinned).id).pinned
        more.close()


def test_garbage_that_claims_to_be_perfect_sinks(tmp_path: Path) -> None:
    """It may be the parent at first, said to be unchecked; after two users' lost races it is nobody's."""
    asked = Query(data="digits", task="classification")
    with team(tmp_path, rate=1000.0) as there:
        ann, bob, eve, fay = (there.join(name) for name in ("ann", "bob", "eve", "fay"))
        honest = _register(ann, "honest", 0.95, 1)
        garbage = _register(eve, "garbage", 1.0, 2)
        with pytest.raises(NotAllowed, match="was not lent to you"):
            bob.tell(garbage.id, "raced", -0.9)
        first = bob.query(GRAPH, asked).answer
        assert first.parent == garbage.id
        assert first.parents[0].owner == "eve"
        assert first.parents[0].claim == "claim not checked"
        said = "eve claims accuracy 1 on digits; not signed, no licence is given; claim not checked."
        assert said in str(first)
        assert not bob.tell(garbage.id, "raced", -0.9).refuted
        second = fay.query(GRAPH, asked).answer
        assert second.parent == honest.id  # it sank at once, but whoever wants may have it
        by_name = msgspec.structs.replace(asked, parents=(garbage.id,))
        assert fay.query(GRAPH, by_name).answer.parent == garbage.id
        assert fay.tell(garbage.id, "raced", -0.9).refuted
        eve.query(GRAPH, by_name)
        for _ in range(50):
            eve.tell(garbage.id, "raced", 1.0)  # nobody praises himself
        after = bob.query(GRAPH, asked, runners_up=True).answer
        assert after.parent == honest.id
        assert {rival.id: rival.why for rival in after.runners_up} == {
            garbage.id: "the claim of accuracy 1 did not hold for others"
        }
        named = bob.query(GRAPH, by_name).answer
        assert named.parent == garbage.id  # whoever asks for it gets it
        assert "refuted" in named.parents[0].claim


def test_one_user_alone_does_not_bar_a_model(tmp_path: Path) -> None:
    asked = Query(data="digits", task="classification")
    with team(tmp_path, rate=1000.0) as there:
        ann, eve = there.join("ann"), there.join("eve")
        honest = _register(ann, "honest", 0.95, 1)
        for _ in range(20):
            eve.query(GRAPH, asked)
            credit = eve.tell(honest.id, "checked", -1.0)
        assert not credit.refuted
        assert eve.credit(honest) == credit
        assert ann.query(GRAPH, asked).answer.parent == honest.id
