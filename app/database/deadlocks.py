"""Transactions that waited for each other in a ring: PostgreSQL ends one of them, which may go again."""

from asyncpg import DeadlockDetectedError
from sqlalchemy.exc import DBAPIError


def is_deadlock(error: DBAPIError) -> bool:
    """Whether this is what the transaction failed of; nothing of it has been done then."""
    return isinstance(error.orig.__cause__ if error.orig else None, DeadlockDetectedError)
