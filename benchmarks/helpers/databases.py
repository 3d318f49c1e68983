"""An empty zoo on a database of this machine, and the process of that database."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from modelkeeper.settings import Settings
from tests.helpers.parts import Postgres


@contextlib.contextmanager
def zoo_on(database: str) -> Iterator[tuple[Settings, int | None]]:
    """The settings of a zoo in a new folder, on SQLite or PostgreSQL, and the process of the latter."""
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="modelkeeper-bench-"))
        if database != "PostgreSQL":
            yield Settings(home=home), None
            return
        postgres = stack.enter_context(Postgres())
        server = int(Path(postgres.folder, "data", "postmaster.pid").read_text().split()[0])
        url = f"postgresql+psycopg://postgres@/postgres?host={postgres.folder}"
        yield Settings(home=home, catalog=url), server
