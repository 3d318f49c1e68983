"""Several replicas of a service: what users have asked of all of them, and a count of changes of accounts."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Nobody has asked for anything yet."""
    op.create_table(
        "rates",
        sa.Column("user", sa.String(200), primary_key=True),
        sa.Column("level", sa.Double, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
    )
    clock = sa.table("clock", sa.column("name"), sa.column("value"))
    op.bulk_insert(clock, [{"name": "accounts", "value": 0}])
