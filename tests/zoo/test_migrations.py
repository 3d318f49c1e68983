"""The schema: migrations make what the queries are written for, once, also when many open a zoo at once."""

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from modelkeeper.errors import ZooUnusable
from modelkeeper.zoo import migrations, schema
from modelkeeper.zoo.catalog import Catalog
from modelkeeper.zoo.records import Filter


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalog.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


def test_migrations_lead_to_the_schema(url: str) -> None:
    catalog = Catalog(url)
    with catalog.database._engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []
    catalog.close()
    heads = ScriptDirectory(str(Path(migrations.__file__).parent)).get_heads()
    assert heads == [schema.VERSION]


def test_a_newer_schema_is_refused(url: str) -> None:
    catalog = Catalog(url)
    with catalog.database._engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    catalog.close()
    with pytest.raises(ZooUnusable, match=rf"9999, this modelkeeper knows {schema.VERSION}\. Upgrade"):
        Catalog(url)


def test_a_catalog_that_is_up_to_date_opens_without_alembic(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    Catalog(url).close()
    code = f"import sys; from modelkeeper.zoo.catalog import Catalog; Catalog({url!r}); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "sqlalchemy" in run.stdout.split()
    assert not {"alembic", "torch", "scipy"} & set(run.stdout.split())


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
