"""Identities are ids, names are labels; and room for who signed and checked a model, and what it brought."""

import secrets

import sqlalchemy as sa
from alembic import op

from modelkeeper.zoo.look_alikes import skeleton

revision = "0006"
down_revision = "0005"

_KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Users and projects get ids; models belong to those who bear their owner's name at this moment."""
    for name, length in (("owner_id", 16), ("project_id", 16), ("evidence", 64), ("signer", 64)):
        op.add_column("models", sa.Column(name, sa.String(length), nullable=False, server_default=""))
    for name in ("licence", "origin", "skeleton"):
        op.add_column("models", sa.Column(name, sa.String(200), nullable=False, server_default=""))
    op.add_column("models", sa.Column("published", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_index("ix_models_owner_id", "models", ["owner_id"])
    op.create_index("ix_models_signer", "models", ["signer"])
    op.create_index("ix_models_skeleton", "models", ["skeleton"])
    _set_skeletons()
    _give_ids()
    op.create_table(
        "outcomes",
        sa.Column("number", _KEY, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("parent", sa.String(16), nullable=False, index=True),
        sa.Column("child", sa.String(16), nullable=False),
        sa.Column("user", sa.String(200), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("gain", sa.Double, nullable=False),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("public", sa.String(64), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("revoked", sa.Double),
    )
    op.create_table(
        "ledger",
        sa.Column("number", _KEY, primary_key=True, autoincrement=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("kind", sa.String(40), nullable=False),
        sa.Column("model", sa.String(16), nullable=False, index=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("previous", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )


def _set_skeletons() -> None:
    """Note which names look alike."""
    connection, models = op.get_bind(), sa.table("models", sa.column("name"), sa.column("skeleton"))
    for name in connection.execute(sa.select(models.c.name).distinct()).scalars().all():
        named = models.update().where(models.c.name == name)
        connection.execute(named.values(skeleton=skeleton(name)))


def _give_ids() -> None:
    """Make the tables of users, projects, members and tokens anew, with the same people in them."""
    connection = op.get_bind()
    there = {
        name: connection.execute(sa.text(f'SELECT * FROM "{name}"')).mappings().all()
        for name in ("users", "projects", "members", "tokens")
    }
    for name in ("tokens", "members", "projects", "users"):
        op.drop_table(name)
    users, projects, members, tokens = _tables()
    models = sa.table("models", *(sa.column(name) for name in ("owner", "owner_id", "project", "project_id")))
    ids: dict[str, dict[str, str]] = {}
    for table, of in ((users, "owner"), (projects, "project")):
        ids[table.name] = {row["name"]: secrets.token_hex(8) for row in there[table.name]}
        for row in there[table.name]:
            identity = ids[table.name][row["name"]]
            connection.execute(table.insert().values(id=identity, **row))
            named = models.update().where(models.c[of] == row["name"])
            connection.execute(named.values({f"{of}_id": identity}))
    for row in there["members"]:
        both = {"project": ids["projects"][row["project"]], "user": ids["users"][row["user"]]}
        connection.execute(members.insert().values(both))
    for row in there["tokens"]:
        connection.execute(tokens.insert().values({**row, "user": ids["users"][row["user"]]}))


def _tables() -> tuple[sa.Table, sa.Table, sa.Table, sa.Table]:
    users = op.create_table(
        "users",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("bytes", sa.BigInteger),
        sa.Column("models", sa.BigInteger),
        sa.Column("rate", sa.Double),
        sa.Column("pins", sa.BigInteger),
    )
    projects = op.create_table(
        "projects",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("created", sa.Double, nullable=False),
    )
    belongs_to = sa.ForeignKey("projects.id", ondelete="CASCADE")
    members = op.create_table(
        "members",
        sa.Column("project", sa.String(16), belongs_to, primary_key=True),
        sa.Column("user", sa.String(16), sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
        sa.Index("members_user", "user"),
    )
    held_by = sa.ForeignKey("users.id", ondelete="CASCADE")
    tokens = op.create_table(
        "tokens",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("user", sa.String(16), held_by, nullable=False, index=True),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("note", sa.String(200), nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("expires", sa.Double),
    )
    return users, projects, members, tokens
