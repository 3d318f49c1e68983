"""Tokens that users made with a token of theirs, and that end with it."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Up to now, whoever has the machine made all of them."""
    op.add_column("tokens", sa.Column("maker", sa.String(16), nullable=False, server_default=""))
