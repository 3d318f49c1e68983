"""Sessions of people who look at a zoo in a browser."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Nobody is logged in yet."""
    token = sa.ForeignKey("tokens.id", ondelete="CASCADE")
    op.create_table(
        "sessions",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("token", sa.String(16), token, nullable=False, index=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("seen", sa.Double, nullable=False),
    )
