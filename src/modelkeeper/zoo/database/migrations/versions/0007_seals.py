"""Seals on records and prepared graphs, and checksums of programs: a bit that flips on a disk is noticed.

What was said of models before there were bounds to it is cut down to them: metrics beyond any number made
everybody's listings fail.

The seals themselves are set when all migrations are done (`rows.seal_all`): a later one may change what they
cover.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_LONGEST = 8 * 2**10  # bytes of metrics as JSON
_NAME = 100  # characters


def upgrade() -> None:
    """Nothing is sealed yet; of programs that are there no checksum is known."""
    op.add_column("models", sa.Column("seal", sa.String(40), nullable=False, server_default=""))
    op.add_column("models", sa.Column("program", sa.String(64), nullable=False, server_default=""))
    op.add_column("graphs", sa.Column("seal", sa.String(40), nullable=False, server_default=""))
    _cut_down()


def _cut_down() -> None:
    """Keep of each model's metrics what fits, first the one that models are compared by."""
    connection = op.get_bind()
    there = sa.table("models", sa.column("key"), sa.column("metric"), sa.column("metrics", sa.JSON))
    text = sa.cast(there.c.metrics, sa.Text)
    doubtful = (sa.func.length(text) > _LONGEST) | text.contains("\\", autoescape=True)
    for key in connection.execute(sa.select(there.c.key).where(doubtful)).scalars().all():
        row = connection.execute(sa.select(there).where(there.c.key == key)).one()
        fitting = _fitting(row.metrics, row.metric)
        connection.execute(there.update().where(there.c.key == key).values(metrics=fitting))


def _fitting(metrics: dict[str, Any], first: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    size = 2
    for name in sorted(metrics, key=lambda name: not (first and name.endswith(first))):
        size += len(name.encode()) + 30
        if name.isprintable() and len(name) <= _NAME and size <= _LONGEST:
            found[name] = metrics[name]
    return found
