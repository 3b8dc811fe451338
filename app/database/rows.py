"""The base of all row classes, and what our tables are made of besides them."""

from sqlalchemy.orm import DeclarativeBase


class Row(DeclarativeBase):
    """A row of one of our tables. A row type stays in its room."""
