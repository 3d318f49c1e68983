"""Stores that others add: a zoo runs on any object with the methods of `Store`, under its own scheme."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from obstore.exceptions import GenericError

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import InvalidSetting, ZooUnusable
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.zoo.files.blobs import Blobs
from modelkeeper.zoo.files.stores import STORES, Store, open_store, register
from modelkeeper.zoo.replicas.store_identity import MARKER
from tests.helpers import zoos


class Item:
    """An object of a shelf."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def stream(self) -> Iterator[bytes]:
        for at in range(0, len(self.content), 1000):
            yield self.content[at : at + 1000]

    def bytes(self) -> bytes:
        return self.content


class Shelf:
    """A store in memory, as somebody else would write one: it derives from nothing of ours."""

    def __init__(self) -> None:
        self.items: dict[str, bytes] = {}

    def put(self, path: str, file: Iterator[bytes | memoryview]) -> None:
        self.items[path] = b"".join(file)

    def get(self, path: str, *, options: Any = None) -> Item:
        if path not in self.items:
            raise FileNotFoundError(path)
        return Item(self.items[path][options["range"]["offset"] if options else 0 :])

    def get_range(self, path: str, *, start: int, length: int) -> bytes:
        return self.items[path][start : start + length]

    def head(self, path: str) -> Any:
        return {"size": len(self.get(path).content)}

    def list(self, prefix: str) -> Iterator[Any]:
        now = datetime.now(UTC)
        yield [{"path": path, "last_modified": now} for path in self.items if path.startswith(prefix)]

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            del self.items[path]


@pytest.fixture
def shelves() -> Iterator[dict[str, Shelf]]:
    """Shelves by URL; shelf://... opens one of them."""
    opened: dict[str, Shelf] = {}
    register("shelf", lambda url: opened.setdefault(url, Shelf()))
    yield opened
    STORES.remove("shelf")


@pytest.mark.parametrize("problem", [GenericError("connection refused"), OSError("connection refused")])
def test_a_store_that_cannot_be_listed_says_so(
    problem: Exception, shelves: dict[str, Shelf], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an error of ours; and an index that is opened meanwhile is made of the catalog alone."""
    settings = Settings(
        home=str(tmp_path / "one"), blobs="shelf://oak/top", catalog=f"sqlite:///{tmp_path}/db"
    )
    first = LocalCoordinator(settings)
    zoos.register(first, zoos.net(8, 16))

    def away(shelf: Shelf, prefix: str) -> Iterator[Any]:
        raise problem

    monkeypatch.setattr(Shelf, "list", away)
    with pytest.raises(ZooUnusable, match="listing models failed: connection refused"):
        list(first.zoo.blobs.folders())
    second = LocalCoordinator(msgspec.structs.replace(settings, home=str(tmp_path / "two")))
    assert len(second.zoo.follower.index()) == 1
    for coordinator in (first, second):
        coordinator.close()


def test_a_zoo_runs_on_a_store_that_was_added(shelves: dict[str, Shelf], tmp_path: Path) -> None:
    settings = Settings(home=str(tmp_path), blobs="shelf://oak/top")
    coordinator = LocalCoordinator(settings)
    graph = zoos.net(8, 16)
    record = zoos.register(coordinator, graph, "first")
    assert f"{record.folder}/model.safetensors" in shelves["shelf://oak/top"].items
    assert coordinator.location(record) == f"shelf://oak/top/{record.folder}"
    coordinator.close()

    coordinator = LocalCoordinator(settings)  # another process would read what the first has written
    warmth = coordinator.query(graph, Query(data=zoos.DATA))
    assert warmth.answer.parent == record.id
    lent, registered = dict(warmth.weights()), dict(coordinator.zoo.weights(record).items())
    assert lent.keys() <= registered.keys()
    assert all(np.array_equal(lent[name], registered[name]) for name in lent)
    assert coordinator.gc(grace=0, verify=True).damaged == ()
    shelves["shelf://oak/top"].items.pop(f"{record.folder}/model.safetensors")
    assert coordinator.gc(grace=0).damaged == (), "one that looks by itself is no proof"
    assert coordinator.gc(grace=0, user="ada").damaged == (record.id,)
    coordinator.remove(record.id)
    assert list(shelves["shelf://oak/top"].items) == [MARKER]
    coordinator.close()


def test_every_kind_of_store_has_the_methods() -> None:
    assert isinstance(Shelf(), Store)
    assert isinstance(open_store("memory://"), Store)
    assert open_store("file:///zoo") == Path("/zoo")


def test_an_opener_may_name_a_folder(tmp_path: Path) -> None:
    register("mounted", lambda url: tmp_path / url.removeprefix("mounted://"))
    assert Blobs("mounted://zoo").staging == tmp_path / "zoo" / "staging"
    STORES.remove("mounted")


def test_what_is_no_store_is_told_and_schemes_of_ours_stay() -> None:
    register("empty", lambda url: {})  # type: ignore[arg-type,return-value]
    with pytest.raises(InvalidSetting, match="dict is no Store"):
        Blobs("empty://")
    STORES.remove("empty")
    with pytest.raises(ZooUnusable):
        Blobs("empty://")
    with pytest.raises(InvalidSetting, match="built in"):
        register("memory", lambda url: Shelf())
