"""The SQL of the audit log: who erased what, and who made or revoked a key; never what was said."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import orjson
from sqlalchemy import text

from app.access.callers import Actor
from app.database.engine import ReadSession, WriteSession

Action = Literal[
    "dialogue_deleted", "session_erased", "user_erased", "memory_forgotten", "key_created", "key_revoked"
]


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that cannot be undone.

    Attributes:
        action: what was done.
        namespace: where; None: everywhere, or a key of an admin.
        user_id: of whom, where it was one user's.
        group_id: in which group; None: in private, or wherever it was.
        dialogue_id: of the message, where it was one.
        key_prefix: of the key, where it was one.
        counts: how much it was, by kind.
    """

    action: Action
    namespace: str | None
    user_id: int | None = None
    group_id: int | None = None
    dialogue_id: int | None = None
    key_prefix: str | None = None
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A deed as it is kept: when, and by whom."""

    id: int
    at: datetime
    actor: Actor
    deed: Deed


async def record_deed(session: WriteSession, deed: Deed, *, by: Actor, at: datetime | None = None) -> None:
    """Write a deed down, in the transaction that does it.

    Args:
        session: to write in.
        deed: what is done.
        by: who does it.
        at: when; None: by the database's clock.
    """
    await session.execute(
        text(
            """
            INSERT INTO audit_log (at, actor, request_id, action, namespace, user_id, group_id, dialogue_id,
                key_prefix, counts)
            VALUES (coalesce(:at, now()), :actor, :request_id, :action, :namespace, :user_id, :group_id,
                :dialogue_id, :key_prefix, CAST(:counts AS jsonb))
            """
        ),
        {
            "at": at,
            "actor": by.name,
            "request_id": by.request_id,
            "action": deed.action,
            "namespace": deed.namespace,
            "user_id": deed.user_id,
            "group_id": deed.group_id,
            "dialogue_id": deed.dialogue_id,
            "key_prefix": deed.key_prefix,
            "counts": orjson.dumps(deed.counts).decode(),
        },
    )


async def list_deeds(session: ReadSession, *, namespace: str | None, limit: int) -> list[AuditEntry]:
    """The latest entries, newest first.

    Args:
        session: to read in.
        namespace: whose; None: all.
        limit: at most so many.
    """
    rows = await session.execute(
        text(
            "SELECT id, at, actor, request_id, action, namespace, user_id, group_id, dialogue_id, key_prefix,"
            " counts FROM audit_log WHERE CAST(:namespace AS text) IS NULL OR namespace = :namespace"
            " ORDER BY id DESC LIMIT :limit"
        ),
        {"namespace": namespace, "limit": limit},
    )
    return [
        AuditEntry(
            row.id,
            row.at,
            Actor(row.actor, row.request_id),
            Deed(
                row.action,
                row.namespace,
                row.user_id,
                row.group_id,
                row.dialogue_id,
                row.key_prefix,
                _read_counts(row.counts),
            ),
        )
        for row in rows
    ]


def _read_counts(value: Any) -> dict[str, int]:
    counts: dict[str, int] = orjson.loads(value) if isinstance(value, str) else value
    return counts
