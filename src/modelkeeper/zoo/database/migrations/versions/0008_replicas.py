"""Several processes on several machines: who is writing what, and which store a catalog belongs to."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Models that are there lie in folders that are called by their ids alone."""
    op.add_column("models", sa.Column("attempt", sa.String(16), nullable=False, server_default=""))
    op.create_table(
        "leases",
        sa.Column("folder", sa.String(80), primary_key=True),
        sa.Column("holder", sa.String(200), nullable=False),
        sa.Column("until", sa.Double, nullable=False),
    )
    op.create_table(
        "facts",
        sa.Column("name", sa.String(40), primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
