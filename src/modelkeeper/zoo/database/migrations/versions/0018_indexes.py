"""The newest models, and names that look alike, are read from indexes, however many models there are."""

from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """One for each; that of names takes the place of one that did not hold them."""
    op.create_index("models_created", "models", ["created", "key"])
    op.create_index("models_skeleton", "models", ["skeleton", "name"])
    op.drop_index("ix_models_skeleton", "models")
