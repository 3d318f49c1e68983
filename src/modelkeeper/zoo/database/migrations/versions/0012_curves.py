"""How did the training of a model go? A curve beside its record."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Of models that are there nobody knows."""
    op.create_table(
        "curves",
        sa.Column(
            "key",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            sa.ForeignKey("models.key", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("metric", sa.String(200), nullable=False),
        sa.Column("lower_is_better", sa.Boolean, nullable=False),
        sa.Column("points", sa.LargeBinary, nullable=False),
    )
