"""Models that are versions of a training, whether it has ended, and folds of data."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Models so far were registered at the end of their trainings, and on no fold."""
    op.add_column("models", sa.Column("fold", sa.String(200), nullable=False, server_default=""))
    op.add_column("models", sa.Column("run", sa.String(16), nullable=False, server_default=""))
    op.add_column("models", sa.Column("finished", sa.Boolean, nullable=False, server_default=sa.true()))
    op.create_index("ix_models_run", "models", ["run"])
