"""Users, projects, who belongs to which, and tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the tables of those who use a service."""
    op.create_table(
        "users",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("bytes", sa.BigInteger),
        sa.Column("models", sa.BigInteger),
        sa.Column("rate", sa.Double),
    )
    op.create_table(
        "projects",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("created", sa.Double, nullable=False),
    )
    op.create_table(
        "members",
        sa.Column(
            "project", sa.String(200), sa.ForeignKey("projects.name", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column("user", sa.String(200), sa.ForeignKey("users.name", ondelete="CASCADE"), primary_key=True),
        sa.Index("members_user", "user"),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column(
            "user",
            sa.String(200),
            sa.ForeignKey("users.name", ondelete="CASCADE"),
            nullable=False,
            index=True,
        ),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("note", sa.String(200), nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("expires", sa.Double),
    )
