"""The tables of keys and of the audit log. The migrations make them."""

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, DateTime, Identity, LargeBinary, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.database.rows import Row


class ApiKeyRow(Row):
    """A key, of which only the digest is kept; one that is revoked stays, to be told of."""

    __tablename__ = "api_keys"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    namespace: Mapped[str | None] = mapped_column(Text(collation="C"))
    role: Mapped[str] = mapped_column(Text(collation="C"))
    prefix: Mapped[str] = mapped_column(Text(collation="C"))
    digest: Mapped[bytes] = mapped_column(LargeBinary)
    label: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    last_used_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    revoked_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))


class AuditRow(Row):
    """Something that cannot be undone, and who did it; no text that anybody said has a place here."""

    __tablename__ = "audit_log"

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    actor: Mapped[str] = mapped_column(Text(collation="C"))
    request_id: Mapped[str | None] = mapped_column(Text(collation="C"))
    action: Mapped[str] = mapped_column(Text(collation="C"))
    namespace: Mapped[str | None] = mapped_column(Text(collation="C"))
    user_id: Mapped[int | None] = mapped_column(BigInteger)
    group_id: Mapped[int | None] = mapped_column(BigInteger)
    dialogue_id: Mapped[int | None] = mapped_column(BigInteger)
    key_prefix: Mapped[str | None] = mapped_column(Text(collation="C"))
    counts: Mapped[Any] = mapped_column(JSONB)
