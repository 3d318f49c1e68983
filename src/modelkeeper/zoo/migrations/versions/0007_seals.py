"""Seals on records and prepared graphs, and checksums of programs: a bit that flips on a disk is noticed.

The seals themselves are set when all migrations are done (`rows.seal_all`): a later one may change what they
cover.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Nothing is sealed yet; of programs that are there no checksum is known."""
    op.add_column("models", sa.Column("seal", sa.String(40), nullable=False, server_default=""))
    op.add_column("models", sa.Column("program", sa.String(64), nullable=False, server_default=""))
    op.add_column("graphs", sa.Column("seal", sa.String(40), nullable=False, server_default=""))
