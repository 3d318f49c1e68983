"""Graphs of version 1 become version 2: pins as codes, fingerprints without tensors that only count.

Each graph is read, written anew and prepared anew, and the models that refer to it follow. A graph that can
not be read stays as it is, with all that refers to it: whoever asks for it is told what is wrong with it.
"""

import hashlib
import zlib

import sqlalchemy as sa
from alembic import op

from modelkeeper.errors import ModelKeeperError
from modelkeeper.logs import logger

revision = "0003"
down_revision = "0002"

models = sa.table("models", sa.column("graph", sa.String), sa.column("fingerprint", sa.String))
graphs = sa.table(
    "graphs",
    sa.column("digest", sa.String),
    sa.column("graph", sa.LargeBinary),
    sa.column("prepared", sa.LargeBinary),
)
_log = logger()


def upgrade() -> None:
    """Write every graph anew."""
    connection = op.get_bind()
    digests = connection.scalars(sa.select(graphs.c.digest)).all()
    if not digests:  # a new zoo need not wait for what it takes to read graphs
        return
    from modelkeeper.graph import from_json, to_json
    from modelkeeper.graph.wire import MAX_BYTES
    from modelkeeper.matching import prepare

    for digest in digests:
        content = connection.scalars(sa.select(graphs.c.graph).where(graphs.c.digest == digest)).one()
        try:
            graph = from_json(zlib.decompressobj().decompress(content, MAX_BYTES + 1))
            prepared = prepare(graph).to_bytes()
        except (ModelKeeperError, zlib.error) as problem:
            _log.warning("the graph %s stays as it is: %s", digest, problem)
            continue
        text = to_json(graph)
        new = hashlib.sha256(text).hexdigest()
        connection.execute(sa.delete(graphs).where(graphs.c.digest.in_((digest, new))))
        row = {"digest": new, "graph": zlib.compress(text), "prepared": prepared}
        connection.execute(sa.insert(graphs).values(row))
        renewed = {"graph": new, "fingerprint": graph.fingerprint}
        connection.execute(sa.update(models).where(models.c.graph == digest).values(renewed))
