"""Shards follow the catalog, each its share, and answer together as one index; and come back as they were."""

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import InvalidSetting, NotReady
from modelkeeper.matching import prepare
from modelkeeper.matching.sharded import Asked, Told, Turn
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.catalog.changes import Changes
from modelkeeper.zoo.index import index_sync, shards, shared_snapshots
from modelkeeper.zoo.index.shards import SHARDS, CatalogShare, Shard, Shards, Spread
from tests.helpers import zoos

CHILD = zoos.net(8, 20)


class InThisProcess:
    """Shards without an engine, of which some are dead."""

    def __init__(self, spread: Spread, settings: Settings) -> None:
        self.count, self.dead = spread.shards, set[int]()
        self.shards = [Shard(settings, number, spread.shards) for number in range(spread.shards)]

    def scatter(self, asked: Asked) -> "Scattered":
        return Scattered(self, asked)

    def behind(self) -> list[int]:
        return sorted(self.dead)

    def close(self) -> None:
        for shard in self.shards:
            shard.close()


class Scattered:
    """One search in them."""

    def __init__(self, shards: InThisProcess, asked: Asked) -> None:
        self.numbers, self._shards, self._asked = range(shards.count), shards, asked

    def turn(self, turns: Mapping[int, Turn], stop: Callable[[], bool] | None) -> Mapping[int, Told]:
        alive = {n: turn for n, turn in turns.items() if n not in self._shards.dead}
        told = {n: self._shards.shards[n].turn("it", self._asked, turn) for n, turn in alive.items()}
        return {number: answer for number, answer in told.items() if answer is not None}

    def close(self) -> None:
        for shard in self._shards.shards:
            shard.forget("it")


@pytest.fixture
def opened() -> Iterator[list[InThisProcess]]:
    """What was opened by the setting `here://`."""
    made: list[InThisProcess] = []

    def opener(spread: Spread, settings: Settings) -> Shards:
        made.append(InThisProcess(spread, settings))
        return made[-1]

    SHARDS.add("here", opener)
    yield made
    SHARDS.remove("here")


def coordinator(home: Path, shards: str = "") -> "contextlib.closing[LocalCoordinator]":
    return contextlib.closing(LocalCoordinator(Settings(home=str(home), shards=shards)))


def test_a_coordinator_answers_from_shards_as_from_one_index(
    tmp_path: Path, opened: list[InThisProcess]
) -> None:
    with coordinator(tmp_path) as plain, coordinator(tmp_path, "here://?shards=3") as spread:
        for number in range(10):
            zoos.register(plain, zoos.net(8, 4 + 2 * number), f"net{number}", 0.8 + number / 100)
            one, several = (each.query(CHILD, Query(), dry_run=True).answer for each in (plain, spread))
            assert (several.parent, several.considered) == (one.parent, one.considered)
            assert several.similarity == one.similarity
            assert several.warnings == ()
        removed = plain.query(CHILD, Query(), dry_run=True).answer.parent
        plain.remove(str(removed))
        assert spread.query(CHILD, Query(), dry_run=True).answer.parent != removed
        assert len(opened) == 1
        assert sum(shard.follow() for shard in opened[0].shards) == 9


def test_without_a_shard_an_answer_says_so(tmp_path: Path, opened: list[InThisProcess]) -> None:
    with coordinator(tmp_path, "here://?shards=2") as spread:
        for number in range(1, 5):
            zoos.register(spread, zoos.net(8, 4 * number), f"net{number}")
        spread.follow()
        (there,) = opened
        there.dead = {0}
        answer = spread.query(CHILD, Query(), dry_run=True).answer
        assert answer.warnings == (
            "parts of the search index (shard 0) did not answer: there may be a better parent",
        )
        with pytest.raises(NotReady, match="shards 0 of the 2"):
            spread.follow()
        there.dead = {0, 1}
        answer = spread.query(CHILD, Query(), dry_run=True).answer
        assert answer.cold
        assert "shard 0, shard 1" in answer.warnings[0]


