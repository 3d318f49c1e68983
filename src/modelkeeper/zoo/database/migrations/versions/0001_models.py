"""Models, their tags and graphs, events, and the clock of changes."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make all tables of the first version."""
    # long: the tables are; a migration that has been released stays as it is.
    op.create_table(
        "models",
        sa.Column("key", _KEY, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(16), nullable=False, unique=True),
        sa.Column("name", sa.String(200), nullable=False, index=True),
        sa.Column("owner", sa.String(200), nullable=False, index=True),
        sa.Column("project", sa.String(200), nullable=False),
        sa.Column("visibility", sa.String(16), nullable=False),
        sa.Column("data", sa.String(200), nullable=False),
        sa.Column("task", sa.String(200), nullable=False),
        sa.Column("tags", sa.JSON, nullable=False),
        sa.Column("metrics", sa.JSON, nullable=False),
        sa.Column("metric", sa.String(200), nullable=False),
        sa.Column("value", sa.Double),
        sa.Column("lower_is_better", sa.Boolean, nullable=False),
        sa.Column("framework", sa.String(40), nullable=False),
        sa.Column("parameters", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False, index=True),
        sa.Column("graph", sa.String(64), nullable=False, index=True),
        sa.Column("checksum", sa.String(64), nullable=False),
        sa.Column("parent", sa.String(16), nullable=False, index=True),
        sa.Column("similarity", sa.Double),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("last_used", sa.Double, nullable=False),
        sa.Column("hits", sa.BigInteger, nullable=False),
        sa.Column("pinned", sa.Boolean, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("twin", sa.String(16), nullable=False, index=True),
        sa.Column("twin_similarity", sa.Double, nullable=False),
        sa.Column("changed", sa.BigInteger, nullable=False, index=True),
        sa.Index("models_peers", "task", "data", "state"),
    )
    op.create_table(
        "tags",
        sa.Column("key", _KEY, sa.ForeignKey("models.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("tag", sa.String(200), primary_key=True),
        sa.Index("tags_tag", "tag"),
    )
    op.create_table(
        "graphs",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("graph", sa.LargeBinary, nullable=False),
        sa.Column("prepared", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("number", _KEY, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Double, nullable=False, index=True),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("model", sa.String(16), nullable=False, index=True),
        sa.Column("user", sa.String(200), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    clock = op.create_table(
        "clock",
        sa.Column("name", sa.String(16), primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(clock, [{"name": "changes", "value": 0}])
