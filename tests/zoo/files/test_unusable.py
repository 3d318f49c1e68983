"""A full disk is told from other failures by the codes of the system and of databases, never by words."""

import errno
import sqlite3

import pytest
import sqlalchemy as sa

from modelkeeper.errors import DiskFull, ZooUnusable
from modelkeeper.zoo.database.database import Database
from modelkeeper.zoo.files.unusable import zoo_unusable


class PostgresqlFailed(Exception):
    """As psycopg raises it."""

    def __init__(self, sqlstate: str) -> None:
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (OSError(errno.ENOSPC, "kein Platz"), DiskFull),
        (OSError(errno.EDQUOT, "Quota"), DiskFull),
        (OSError(errno.EACCES, "No space left on device, it says"), ZooUnusable),
        (PostgresqlFailed("53100"), DiskFull),
        (PostgresqlFailed("42501"), ZooUnusable),
        (ValueError("disk is full"), ZooUnusable),
    ],
)
def test_the_code_decides(cause: Exception, kind: type[ZooUnusable]) -> None:
    assert type(zoo_unusable("zoo/", "it failed", "Look.", cause)) is kind


def test_a_catalog_without_room_says_so() -> None:
    database = Database("sqlite://")
    with database.reading() as connection:
        pages = connection.scalar(sa.text("PRAGMA page_count"))
        connection.execute(sa.text(f"PRAGMA max_page_count = {pages}"))
    with pytest.raises(DiskFull) as caught, database.writing() as connection:
        connection.execute(sa.text("CREATE TABLE large AS SELECT randomblob(1000000) AS bytes"))
    assert isinstance(caught.value.__cause__, sa.exc.SQLAlchemyError)
    database.close()


def test_another_failure_of_sqlite_is_no_full_disk() -> None:
    with pytest.raises(sqlite3.Error) as caught:
        sqlite3.connect(":memory:").execute("SELECT * FROM nothing")
    assert type(zoo_unusable("zoo/", "it failed", "Look.", caught.value)) is ZooUnusable