def test_each_architecture_lies_in_one_shard(tmp_path: Path) -> None:
    settings = Settings(home=str(tmp_path))
    with coordinator(tmp_path) as plain:
        for number in range(12):
            zoos.register(plain, zoos.net(4 + number // 3), f"net{number}")
    where: dict[int, set[str]] = {}
    for number in range(3):
        with contextlib.closing(CatalogShare(settings.catalog_place, number, 3)) as share:
            where[number] = {row.graph for row in share.changes(0).rows}
    assert sum(map(len, where.values())) == 4


def test_a_shard_comes_back_from_what_it_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_sync, "SAVE_AFTER", 1)
    settings = Settings(home=str(tmp_path))
    with coordinator(tmp_path) as plain:
        for number in range(8):
            zoos.register(plain, zoos.net(4 + number), f"net{number}")
    shares = []
    for number in range(2):
        with contextlib.closing(Shard(settings, number, 2)) as shard:
            shares.append(shard.follow())
    assert sum(shares) == 8
    assert min(shares) > 1
    shutil.rmtree(tmp_path / "index" / "shard-0-of-2")
    read: list[int] = []
    changes = shards.CatalogShare.changes

    def counted(self: shards.CatalogShare, since: int) -> Changes:
        found = changes(self, since)
        read.append(len(found.rows))
        return found

    monkeypatch.setattr(shards.CatalogShare, "changes", counted)
    for number in (1, 0):
        with contextlib.closing(Shard(settings, number, 2)) as again:
            assert again.follow() == shares[number]
    assert sum(read) == shares[0]  # what the other one needs, it has saved


@pytest.fixture(params=["folder", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that all machines see."""
    return str(request.getfixturevalue("bucket")) if request.param == "s3" else f"file://{tmp_path}/store"


def test_a_shard_comes_back_on_another_machine_from_what_is_in_the_store(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch, opened: list[InThisProcess]
) -> None:
    """Its home is empty there: what was saved it brings, and reads what came since; so do the columns."""
    monkeypatch.setattr(index_sync, "SAVE_AFTER", 1)
    monkeypatch.setattr(shared_snapshots, "WORTH", 0)

    def at(machine: str, shards: str = "") -> Settings:
        catalog = f"sqlite:///{tmp_path / 'catalog.db'}"
        return Settings(home=str(tmp_path / machine), catalog=catalog, blobs=store, shards=shards)

    with contextlib.closing(LocalCoordinator(at("first", "here://?shards=2"))) as leader:
        for number in range(8):
            zoos.register(leader, zoos.net(4 + number), f"net{number}")
        leader.zoo.index()
        shares = [shard.follow() for shard in opened[0].shards]
        assert (sum(shares), min(shares) > 1) == (8, True)
        assert [shard.share() for shard in opened[0].shards] == [True, True]
        assert [shard.share() for shard in opened[0].shards] == [False, False], "the store has them"
        assert leader.zoo.share_index(), "the columns, which the coordinator has"
        zoos.register(leader, zoos.net(30), "late")
        assert leader.gc(grace=0).folders == (), "they are no folders of models"
    read: list[int] = []
    changes = Catalog.changes

    def counted(self: Catalog, since: int, *of: Any) -> Changes:
        found = changes(self, since, *of)
        read.append(len(found.rows))
        return found

    monkeypatch.setattr(Catalog, "changes", counted)
    again = 0
    for number in range(2):
        with contextlib.closing(Shard(at("second"), number, 2)) as shard:
            again += shard.follow()
    assert (again, sum(read)) == (9, 1)
    read.clear()
    with contextlib.closing(LocalCoordinator(at("third", "here://?shards=2"))) as other:
        assert len(other.zoo.follower.followed().columns) > 9  # one for each key; those begin with 1
    assert sum(read) == 1


def test_a_store_that_is_not_the_zoos_gets_no_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(index_sync, "SAVE_AFTER", 1)
    homes = [
        Settings(home=str(tmp_path / "a"), blobs=f"file://{tmp_path}/{name}") for name in ("own", "wrong")
    ]
    with contextlib.closing(LocalCoordinator(homes[0])) as plain:
        for number in range(4):
            zoos.register(plain, zoos.net(4 + number), f"net{number}")
    with contextlib.closing(Shard(homes[1], 0, 1)) as shard:
        assert shard.follow() == 4
        assert not shard.share()
    assert "not the one that the catalog belongs to" in caplog.text
    with contextlib.closing(Shard(Settings(home=str(tmp_path / "a")), 0, 1)) as shard:
        assert not shard.share(), "there is no store that others see"


def test_a_shard_forgets_searches_whose_callers_are_gone(tmp_path: Path) -> None:
    with coordinator(tmp_path) as plain:
        zoos.register(plain, zoos.net(8))
    asked = Asked(prepare(CHILD))
    with contextlib.closing(Shard(Settings(home=str(tmp_path)), 0, 1)) as shard:
        for number in range(shards.UNDER_WAY + 1):
            assert shard.turn(str(number), asked, Turn()) is not None
        assert shard.turn("0", None, Turn()) is None
        assert shard.turn("1", None, Turn()) is not None


@pytest.mark.parametrize(
    ("text", "spread"),
    [
        ("ray://head:10001?shards=8&replicas=2", Spread("ray", "head:10001", 8, 2)),
        ("ray://", Spread("ray", "")),
        ("auto?shards=2", Spread("ray", "auto", 2)),
        ("local", Spread("ray", "local")),
    ],
)
def test_a_setting_says_where_shards_are(text: str, spread: Spread) -> None:
    assert Spread.read(text) == spread


@pytest.mark.parametrize(
    "text",
    ["head:10001", "dask://head", "ray://h?shards=0", "ray://h?copies=2", "ray://h?shards=x", "ray://h/x"],
)
def test_a_setting_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="shards cannot be"):
        Spread.read(text)
