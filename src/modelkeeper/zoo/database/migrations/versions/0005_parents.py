"""Models that started from several others: all parents of each, to be found by either end."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Models so far have one parent, or none."""
    op.add_column("models", sa.Column("more_parents", sa.JSON, nullable=False, server_default="[]"))
    key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    parents = op.create_table(
        "parents",
        sa.Column("key", key, sa.ForeignKey("models.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("place", sa.Integer, primary_key=True),
        sa.Column("parent", sa.String(16), nullable=False),
    )
    op.create_index("parents_parent", "parents", ["parent"])
    models = sa.table("models", sa.column("key"), sa.column("parent"))
    known = sa.select(models.c.key, sa.literal(0), models.c.parent).where(models.c.parent != "")
    op.execute(parents.insert().from_select(["key", "place", "parent"], known))
