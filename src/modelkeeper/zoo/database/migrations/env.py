"""What alembic runs: the migrations, on the connection that `upgrade` hands over."""

from alembic import context

from modelkeeper.zoo.database.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
