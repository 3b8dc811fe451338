"""The tables of the record: `dialogues`, the models its vectors are of, and the queue of what has none yet.

The migrations make the tables; these classes are how Python sees them (a test compares the two).
"""

from datetime import date, datetime
from typing import Any

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import BigInteger, Computed, Date, DateTime, Identity, Integer, SmallInteger, Text, text
from sqlalchemy.dialects.postgresql import BIT, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.database.rows import Row


class EmbeddingModelRow(Row):
    """A model that vectors of ours were made by; vectors are compared within one model only."""

    __tablename__ = "embedding_models"

    id: Mapped[int] = mapped_column(SmallInteger, Identity(always=True), primary_key=True)
    name: Mapped[str] = mapped_column(Text)
    dimensions: Mapped[int] = mapped_column(Integer)
    # What its cosines mean: app/recall/calibration.py.
    calibration: Mapped[Any | None] = mapped_column(JSONB)
    # The one that went live last is the one whose vectors are searched.
    live_since: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    # How many messages there were when the record began to be copied for this model.
    renewal_total: Mapped[int | None] = mapped_column(Integer)


class DialogueRow(Row):
    """A message; the specification's section 7.11, made fit for production."""

    __tablename__ = "dialogues"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    user_id: Mapped[int] = mapped_column(BigInteger)
    group_id: Mapped[int | None] = mapped_column(BigInteger)
    group_key: Mapped[int] = mapped_column(BigInteger, Computed("coalesce(group_id, 0)", persisted=True))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=text("now()"))
    stored_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=text("now()"))
    expires_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    visible_until: Mapped[datetime] = mapped_column(
        DateTime(timezone=True), Computed("coalesce(expires_at, 'infinity')", persisted=True)
    )
    qq_message_id: Mapped[int | None] = mapped_column(BigInteger)
    # Of the text as it was first written: tells a retry from another message after an edit.
    written_hash: Mapped[int] = mapped_column(BigInteger)
    token_count: Mapped[int] = mapped_column(Integer)
    score: Mapped[int | None] = mapped_column(Integer)
    created_date: Mapped[date] = mapped_column(Date, Computed("in the zone of the migration", persisted=True))
    embedding_model_id: Mapped[int | None] = mapped_column(SmallInteger)
    pinned: Mapped[bool] = mapped_column(server_default=text("false"))
    outdated: Mapped[bool] = mapped_column(server_default=text("false"))
    namespace: Mapped[str] = mapped_column(Text(collation="C"), server_default=text("'default'"))
    message_uuid: Mapped[str] = mapped_column(Text(collation="C"))
    chat_type: Mapped[str] = mapped_column(Text(collation="C"))
    role: Mapped[str] = mapped_column(Text(collation="C"))
    kind: Mapped[str] = mapped_column(Text(collation="C"), server_default=text("'chat'"))
    embedding_status: Mapped[str] = mapped_column(Text(collation="C"), server_default=text("'pending'"))
    embedding_error: Mapped[str | None] = mapped_column(Text)
    sender_name: Mapped[str | None] = mapped_column(Text)
    corrects: Mapped[int | None] = mapped_column(BigInteger)
    corrected_by: Mapped[int | None] = mapped_column(BigInteger)
    content: Mapped[str] = mapped_column(Text)
    # A signature of the text's terms: the first stage of lexical search.
    terms: Mapped[Any] = mapped_column(BIT(512))
    term_bits: Mapped[int] = mapped_column(SmallInteger, Computed("bit_count(terms)", persisted=True))
    embedding: Mapped[Any | None] = mapped_column(HALFVEC())
    embedding_bits: Mapped[Any | None] = mapped_column(BIT(), Computed("of the embedding", persisted=True))


class EmbeddingJobRow(Row):
    """A message that waits for its vector; claimed by moving `available_at` into the future."""

    __tablename__ = "embedding_jobs"

    dialogue_id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    enqueued_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=text("now()"))
    available_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=text("now()"))
    attempts: Mapped[int] = mapped_column(SmallInteger, server_default=text("0"))
