"""Brings a database to the schema of this version, with the project's alembic folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.script.revision import ResolutionError
from alembic.util import CommandError
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from app.errors import DatabaseSetupError

# Held by who makes, changes or replaces tables; the advisory locks of a database have numbers only.
MIGRATION_LOCK: Final = 7_204_119_051


@dataclass(frozen=True)
class MigrationOptions:
    """What the schema depends on besides its version.

    Attributes:
        url: SQLAlchemy form.
        dimensions: width of the vector column where the migration makes it.
        zone: IANA name; `created_date` is the day there.
    """

    url: str
    dimensions: int
    zone: str


def alembic_folder() -> Path:
    """The folder `alembic`: beside `app` in a checkout or an image, inside it in an installed package."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package.parent / "alembic", package / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise DatabaseSetupError(
        "The folder alembic/ is not beside app/: run from a checkout, an image or a wheel."
    )


def alembic_config(options: MigrationOptions) -> Config:
    """Alembic's configuration, carrying the options to `alembic/env.py`."""
    config = Config()
    config.set_main_option("script_location", str(alembic_folder()).replace("%", "%%"))
    config.attributes["options"] = options
    return config


def create_schema_engine(url: str) -> AsyncEngine:
    """An engine without a pool, for changes of the schema; it may reach PostgreSQL through any pooler."""
    return create_async_engine(
        url,
        poolclass=NullPool,
        # Speed is of no concern here, so no statement is kept that a transaction pooler would lose or mix up.
        connect_args={
            "statement_cache_size": 0,
            "prepared_statement_cache_size": 0,
            "prepared_statement_name_func": lambda: f"__tm_{uuid4()}__",
        },
    )


async def migrate(options: MigrationOptions, revision: str = "head") -> None:
    """Upgrade to a revision; one process at a time, the others wait and find it done.

    Raises:
        DatabaseSetupError: a later version of the service has been there.
    """

    def upgrade(connection: Connection) -> None:
        config = alembic_config(options)
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, revision)
        except CommandError as error:
            if not isinstance(error.__cause__, ResolutionError):
                raise
            raise DatabaseSetupError(
                f"A later version of the service has migrated this database ({error}):"
                " start that version, or use another database."
            ) from error
        connection.commit()

    engine = create_schema_engine(options.url)
    try:
        async with engine.connect() as connection:
            await connection.run_sync(upgrade)
    finally:
        await engine.dispose()


def newest_revision() -> str:
    """The revision that this version of the service needs."""
    revision = _scripts().get_current_head()
    if revision is None:
        raise DatabaseSetupError("The folder alembic/ holds no migration.")
    return revision


def knows_revision(revision: str) -> bool:
    """Whether this version of the service has a migration of that name, and so can go on from it."""
    return revision in revisions()


def revisions() -> list[str]:
    """All that this version of the service can go on from, oldest first."""
    return [script.revision for script in _scripts().walk_revisions()][::-1]


def _scripts() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(alembic_folder()).replace("%", "%%"))
    return ScriptDirectory.from_config(config)
