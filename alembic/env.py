"""Runs migrations, inside `temporal-memory migrate` or by `alembic` on the command line."""

import asyncio

from alembic import context
from sqlalchemy import Connection, text

from app.access import rows as access_rows
from app.database.migrations import MIGRATION_LOCK, MigrationOptions, create_schema_engine
from app.database.rows import Row
from app.dialogues import rows as dialogue_rows
from app.evaluation import rows as evaluation_rows
from app.forgetting import rows as forgetting_rows
from app.tiers import rows as tier_rows

# Loading a room's rows enters its tables into Row.metadata.
ROOMS = (access_rows, dialogue_rows, evaluation_rows, forgetting_rows, tier_rows)

# Two processes that start together must not migrate together.
_LOCK = 7_204_119_051


def run(connection: Connection, options: MigrationOptions) -> None:
    context.configure(
        connection=connection,
        target_metadata=Row.metadata,
        compare_type=True,
        compare_server_default=False,
        transaction_per_migration=False,
        dimensions=options.dimensions,
        zone=options.zone,
    )
    with context.begin_transaction():
        connection.execute(text(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"))
        context.run_migrations()


async def run_online(options: MigrationOptions) -> None:
    engine = create_schema_engine(options.url)
    async with engine.connect() as connection:
        await connection.run_sync(run, options)
    await engine.dispose()


given = context.config.attributes.get("options")
if given is not None and (connection := context.config.attributes.get("connection")) is not None:
    run(connection, given)
else:
    from app.services import migration_options
    from app.settings import load_settings

    asyncio.run(run_online(migration_options(load_settings())))
