"""The table of turns. The migrations make it; this class is how Python sees it."""

from datetime import datetime
from typing import Any

from sqlalchemy import ARRAY, BigInteger, Computed, DateTime, Integer, SmallInteger, Text, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.database.rows import Row


class TurnRow(Row):
    """A turn; one that waits for its score is claimed by moving `available_at` into the future."""

    __tablename__ = "turns"

    turn_id: Mapped[str] = mapped_column(Text(collation="C"), primary_key=True)
    namespace: Mapped[str] = mapped_column(Text(collation="C"))
    user_id: Mapped[int] = mapped_column(BigInteger)
    group_id: Mapped[int | None] = mapped_column(BigInteger)
    group_key: Mapped[int] = mapped_column(BigInteger, Computed("coalesce(group_id, 0)", persisted=True))
    message_uuid: Mapped[str] = mapped_column(Text(collation="C"))
    message_id: Mapped[int | None] = mapped_column(BigInteger)
    written_hash: Mapped[int] = mapped_column(BigInteger)
    sender_name: Mapped[str | None] = mapped_column(Text)
    assistant_name: Mapped[str | None] = mapped_column(Text)
    user_content: Mapped[str] = mapped_column(Text)
    reply: Mapped[str | None] = mapped_column(Text)
    status: Mapped[str] = mapped_column(Text(collation="C"))
    outcome: Mapped[str | None] = mapped_column(Text(collation="C"))
    score: Mapped[int | None] = mapped_column(Integer)
    retention: Mapped[str | None] = mapped_column(Text(collation="C"))
    expires_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    user_dialogue_id: Mapped[int | None] = mapped_column(BigInteger)
    assistant_dialogue_id: Mapped[int | None] = mapped_column(BigInteger)
    memories: Mapped[list[Any]] = mapped_column(JSONB, server_default=text("'[]'"))
    summary_ids: Mapped[list[int]] = mapped_column(ARRAY(BigInteger), server_default=text("'{}'"))
    degraded: Mapped[bool] = mapped_column(server_default=text("false"))
    no_match: Mapped[bool] = mapped_column(server_default=text("false"))
    prompt_tokens: Mapped[int | None] = mapped_column(Integer)
    completion_tokens: Mapped[int | None] = mapped_column(Integer)
    memory_tokens: Mapped[int | None] = mapped_column(Integer)
    turn_hash: Mapped[int | None] = mapped_column(BigInteger)
    attempts: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
    available_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    kept_early: Mapped[bool] = mapped_column(server_default=text("false"))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    replied_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    evaluated_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
