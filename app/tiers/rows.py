"""The tables of the hot window and of summaries. The migrations make them."""

from datetime import datetime

from sqlalchemy import BigInteger, Computed, DateTime, Identity, Integer, SmallInteger, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from app.database.rows import Row


class WindowMessageRow(Row):
    """A message of the conversation that is going on; a copy: the record may forget it, or never hold it."""

    __tablename__ = "window_messages"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    namespace: Mapped[str] = mapped_column(Text(collation="C"), server_default=text("'default'"))
    user_id: Mapped[int] = mapped_column(BigInteger)
    group_id: Mapped[int | None] = mapped_column(BigInteger)
    group_key: Mapped[int] = mapped_column(BigInteger, Computed("coalesce(group_id, 0)", persisted=True))
    dialogue_id: Mapped[int | None] = mapped_column(BigInteger)
    turn_id: Mapped[str | None] = mapped_column(Text(collation="C"))
    role: Mapped[str] = mapped_column(Text(collation="C"))
    content: Mapped[str] = mapped_column(Text)
    sender_name: Mapped[str | None] = mapped_column(Text)
    token_count: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class SummaryRow(Row):
    """What an older stretch of the window became (warm); its text is a dialogue, too, to be found."""

    __tablename__ = "summaries"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    namespace: Mapped[str] = mapped_column(Text(collation="C"))
    user_id: Mapped[int] = mapped_column(BigInteger)
    group_id: Mapped[int | None] = mapped_column(BigInteger)
    group_key: Mapped[int] = mapped_column(BigInteger, Computed("coalesce(group_id, 0)", persisted=True))
    dialogue_id: Mapped[int] = mapped_column(BigInteger)
    content: Mapped[str] = mapped_column(Text)
    since: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    until: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    messages: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class CompressionRow(Row):
    """A window that somebody is compressing, until `available_at`."""

    __tablename__ = "compressions"

    namespace: Mapped[str] = mapped_column(Text(collation="C"), primary_key=True)
    group_key: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    user_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    attempts: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    available_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
