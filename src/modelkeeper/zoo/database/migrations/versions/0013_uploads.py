"""Files that are being sent to a store that several machines share: what of them lies where."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Nothing is being sent: what a coordinator has of before lies in its own folder, and is sent again."""
    op.create_table(
        "uploads",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("owner", sa.String(200), nullable=False, index=True),
        sa.Column("attempt", sa.String(16), nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("text", sa.LargeBinary, nullable=False),
        sa.Column("arrived", sa.BigInteger, nullable=False),
        sa.Column("touched", sa.Double, nullable=False),
    )
    op.create_table(
        "upload_parts",
        sa.Column("upload", sa.String(16), sa.ForeignKey("uploads.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("offset", sa.BigInteger, primary_key=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("path", sa.String(200), nullable=False),
    )
