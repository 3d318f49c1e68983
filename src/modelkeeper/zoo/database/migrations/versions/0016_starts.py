"""How did trainings start? What was asked and answered, cold starts too, and what came of it."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Of what was asked before, the log says what was lent."""
    op.create_table(
        "starts",
        sa.Column(
            "number",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=True,
        ),
        sa.Column("id", sa.String(16), nullable=False, unique=True),
        sa.Column("at", sa.Double, nullable=False, index=True),
        sa.Column("user", sa.String(200), nullable=False),
        sa.Column("user_id", sa.String(16), nullable=False),
        sa.Column("child", sa.String(64), nullable=False),
        sa.Column("task", sa.String(200), nullable=False),
        sa.Column("data", sa.String(200), nullable=False),
        sa.Column("parent", sa.String(16), nullable=False, index=True),
        sa.Column("model", sa.String(16), nullable=False, index=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("race", sa.Text),
    )
