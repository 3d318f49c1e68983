"""Columns of stored models: rows that no model can have are left out; nothing goes by a damaged record."""

import sqlite3
from pathlib import Path

import pytest

from modelkeeper.coordinator.local import LocalCoordinator
from modelkeeper.settings import Settings
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.records import ACTIVE, EVICTED
from tests.helpers import zoos
from tests.zoo.catalog.test_catalog import add


def break_row(file: Path, model: str, column: str, value: object) -> None:
    with sqlite3.connect(file) as connection:
        connection.execute(f"UPDATE models SET {column} = ? WHERE id = ?", (value, model))
    connection.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [("bytes", -1), ("bytes", "many"), ("bytes", 2**62), ("hits", -3), ("created", "once"), ("twin", 7.5),
     ("last_used", float("inf")), ("value", "good")],
)  # fmt: skip
def test_what_no_model_can_be_is_left_out_and_noted(tmp_path: Path, column: str, value: object) -> None:
    catalog = Catalog(tmp_path / "catalog.db")
    ids = sorted(add(catalog).id for _ in range(3))
    break_row(tmp_path / "catalog.db", ids[1], column, value)
    stock = catalog.stock()
    if column == "twin":  # the number became text, as the column says: no twin of that name is there
        assert stock.ids == ids
        assert catalog.damaged == {}
    else:
        assert stock.ids == [ids[0], ids[2]]
        assert list(catalog.damaged) == [ids[1]]
        assert catalog.stock().ids == stock.ids
    catalog.close()


def test_a_damaged_record_is_never_evicted_and_others_go_in_its_place(tmp_path: Path) -> None:
    graph = zoos.net(4, 4)
    probe = LocalCoordinator(Settings(home=":memory:", threads=1))
    size = zoos.register(probe, graph).bytes
    probe.close()
    coordinator = LocalCoordinator(
        Settings(home=str(tmp_path), threads=1, admission="off", capacity=3 * size)
    )
    worst = zoos.register(coordinator, graph, "worst", 0.1)
    others = [zoos.register(coordinator, graph, f"{number}", 0.5 + number / 10).id for number in range(2)]
    break_row(tmp_path / "catalog.db", worst.id, "created", 5.0)  # now it looks old; its seal does not hold
    told = coordinator.register(graph, zoos.told("new", 0.9), zoos.weights(graph).items())
    assert told.evicted == (), "three fit, and what is damaged is nobody's business but verify's"
    told = coordinator.register(graph, zoos.told("newer", 0.95), zoos.weights(graph).items())
    assert len(told.evicted) == 1
    assert told.evicted[0] in others
    with sqlite3.connect(tmp_path / "catalog.db") as connection:
        states = dict(connection.execute("SELECT id, state FROM models"))
    connection.close()
    assert states[worst.id] == states[told.record.id] == ACTIVE
    assert states[told.evicted[0]] == EVICTED
    coordinator.close()
