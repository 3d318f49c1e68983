"""The schema: migrations make what the queries are written for, once, also when many open a zoo at once."""

import hashlib
import json
import multiprocessing
import sqlite3
import subprocess
import sys
import tarfile
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
import torch
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from torch import Tensor, nn

from modelkeeper import ModelKeeperClient
from modelkeeper.errors import ZooUnusable
from modelkeeper.frontends.torch import describe
from modelkeeper.graph import Graph
from modelkeeper.matching import Prepared, prepare
from modelkeeper.zoo.bounds import kept
from modelkeeper.zoo.catalog.catalog import Catalog
from modelkeeper.zoo.database import migrations, schema
from modelkeeper.zoo.database.rows import record_row
from modelkeeper.zoo.records import Filter
from tests.helpers import zoos


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


def shape(connection: sa.Connection) -> dict[str, Any]:
    """What a database says of its tables, but for the order of columns and defaults for old rows."""
    seen, found = sa.inspect(connection), {}
    for table in seen.get_table_names():
        columns = {each["name"]: (str(each["type"]), each["nullable"]) for each in seen.get_columns(table)}
        indexes = {each["name"]: (each["column_names"], each["unique"]) for each in seen.get_indexes(table)}
        unique = sorted(each["column_names"] for each in seen.get_unique_constraints(table))
        key, foreign = seen.get_pk_constraint(table)["constrained_columns"], seen.get_foreign_keys(table)
        found[table] = (columns, indexes, unique, key, [{**each, "name": None} for each in foreign])
    return found


def test_migrations_lead_to_the_schema_that_a_new_catalog_has(url: str) -> None:
    """Step by step as at once: the same tables, indexes, first rows, and those queries are written for."""
    engine = sa.create_engine(url)
    counted = sa.select(schema.clock).order_by(schema.clock.c.name)
    began = sa.select(schema.ledger.c.number, schema.ledger.c.kind)
    made = []
    for make in (migrations.upgrade, migrations.create):
        with engine.begin() as connection:
            make(connection)
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, schema.metadata) == []
            version = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
            rows = [tuple(row) for query in (counted, began) for row in connection.execute(query)]
            made.append((shape(connection), version, rows))
            everything = sa.MetaData()
            everything.reflect(connection)
            everything.drop_all(connection)
    engine.dispose()
    assert made[0] == made[1]
    assert len(made[0][0]) > 15
    heads = ScriptDirectory(str(Path(migrations.__file__).parent)).get_heads()
    assert heads == [schema.VERSION]


def test_a_newer_schema_is_refused(url: str) -> None:
    catalog = Catalog(url)
    with catalog.database._engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    catalog.close()
    with pytest.raises(ZooUnusable, match=rf"9999, this modelkeeper knows {schema.VERSION}\. Upgrade"):
        Catalog(url)


def imported_by_opening(url: str) -> set[str]:
    """The modules that a process has imported once it has opened a catalog."""
    code = f"""import sys
from modelkeeper.zoo.catalog.catalog import Catalog
Catalog({url!r})
print(*sys.modules)"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize("new", [True, False])
def test_a_catalog_that_is_new_or_up_to_date_opens_without_alembic(tmp_path: Path, new: bool) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    if not new:
        Catalog(url).close()
    imported = imported_by_opening(url)
    assert "sqlalchemy" in imported
    assert not {"alembic", "torch", "scipy"} & imported


def test_a_new_catalog_opens_without_what_it_takes_to_read_graphs(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    imported = imported_by_opening(url)
    assert "modelkeeper.matching.prepare" not in imported


def _open(url: str, ready: "multiprocessing.synchronize.Barrier") -> None:
    ready.wait()
    Catalog(url).find(Filter())


def test_many_processes_may_open_a_fresh_zoo_at_once(url: str) -> None:
    fork = multiprocessing.get_context("fork")
    for attempt in range(3 if url.startswith("sqlite") else 1):
        ready = fork.Barrier(4)
        target = url + str(attempt) if url.startswith("sqlite") else url
        opening = [fork.Process(target=_open, args=(target, ready)) for _ in range(4)]
        for process in opening:
            process.start()
        for process in opening:
            process.join(60)
        assert [process.exitcode for process in opening] == [0] * 4


GOLDEN = Path(__file__).parent / "golden" / "zoo-0002.tar.gz"


@pytest.fixture
def old_zoo(tmp_path: Path) -> Path:
    """A zoo that release 0.1.0 made: four models, one of them removed, and an index. Never renew it."""
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path / "zoo", filter="data")
    return tmp_path / "zoo"


class Net(nn.Module):
    """What the models of the old zoo were."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width)
        self.act = nn.ReLU6(inplace=True)
        self.second, self.again = nn.Conv2d(width, 2 * width, 3, stride=2), nn.BatchNorm2d(2 * width)
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm(self.conv(x)))
        x = torch.relu(self.again(self.second(x)))
        made: Tensor = self.head(x.mean((2, 3)))
        return made


