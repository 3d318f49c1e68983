"""A file that cannot be read here: the next parent is taken, and others may still have the model."""

import errno
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import UnreadableWeights
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.zoo import zoo_reader
from modelkeeper.zoo.files.blobs import WEIGHTS
from modelkeeper.zoo.files.opening import is_of_file, open_regular
from tests.helpers import zoos
from tests.helpers.forked import in_child

GRAPH = zoos.net(8, 16)
NOBODY = 65001


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_pipe(path: Path) -> None:
    """One that nobody ever writes to: whoever opens it as a file waits for ever."""
    path.unlink()
    os.mkfifo(path)


def as_link(path: Path) -> None:
    """To a file with just these bytes: who can write there next time?"""
    elsewhere = path.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def as_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


KINDS: list[Callable[[Path], None]] = [as_folder, as_pipe, as_link, as_loop]


def in_time(work: Callable[[], None]) -> None:
    """Do something in a thread; whatever never ends is seen, and the tests go on."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as problem:  # noqa: BLE001 (it is raised again)
            failed.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "it hangs"
    for problem in failed:
        raise problem


def two_models(home: Path) -> LocalCoordinator:
    coordinator = LocalCoordinator(Settings(home=str(home)))
    zoos.register(coordinator, GRAPH, "good", 0.9)
    zoos.register(coordinator, GRAPH, "better", 0.95)
    coordinator.close()
    return LocalCoordinator(Settings(home=str(home)))  # one that has not read them yet


def lent(coordinator: LocalCoordinator) -> str:
    loan = coordinator.query(GRAPH, Query(task=zoos.TASK))
    assert dict(loan.weights())
    return loan.answer.parents[0].name


@pytest.mark.parametrize("spoil", KINDS)
def test_the_next_parent_is_taken(
    tmp_path: Path, spoil: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = two_models(tmp_path)
    path = tmp_path / coordinator.show("better").folder / WEIGHTS
    whole = path.read_bytes()
    spoil(path)

    def use() -> None:
        assert lent(coordinator) == "good"
        assert coordinator.show("better").state == "active", "others may well be able to read it"
        assert lent(coordinator) == "good"
        swept = coordinator.gc(grace=0, verify=True)
        assert swept.unreadable == (coordinator.show("better").id,)
        assert (swept.damaged, swept.failed) == ((), ())
        with pytest.raises(UnreadableWeights):
            list(coordinator.weights_bytes(coordinator.show("better")))

    in_time(use)
    path.rmdir() if path.is_dir() else path.unlink()
    path.write_bytes(whole)
    assert lent(coordinator) == "good", "it is tried again after a while"
    monkeypatch.setattr(zoo_reader, "ASIDE", -1.0)
    monkeypatch.setitem(coordinator.zoo._aside, coordinator.show("better").key, 0.0)
    assert lent(coordinator) == "better"
    coordinator.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_what_may_not_be_read(tmp_path: Path) -> None:
    """One user's files in a shared zoo are closed to another."""
    home = tmp_path / "zoo"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    home.chmod(0o2770)
    for above in (tmp_path, *tmp_path.parents[:-1]):
        above.chmod(above.stat().st_mode | 0o011)
    in_child(partial(as_user, NOBODY, lambda: two_models(home).close()), seconds=60)
    coordinator = LocalCoordinator(Settings(home=str(home)))
    better = coordinator.show("better")
    coordinator.close()
    (home / better.folder / WEIGHTS).chmod(0o600)

    def use() -> str:
        coordinator = LocalCoordinator(Settings(home=str(home)))
        found = lent(coordinator)
        assert coordinator.gc(verify=True).unreadable == (better.id,)
        return found

    assert in_child(partial(as_user, NOBODY + 1, use), seconds=60) == "good"
    (home / better.folder).chmod(0o700)
    assert in_child(partial(as_user, NOBODY + 1, use), seconds=60) == "good"
    coordinator = LocalCoordinator(Settings(home=str(home)))
    assert lent(coordinator) == "better", "its owner can read it"
    coordinator.close()


def as_user(user: int, work: Callable[[], object]) -> object:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(user)
    return work()


@pytest.mark.parametrize("spoil", KINDS)
def test_a_program_that_cannot_be_read_is_not_used(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    coordinator = LocalCoordinator(Settings(home=str(tmp_path)))
    done = coordinator.register(GRAPH, zoos.told(), zoos.weights(GRAPH).items(), program=b"{}")
    assert coordinator.program(done.record) == b"{}"
    spoil(tmp_path / done.record.folder / "program.json")

    def read() -> None:
        assert coordinator.program(done.record) is None
        assert lent(coordinator) == "net"

    in_time(read)
    coordinator.close()


def test_a_program_that_is_another_is_not_used(tmp_path: Path) -> None:
    coordinator = LocalCoordinator(Settings(home=str(tmp_path)))
    done = coordinator.register(GRAPH, zoos.told(), zoos.weights(GRAPH).items(), program=b"{}")
    (tmp_path / done.record.folder / "program.json").write_bytes(b"[]")
    assert coordinator.program(done.record) is None
    coordinator.close()


def test_gc_goes_on_past_what_cannot_be_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = two_models(tmp_path)
    for name in ("00000000000000aa", "00000000000000bb"):
        (tmp_path / "models" / name).mkdir()
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.name.endswith("aa"):
            raise PermissionError(errno.EACCES, "not yours")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    swept = coordinator.gc(grace=0)
    assert swept.folders == ("models/00000000000000bb",)
    assert len(swept.failed) == 1
    assert "not yours" in swept.failed[0]
    coordinator.close()


def test_what_a_process_lacks_says_nothing_of_a_file(tmp_path: Path) -> None:
    assert is_of_file(OSError(errno.EACCES, ""))
    assert is_of_file(OSError(errno.EIO, ""))
    assert not is_of_file(OSError(errno.EMFILE, ""))
    (tmp_path / "file").write_bytes(b"x")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"x"
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")
