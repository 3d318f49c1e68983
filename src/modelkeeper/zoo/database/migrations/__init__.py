"""Give a catalog's database the newest schema: a new one at once, an older one step by step.

Only an old one needs alembic; a new one and one that is up to date open without importing it.
"""

from functools import cache
from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, String, Table, create_mock_engine
from sqlalchemy.schema import ExecutableDDLElement

from modelkeeper.zoo.database import schema

_stamp = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))


def create(connection: Connection) -> None:
    """Make all tables in an empty database, as migrations would, inside the transaction at hand."""
    from modelkeeper.zoo.catalog.ledger import begin

    for statement in _tables(connection.dialect.name):
        connection.exec_driver_sql(statement)
    connection.execute(_stamp.insert(), {"version_num": schema.VERSION})
    counted = [{"name": name, "value": 0} for name in (schema.CHANGES, schema.ACCOUNTS)]
    connection.execute(schema.clock.insert(), counted)
    begin(connection)


@cache
def _tables(kind: str) -> tuple[str, ...]:
    """The statements that make all tables in a database of a kind: written once, not for each zoo."""
    said: list[str] = []

    def write(statement: ExecutableDDLElement, *_: object) -> None:
        said.append(str(statement.compile(dialect=engine.dialect)))

    engine = create_mock_engine(f"{kind}://", write)
    schema.metadata.create_all(engine, checkfirst=False)
    _stamp.create(engine, checkfirst=False)
    return tuple(said)


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Apply the migrations that are missing, up to a revision, inside the transaction at hand."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
    if revision == "head":
        from modelkeeper.zoo.catalog.ledger import begin
        from modelkeeper.zoo.catalog.totals import count_anew
        from modelkeeper.zoo.database.rows import seal_all

        seal_all(connection)
        count_anew(connection)
        begin(connection)
