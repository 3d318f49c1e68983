"""Bring a catalog's database to the newest schema, step by step.

Opening a catalog that is up to date does not import alembic; only a new or an old one does.
"""

from pathlib import Path

from sqlalchemy import Connection


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Apply the migrations that are missing, up to a revision, inside the transaction at hand."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
    if revision == "head":
        from modelkeeper.zoo.ledger import begin
        from modelkeeper.zoo.rows import seal_all
        from modelkeeper.zoo.totals import count_anew

        seal_all(connection)
        count_anew(connection)
        begin(connection)
