"""Can one colleague crowd out others? Pins, capacity and admission over a real service."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from modelkeeper.coordinator.remote import RemoteCoordinator
from modelkeeper.errors import ModelKeeperError, QuotaExceeded, UnknownModel
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
