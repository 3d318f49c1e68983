"""Bits flip in a catalog and in files: what is lent is right all the same, and `verify` names what is not."""

import logging
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.errors import CorruptCatalog, ModelKeeperError
from modelkeeper.meta import Query
from modelkeeper.settings import Settings
from modelkeeper.zoo.care.verify import verify
from modelkeeper.zoo.files.blobs import WEIGHTS
from tests.helpers import zoos

GRAPHS = [zoos.net(8, 16), zoos.net(8, 24), zoos.net(4)]
ERROR = "an error that says what to do"
FLIPS = 40


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A zoo of a few models that nobody has open."""
    home = tmp_path / "zoo"
    coordinator = LocalCoordinator(Settings(home=str(home), admission="off"))
    first = zoos.register(coordinator, GRAPHS[0], "net 0", 0.9)
    for number in range(1, 6):
        tensors = zoos.weights(GRAPHS[number % 3], number).items()
        said = zoos.told(f"net {number}", 0.8 + number / 100, tags=["a"], parent=first.id)
        coordinator.register(GRAPHS[number % 3], said, tensors, program=b"{}")
    coordinator.remove("net 3")
    coordinator.close()
    return home


def opened(home: Path) -> LocalCoordinator:
    return LocalCoordinator(Settings(home=str(home), admission="off"))


def answers(home: Path) -> tuple[dict[str, Any], bool]:
    """What a zoo answers, and whether it says that something is wrong: of itself, or in the log."""
    given: dict[str, Any] = {}
    heard = Heard()
    logging.getLogger("modelkeeper").addHandler(heard)

    def ask(name: str, question: Callable[[], Any]) -> None:
        try:
            given[name] = question()
        except ModelKeeperError:
            given[name] = ERROR

    coordinator = opened(home)
    for number, graph in enumerate(GRAPHS):
        ask(f"query {number}", lambda graph=graph: lent(coordinator, graph))  # type: ignore[misc]
    ask("models", lambda: [(record.id, record.name, record.value) for record in coordinator.models()])
    ask("family", lambda: [line.record.id for line in coordinator.tree("net 0").descendants])
    ask("log", lambda: len(coordinator.log()))
    said = bool(coordinator.zoo.catalog.damaged) or heard.warned
    coordinator.close()
    logging.getLogger("modelkeeper").removeHandler(heard)
    return given, said


class Heard(logging.Handler):
    """Was there a warning in the log? As when a loan could not be recorded."""

    warned = False

    def emit(self, record: logging.LogRecord) -> None:
        """A line came."""
        self.warned = self.warned or record.levelno >= logging.WARNING


def lent(coordinator: LocalCoordinator, graph: Any) -> str:
    """The parent that a query gives, whose weights it lends."""
    loan = coordinator.query(graph, Query(task=zoos.TASK), dry_run=False)
    parent = loan.answer.parents[0] if loan.answer.parents else None
    if parent is None:
        return "cold"
    if parent.similarity == 1.0:
        number = int(parent.name.removeprefix("net "))
        registered = zoos.weights(GRAPHS[number % 3], number) if number else None
        for name, array in loan.weights():
            if registered is not None:
                np.testing.assert_array_equal(array, registered[name])
    return parent.name


def test_a_bit_that_flips_in_the_catalog_is_no_other_answer(home: Path, tmp_path: Path) -> None:
    """Nothing raw escapes, nothing wrong is lent; what is answered otherwise is said, or `verify` says it."""
    shutil.copytree(home, tmp_path / "asked")
    expected, said = answers(tmp_path / "asked")
    assert not said
    whole, rng = (home / "catalog.db").read_bytes(), random.Random(7)
    used = [at for at, byte in enumerate(whole) if byte]  # most of a small file is empty
    seen = {"other": 0, "errors": 0}
    for turn in range(FLIPS):
        data = bytearray(whole)
        at, bit = rng.choice(used), rng.randrange(8)
        data[at] ^= 1 << bit
        copy = tmp_path / f"copy-{turn}"
        shutil.copytree(home, copy)
        (copy / "catalog.db").write_bytes(data)
        try:
            coordinator = opened(copy)
        except ModelKeeperError:
            seen["errors"] += 1
            continue
        noticed = not verify(coordinator.zoo, quick=True).whole
        coordinator.close()
        given, said = answers(copy)
        wrong = {name: answer for name, answer in given.items() if answer not in (ERROR, expected[name])}
        assert not wrong or said or noticed, (at, bit, wrong)
        seen["other"] += bool(wrong)
        seen["errors"] += ERROR in given.values()
        shutil.rmtree(copy)
    assert seen["errors"] + seen["other"] > 0, "nothing that matters was hit"


def change(home: Path, statement: str, *values: object) -> None:
    with sqlite3.connect(home / "catalog.db") as connection:
        assert connection.execute(statement, values).rowcount
    connection.close()


@pytest.mark.parametrize(
    "change_of",
    [
        "value = 0.99",
        "name = 'net 7'",
        "graph = 'x' || graph",
        "checksum = 'x'",
        "state = 'actiwe'",
        "tags = '7'",
    ],
)
def test_a_changed_record_lends_nothing_and_is_named(home: Path, change_of: str) -> None:
    change(home, f"UPDATE models SET {change_of} WHERE name = 'net 5'")
    coordinator = opened(home)
    report = verify(coordinator.zoo)
    assert not report.whole
    assert len(report.damaged_records) == 1
    loan = coordinator.query(GRAPHS[2], Query(task=zoos.TASK))
    assert "net 5" not in [parent.name for parent in loan.answer.parents]
    assert any("damaged" in warning for warning in loan.answer.warnings)
    with pytest.raises(CorruptCatalog, match="not what was written"):
        coordinator.show(report.damaged_records[0])
    assert any("damaged" in problem for problem in coordinator.gc(grace=0).failed)
    assert len(list((home / "models").iterdir())) == 5, "its files stay: they may be all that is left of it"
    coordinator.close()


def test_a_graph_that_is_gone_is_said(home: Path) -> None:
    change(home, "DELETE FROM graphs WHERE digest = (SELECT graph FROM models WHERE name = 'net 5')")
    coordinator = opened(home)
    loan = coordinator.query(GRAPHS[2], Query(task=zoos.TASK))
    assert any("damaged" in warning for warning in loan.answer.warnings)
    assert len(verify(coordinator.zoo).damaged_graphs) == 1
    coordinator.close()


def test_a_damaged_prepared_graph_is_made_anew(home: Path) -> None:
    change(home, "UPDATE graphs SET prepared = zeroblob(length(prepared))")
    coordinator = opened(home)
    assert len(verify(coordinator.zoo).damaged_graphs) == 3
    assert coordinator.query(GRAPHS[2], Query(task=zoos.TASK)).answer.parents[0].name == "net 5"
    assert verify(coordinator.zoo).whole
    coordinator.close()


def test_weights_and_programs_are_compared(home: Path) -> None:
    coordinator = opened(home)
    one, two, three, four = (coordinator.show(f"net {number}") for number in (1, 2, 4, 5))
    seen: list[float] = []
    assert verify(coordinator.zoo, progress=lambda done, total: seen.append(done / total)).whole
    assert seen[-1] == 1.0
    data = bytearray((home / one.folder / WEIGHTS).read_bytes())
    data[-1] ^= 1
    (home / one.folder / WEIGHTS).write_bytes(data)
    (home / two.folder / "program.json").write_bytes(b"[]")
    (home / three.folder / "program.json").unlink()
    (home / four.folder / WEIGHTS).unlink()
    (home / four.folder / WEIGHTS).mkdir()
    report = verify(coordinator.zoo)
    assert set(report.damaged_weights) == {one.id}
    assert set(report.damaged_programs) == {two.id, three.id}
    assert set(report.unreadable) == {four.id}
    assert len(report.problems) == 4
    assert coordinator.show(one.id).state == "active", "looking changes nothing"
    coordinator.close()


def test_what_goes_meanwhile_is_not_missed(home: Path) -> None:
    coordinator, other = opened(home), opened(home)
    left = [record.name for record in coordinator.models()]

    def remove(done: float, total: float) -> None:
        while left:
            other.remove(left.pop())

    assert verify(coordinator.zoo, progress=remove).whole
    for each in (coordinator, other):
        each.close()


@pytest.mark.parametrize("name", ["a?b", "a%20b", "a#b", "a b", "a&mode=ro", "ä", "a;b", "file:a"])
def test_a_zoo_may_be_called_anything(tmp_path: Path, name: str) -> None:
    coordinator = LocalCoordinator(Settings(home=str(tmp_path / name)))
    zoos.register(coordinator, GRAPHS[0], "one")
    coordinator.close()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name / "catalog.db").stat().st_size
    again = opened(tmp_path / name)
    assert again.query(GRAPHS[0], Query(task=zoos.TASK)).answer.parents[0].name == "one"
    again.close()
    for file in (tmp_path / name).glob("catalog.db*"):
        file.chmod(0o400)
