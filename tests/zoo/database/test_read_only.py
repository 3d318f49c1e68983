"""A zoo that may only be read: it can be queried, nothing is written, and who wants to write is told."""

import logging
import os
import shutil
import sqlite3
import tarfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import ReadOnlyZoo
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.zoo.database.read_only import ReadOnly, may_write
from tests.helpers import zoos
from tests.helpers.disks import read_only
from tests.helpers.forked import in_child

GRAPH = zoos.net(8, 16)
NOBODY = 65001
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A zoo of two models that nobody has open."""
    home = tmp_path / "zoo"
    coordinator = LocalCoordinator(Settings(home=str(home)))
    zoos.register(coordinator, GRAPH, "good", 0.9)
    zoos.register(coordinator, GRAPH, "better", 0.95)
    coordinator.close()
    return home


def everything(home: Path) -> dict[str, bytes]:
    """All files, but for what SQLite keeps of its readers in memory that they share."""
    files = (path for path in home.rglob("*") if path.is_file() and path.suffix != ".db-shm")
    return {str(path.relative_to(home)): path.read_bytes() for path in files}


def ask(home: Path, better: str = "better") -> str:
    """Query a zoo, list it, and try to change it. Which model was lent?"""
    coordinator = LocalCoordinator(Settings(home=str(home)))
    assert coordinator.zoo.catalog.database.read_only
    for _ in range(2):
        loan = coordinator.query(GRAPH, Query(task=zoos.TASK))
        stored = coordinator.zoo.weights(coordinator.show(better))
        for name, array in loan.weights():
            np.testing.assert_array_equal(array, np.asarray(stored[name]))
    assert coordinator.count() == coordinator.stats()["models"] >= 2
    changes: list[Callable[[], object]] = [
        lambda: zoos.register(coordinator, GRAPH, "another"),
        lambda: coordinator.remove("good"),
        lambda: coordinator.pin("good"),
        coordinator.gc,
    ]
    for change in changes:
        with pytest.raises(ReadOnlyZoo, match="may only be read"):
            change()
    coordinator.close()
    return loan.answer.parents[0].name


def test_from_a_disk_that_is_mounted_read_only(home: Path) -> None:
    before = everything(home)
    with read_only(home):
        assert ask(home) == "better"
    assert everything(home) == before


def test_while_its_owner_has_it_open(home: Path) -> None:
    """What was committed is seen, whether in the file or beside it."""
    owner = LocalCoordinator(Settings(home=str(home)))
    with read_only(home):
        reader = LocalCoordinator(Settings(home=str(home)))
        assert reader.count() == 2
        assert ask(home) == "better"
        reader.close()
    zoos.register(owner, GRAPH, "best", 0.99)
    with read_only(home):
        assert ask(home, "best") == "best"
    owner.close()


def test_what_waits_beside_the_file_is_read_from_a_copy(home: Path, tmp_path: Path) -> None:
    """A copy of a zoo in use may have a -wal without a -shm, which cannot be made there."""
    owner = LocalCoordinator(Settings(home=str(home)))
    zoos.register(owner, GRAPH, "best", 0.99)
    copied = tmp_path / "copied"
    shutil.copytree(home, copied)
    owner.close()
    (copied / "catalog.db-shm").unlink()
    assert (copied / "catalog.db-wal").stat().st_size
    before = everything(copied)
    with read_only(copied):
        assert ask(copied, "best") == "best"
    assert everything(copied) == before


def as_nobody(work: Callable[[], str]) -> str:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    return work()


@as_root
def test_for_somebody_who_may_only_read_it(home: Path, tmp_path: Path) -> None:
    for path in (*tmp_path.parents, tmp_path, home, *home.rglob("*")):
        if path != Path("/"):
            path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
    before = everything(home)
    assert in_child(partial(as_nobody, partial(ask, home)), seconds=60) == "better"
    assert everything(home) == before


def test_an_older_catalog_is_migrated_in_a_copy(tmp_path: Path) -> None:
    with tarfile.open(Path(__file__).parent / "golden" / "zoo-0002.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    home = next(tmp_path.rglob("catalog.db")).parent
    before = everything(home)
    with read_only(home):
        coordinator = LocalCoordinator(Settings(home=str(home)))
        assert coordinator.count()
        coordinator.close()
    assert everything(home) == before


def test_a_copy_is_made_once_and_goes_with_its_reader(home: Path) -> None:
    source = ReadOnly(home / "catalog.db")
    copied = source.copy()
    assert source.copy() == copied
    with sqlite3.connect(home / "catalog.db") as connection:
        connection.execute("CREATE TABLE more (x)")
    connection.close()
    again = source.copy()
    assert again != copied
    assert not copied.exists()
    source.close()
    assert not again.parent.exists()


def test_a_new_catalog_may_be_written(tmp_path: Path) -> None:
    assert may_write(tmp_path / "catalog.db")


def test_what_cannot_be_recorded_is_said_once(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    with read_only(home), caplog.at_level(logging.WARNING):
        coordinator = LocalCoordinator(Settings(home=str(home)))
        for _ in range(3):
            assert not coordinator.query(GRAPH, Query(task=zoos.TASK)).answer.cold
        coordinator.close()
    assert sum("loans are not recorded" in line for line in caplog.messages) == 1
