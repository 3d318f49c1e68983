"""Events say what happened to programs, too: data as JSON beside the words."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Of what happened before, there are only the words."""
    op.add_column("events", sa.Column("data", sa.JSON, nullable=False, server_default="{}"))
