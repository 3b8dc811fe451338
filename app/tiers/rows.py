"""The table of the hot window. The migrations make it; this class is how Python sees it."""

from datetime import datetime

from sqlalchemy import BigInteger, Computed, DateTime, Identity, Integer, Text, text
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
    role: Mapped[str] = mapped_column(Text(collation="C"))
    content: Mapped[str] = mapped_column(Text)
    sender_name: Mapped[str | None] = mapped_column(Text)
    token_count: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
