"""Errors of PostgreSQL and of its driver without the values that they quote: those are what people said.

A `DETAIL` shows the failing row, a message on data quotes what could not be read, and the driver quotes the
argument that it could not send. What an operator needs stays: the kind, the table, the constraint.
"""

from typing import Final

import asyncpg
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError

# Data exceptions, the driver's own about arguments among them: their messages quote what was given.
_DATA: Final = "22"


def hush(error: BaseException) -> None:
    """Take the values out of a driver's error, in place."""
    if isinstance(error, asyncpg.InterfaceError):
        error.detail = error.hint = None
    elif isinstance(error, asyncpg.PostgresError):
        error.detail = error.hint = error.context = error.internal_query = None
        sqlstate = str(error.sqlstate)
        if sqlstate.startswith(_DATA):
            error.args = (f"{type(error).__name__}, SQLSTATE {sqlstate}",)


def hush_statement(context: ExceptionContext) -> None:
    """The same for an error that SQLAlchemy has wrapped already, as a listener of `handle_error`."""
    wrapped = context.original_exception
    cause = wrapped.__cause__
    hush(wrapped)
    if cause is None:
        return
    hush(cause)
    told = f"{type(cause)}: {cause}"
    wrapped.args = (told,)
    outer = context.sqlalchemy_exception
    if isinstance(outer, DBAPIError):
        kind = type(wrapped)
        outer.args = (f"({kind.__module__}.{kind.__name__}) {told}",)
