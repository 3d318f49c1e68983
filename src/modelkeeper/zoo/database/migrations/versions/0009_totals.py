"""How many models there are, how large, whose and of what: counted as they come and go, not when asked."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """What is there is counted when all migrations are done (`totals.count_anew`)."""
    summed = (
        sa.Column(name, sa.BigInteger, nullable=False) for name in ("models", "bytes", "parameters", "hits")
    )
    op.create_table(
        "totals",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("of", sa.String(200), primary_key=True),
        sa.Column("within", sa.String(200), primary_key=True),
        *summed,
    )