def test_a_zoo_of_the_first_release_goes_on_serving(old_zoo: Path) -> None:
    images = torch.zeros(1, 3, 12, 12)
    meta = {"data": "digits", "task": "classification"}
    with ModelKeeperClient(old_zoo, on_error="raise") as client:
        same, wider = Net(8), Net(16)
        records = {record.name: record for record in client.coordinator.models()}
        assert sorted(records) == ["attention", "net12", "net8"]
        assert records["net12"].parent == records["net8"].id
        assert [layer.kind for layer in client.coordinator.graph(records["attention"]).layers][:2] == [
            "input",
            "embedding",
        ]
        graph = describe(same, images)
        assert client.coordinator.graph(records["net8"]) == graph, "then as now"
        assert records["net8"].fingerprint == graph.fingerprint
        _, answer = client.query_for_model(same, {**meta, "parents": ["net8"]}, example_inputs=images)
        assert (answer.parent_name, answer.similarity, answer.exact) == ("net8", 1.0, True)
        _, answer = client.query_for_model(wider, meta, example_inputs=images)
        assert (answer.parent_name, answer.exact) == ("net12", True)
        assert client.register_model(wider, {**meta, "accuracy": 0.93}, example_inputs=images) is not None
        assert client.coordinator.gc(grace=0).folders == ()


@pytest.mark.parametrize("content", [b"\0", zlib.compress(b" " * 2**28)], ids=["none", "a bomb"])
def test_a_graph_that_cannot_be_read_does_not_stop_the_migration(old_zoo: Path, content: bytes) -> None:
    with closing(sqlite3.connect(old_zoo / "catalog.db")) as database, database:
        name = "SELECT graph FROM models WHERE name = 'attention'"
        database.execute(f"UPDATE graphs SET graph = ? WHERE digest = ({name})", (content,))
    with closing(Catalog(f"sqlite:///{old_zoo / 'catalog.db'}")) as catalog:
        records = {record.name: record for record in catalog.find(Filter())}
        assert len(records) == 3
        assert catalog.graph(records["net8"].graph).layers[0].kind == "input"


def _catalog(zoo: Path) -> str:
    return f"sqlite:///{zoo / 'catalog.db'}"


def test_many_processes_may_open_an_old_zoo_at_once(old_zoo: Path) -> None:
    fork = multiprocessing.get_context("fork")
    ready = fork.Barrier(4)
    opening = [fork.Process(target=_open, args=(_catalog(old_zoo), ready)) for _ in range(4)]
    for process in opening:
        process.start()
    for process in opening:
        process.join(60)
    assert [process.exitcode for process in opening] == [0] * 4
    with closing(Catalog(_catalog(old_zoo))) as catalog:
        for record in catalog.find(Filter()):
            assert catalog.graph(record.graph).fingerprint == record.fingerprint


def test_graphs_that_become_one_are_shared_by_all_their_models(old_zoo: Path) -> None:
    """An in-place relu6 and another were two graphs in version 1."""
    with closing(sqlite3.connect(old_zoo / "catalog.db")) as database, database:
        database.row_factory = sqlite3.Row
        model = dict(database.execute("SELECT * FROM models WHERE name = 'net8'").fetchone())
        query = "SELECT graph FROM graphs WHERE digest = ?"
        (packed,) = database.execute(query, (model["graph"],)).fetchone()
        digests = []
        for written in (b"hardtanh[0,6]", b"relu6"):
            text = zlib.decompress(packed).replace(b"hardtanh[0.0,6.0]", written)
            digests.append(hashlib.sha256(text).hexdigest())
            database.execute("INSERT INTO graphs VALUES (?, ?, x'00')", (digests[-1], zlib.compress(text)))
        columns = [column for column in model if column != "key"]
        insert = f"INSERT INTO models ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
        for number in range(100):
            changed = {"id": f"{number:016x}", "name": f"copy{number}", "graph": digests[number % 2]}
            database.execute(insert, [(model | changed)[column] for column in columns])
    with closing(Catalog(_catalog(old_zoo))) as catalog:
        copies = [record for record in catalog.find(Filter()) if record.name.startswith("copy")]
        assert len(copies) == 100
        assert len({(record.graph, record.fingerprint) for record in copies}) == 1
        assert catalog.graph(copies[0].graph).fingerprint == copies[0].fingerprint


def test_a_migration_that_fails_changes_nothing(old_zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lines() -> list[str]:
        with closing(sqlite3.connect(old_zoo / "catalog.db")) as database:
            return list(database.iterdump())

    before, calls = lines(), iter([False, True])

    def full(graph: Graph) -> Prepared:
        if next(calls):
            raise OSError("no space left on device")
        return prepare(graph)

    with monkeypatch.context() as patch:
        patch.setattr("modelkeeper.matching.prepare", full)
        with pytest.raises(OSError, match="no space"):
            Catalog(_catalog(old_zoo))
    assert lines() == before
    with closing(Catalog(_catalog(old_zoo))) as catalog:
        assert len(catalog.find(Filter())) == 3


def test_an_old_catalog_in_postgresql_is_migrated(old_zoo: Path, postgres_url: str) -> None:
    """The golden zoo's tables, carried over to a catalog that stopped at the schema of release 0.1."""
    engine = sa.create_engine(postgres_url)
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        with closing(sqlite3.connect(old_zoo / "catalog.db")) as database:
            database.row_factory = sqlite3.Row
            for table in (schema.models, schema.graphs):
                for row in database.execute(f"SELECT * FROM {table.name}"):
                    there = [column for column in table.columns if column.name in row.keys()]  # noqa: SIM118
                    values = {column.name: _as_python(column, row[column.name]) for column in there}
                    connection.execute(table.insert().values(values))
    engine.dispose()
    with closing(Catalog(postgres_url)) as catalog:
        records = catalog.find(Filter())
        assert len(records) == 3
        [child] = [record for record in records if record.parent]
        assert zoos.children(catalog, [child.parent]) == [child]
        for record in records:
            assert catalog.graph(record.graph).fingerprint == record.fingerprint


def test_lines_of_a_catalog_with_one_parent_are_followed(old_zoo: Path, url: str) -> None:
    """A catalog of the schema before several parents: what started from one still descends from it."""
    engine = sa.create_engine(url)
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    with closing(Catalog(_catalog(old_zoo))) as catalog:
        made = {record.name: record for record in catalog.find(Filter())}
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0004")
        models = sa.Table("models", sa.MetaData(), autoload_with=connection)
        for record in made.values():
            values = {name: value for name, value in record_row(record).items() if name in models.c}
            connection.execute(models.insert().values(**values, key=record.key, changed=1))
    engine.dispose()
    with closing(Catalog(url)) as catalog:
        assert {record.name: record for record in catalog.find(Filter())} == made
        assert zoos.children(catalog, [made["net8"].id]) == [made["net12"]]
        assert made["net12"].parents == (made["net8"].id,)


def test_what_was_said_beyond_all_bounds_is_cut_down(old_zoo: Path, url: str) -> None:
    """Metrics of 14 MB, with names that break lines, as earlier releases took them."""
    engine = sa.create_engine(url)
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    with closing(Catalog(_catalog(old_zoo))) as catalog:
        record, *others = catalog.find(Filter())
    said = {f"metric {number} {'x' * 60}": 0.5 for number in range(20_000)}
    said |= {"# Heading\n\nof its own": 1.0, "accuracy": 0.9, "train_accuracy": 0.95}
    hostile = msgspec.structs.replace(record, metrics=said, metric="accuracy", value=0.9)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0004")
        models = sa.Table("models", sa.MetaData(), autoload_with=connection)
        for each in (hostile, *others):
            values = {name: value for name, value in record_row(each).items() if name in models.c}
            connection.execute(models.insert().values(**values, key=each.key, changed=1))
    engine.dispose()
    with closing(Catalog(url)) as catalog:
        found = {each.id: each for each in catalog.find(Filter())}
        assert len(found) == 1 + len(others), "the records hold, sealed as they are now"
        metrics = found[record.id].metrics
        assert (metrics["accuracy"], metrics["train_accuracy"]) == (0.9, 0.95)
        assert kept(metrics) == metrics
        assert len(metrics) > 50
        for each in others:
            assert found[each.id] == each


def _as_python(column: "sa.Column[Any]", value: Any) -> Any:
    """A value of SQLite as the type of its column has it."""
    if isinstance(column.type, sa.JSON):
        return json.loads(value)
    return bool(value) if isinstance(column.type, sa.Boolean) else value
