"""How busy was a zoo, minute by minute? Counters that outlive the processes that counted."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """What was counted before went with its process."""
    op.create_table(
        "samples",
        sa.Column("minute", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(80), primary_key=True),
        sa.Column("value", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )
