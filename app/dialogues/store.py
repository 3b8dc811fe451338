"""The record's SQL."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from asyncpg import BitString
from sqlalchemy import Row, text

from app.database.engine import ReadSession, WriteSession
from app.dialogues.records import (
    UNSET,
    Dialogue,
    DialogueChange,
    Kind,
    Position,
    Role,
    Session,
)

DIALOGUE_COLUMNS = (
    "d.id, d.message_uuid, d.user_id, d.group_id, d.role, d.content, d.sender_name, d.qq_message_id,"
    " d.token_count, d.score, d.expires_at, d.pinned, d.kind, d.outdated, d.embedding_status, d.created_at,"
    " d.corrects, d.corrected_by"
)


@dataclass(frozen=True, slots=True)
class ExistingDialogue:
    dialogue: Dialogue
    written_hash: int


async def find_by_uuid(
    session: ReadSession | WriteSession, namespace: str, uuids: Sequence[str]
) -> dict[str, ExistingDialogue]:
    """The namespace's messages with these uuids, by uuid."""
    rows = await session.execute(
        text(
            f"SELECT {DIALOGUE_COLUMNS}, d.written_hash FROM dialogues d"
            " WHERE d.namespace = :namespace AND d.message_uuid = ANY(CAST(:uuids AS text[]))"
        ),
        {"namespace": namespace, "uuids": list(uuids)},
    )
    return {row.message_uuid: ExistingDialogue(read_dialogue(row), row.written_hash) for row in rows}


async def find_names(
    session: ReadSession, namespace: str, message_ids: Sequence[int], *, now: datetime
) -> dict[tuple[Session, int, int], str]:
    """The uuids of unexpired messages with these ids, by session, id and written hash; the oldest's."""
    rows = await session.execute(
        text(
            "SELECT user_id, group_id, qq_message_id, written_hash, message_uuid FROM dialogues"
            " WHERE qq_message_id = ANY(CAST(:ids AS bigint[])) AND namespace = :namespace"
            " AND visible_until > :now ORDER BY id DESC"
        ),
        {"ids": list(message_ids), "namespace": namespace, "now": now},
    )
    return {
        (Session(row.user_id, row.group_id), row.qq_message_id, row.written_hash): row.message_uuid
        for row in rows
    }


async def find_dialogue(session: ReadSession, namespace: str, dialogue_id: int) -> Dialogue | None:
    row = (
        await session.execute(
            text(f"SELECT {DIALOGUE_COLUMNS} FROM dialogues d WHERE d.id = :id AND d.namespace = :namespace"),
            {"id": dialogue_id, "namespace": namespace},
        )
    ).one_or_none()
    return read_dialogue(row) if row else None


async def update_dialogue(
    session: WriteSession,
    namespace: str,
    dialogue_id: int,
    change: DialogueChange,
    *,
    now: datetime,
    token_count: int | None = None,
    terms: bytes | None = None,
    kind: Kind | None = None,
) -> Dialogue | None:
    """Apply a change that changes something; new content waits for a new vector.

    A message that is outdated no more is no longer corrected by another either.

    Args:
        session: to write in.
        namespace: the caller's.
        dialogue_id: the message's.
        change: what changes.
        now: tells what has expired.
        token_count: of new content.
        terms: of new content, with the speaker's name.
        kind: of new content.

    Returns:
        The changed message; None where the namespace has none with this id, or it has expired.
    """
    assignments = []
    values: dict[str, Any] = {"id": dialogue_id, "namespace": namespace, "now": now}
    for field in ("pinned", "outdated", "expires_at", "score"):
        value = getattr(change, field)
        if value is not UNSET:
            assignments.append(f"{field} = :{field}")
            values[field] = value
    if change.content is not UNSET and terms is not None:
        assignments += [
            "content = :content",
            "token_count = :token_count",
            "terms = CAST(:terms AS bit(512))",
            "kind = :kind",
            "embedding = NULL",
            "embedding_model_id = NULL",
            "embedding_error = NULL",
            "embedding_status = 'pending'",
        ]
        values |= {
            "content": change.content,
            "token_count": token_count,
            "terms": BitString.frombytes(terms),
            "kind": kind,
        }
    row = (
        await session.execute(
            text(
                f"UPDATE dialogues d SET {', '.join(assignments)}"
                " WHERE d.id = :id AND d.namespace = :namespace"
                f" AND d.visible_until > :now RETURNING {DIALOGUE_COLUMNS}"
            ),
            values,
        )
    ).one_or_none()
    if row is None:
        return None
    if change.outdated is False and row.corrected_by is not None:
        row = await _unlink(session, dialogue_id, row.corrected_by)
    if change.content is not UNSET:
        await session.execute(
            text(
                "INSERT INTO embedding_jobs (dialogue_id) VALUES (:id) ON CONFLICT (dialogue_id)"
                " DO UPDATE SET available_at = now(), attempts = 0"
            ),
            {"id": dialogue_id},
        )
        await session.execute(
            text(
                "UPDATE window_messages SET content = :content, token_count = :count WHERE dialogue_id = :id"
            ),
            {"id": dialogue_id, "content": change.content, "count": token_count},
        )
    return read_dialogue(row)


async def _unlink(session: WriteSession, corrected: int, corrected_by: int) -> Row[Any]:
    """Undo a correction, and with it what it did to a reply; the message that was corrected."""
    await session.execute(
        text("UPDATE dialogues SET corrects = NULL WHERE id = :newer AND corrects = :earlier"),
        {"newer": corrected_by, "earlier": corrected},
    )
    await session.execute(
        text(
            "UPDATE dialogues SET outdated = false, corrected_by = NULL"
            " WHERE corrected_by = :newer AND role = 'assistant'"
        ),
        {"newer": corrected_by},
    )
    rows = await session.execute(
        text(f"UPDATE dialogues d SET corrected_by = NULL WHERE d.id = :id RETURNING {DIALOGUE_COLUMNS}"),
        {"id": corrected},
    )
    return rows.one()


async def delete_dialogue(session: WriteSession, namespace: str, dialogue_id: int) -> Dialogue | None:
    """Delete a message, and what stands beside it in queues and tiers; None where there was none."""
    gone = await session.execute(
        text(
            "DELETE FROM dialogues d WHERE d.id = :id AND d.namespace = :namespace"
            f" RETURNING {DIALOGUE_COLUMNS}"
        ),
        {"id": dialogue_id, "namespace": namespace},
    )
    row = gone.one_or_none()
    if row is None:
        return None
    deleted = read_dialogue(row)
    await session.execute(
        text(
            "DELETE FROM summaries WHERE namespace = :namespace AND group_key = :group_key"
            " AND user_id = :user_id AND dialogue_id = :id"
        ),
        {
            "id": dialogue_id,
            "namespace": namespace,
            "group_key": deleted.session.group_key,
            "user_id": deleted.user_id,
        },
    )
    for table in ("embedding_jobs", "window_messages", "retrievals", "correction_jobs"):
        await session.execute(text(f"DELETE FROM {table} WHERE dialogue_id = :id"), {"id": dialogue_id})
    return deleted


async def list_dialogues(
    session: ReadSession,
    namespace: str,
    *,
    of: Session,
    role: Role | None,
    since: datetime | None,
    until: datetime | None,
    descending: bool,
    limit: int,
    after: Position | None,
    now: datetime,
) -> list[Dialogue]:
    """A session's unexpired messages by (`created_at`, `id`), from after a position."""
    conditions = ["d.namespace = :namespace", "d.group_key = :group_key", "d.user_id = :user_id"]
    values: dict[str, Any] = {
        "namespace": namespace,
        "group_key": of.group_key,
        "user_id": of.user_id,
        "limit": limit,
        "now": now,
    }
    conditions += ["d.visible_until > :now", "d.kind <> 'summary'"]
    for condition, name, value in (
        ("d.role = :role", "role", role),
        ("d.created_at >= :since", "since", since),
        ("d.created_at < :until", "until", until),
    ):
        if value is not None:
            conditions.append(condition)
            values[name] = value
    if after is not None:
        conditions.append(
            f"(d.created_at, d.id) {'<' if descending else '>'}"
            " (CAST(:after_at AS timestamptz), CAST(:after_id AS bigint))"
        )
        values |= {"after_at": after.created_at, "after_id": after.id}
    way = "DESC" if descending else "ASC"
    rows = await session.execute(
        text(
            f"SELECT {DIALOGUE_COLUMNS} FROM dialogues d WHERE {' AND '.join(conditions)}"
            f" ORDER BY d.created_at {way}, d.id {way} LIMIT :limit"
        ),
        values,
    )
    return [read_dialogue(row) for row in rows]


async def erase_dialogues(
    session: WriteSession, namespace: str, of: Session | int, *, only_summaries: bool = False
) -> int:
    """Delete a session's messages, or all of a user's in every group and in private; how many they were.

    Their places in queues and what is known of their retrieval go with them. The texts of summaries go, too,
    and are not counted here.
    """
    kinds = "kind = 'summary'" if only_summaries else "true"
    rows = await session.execute(
        text(
            f"""
            WITH locked AS MATERIALIZED (
                -- In the order of ids, as the embedding queue locks them.
                SELECT id FROM dialogues WHERE {erasure_condition(of)} AND {kinds} ORDER BY id FOR UPDATE
            ), gone AS (
                DELETE FROM dialogues d USING locked WHERE d.id = locked.id RETURNING d.id, d.kind
            ), jobs AS (
                DELETE FROM embedding_jobs j USING gone WHERE j.dialogue_id = gone.id
            ), corrections AS (
                DELETE FROM correction_jobs j USING gone WHERE j.dialogue_id = gone.id
            ), retrieved AS MATERIALIZED (
                SELECT dialogue_id FROM retrievals WHERE dialogue_id IN (SELECT id FROM gone)
                ORDER BY dialogue_id FOR UPDATE
            ), retrieved_gone AS (
                DELETE FROM retrievals r USING retrieved WHERE r.dialogue_id = retrieved.dialogue_id
            )
            SELECT count(*) FROM gone WHERE kind <> 'summary'
            """
        ),
        {"namespace": namespace, **erasure_values(of)},
    )
    return int(rows.scalar_one())


def erasure_condition(of: Session | int) -> str:
    """The WHERE of an erasure, for any table with namespace, group_key and user_id."""
    where = "namespace = :namespace AND user_id = :user_id"
    return f"{where} AND group_key = :group_key" if isinstance(of, Session) else where


def erasure_values(of: Session | int) -> dict[str, int]:
    """The parameters of `erasure_condition`."""
    return {"user_id": of.user_id, "group_key": of.group_key} if isinstance(of, Session) else {"user_id": of}


def read_dialogue(row: Sequence[Any]) -> Dialogue:
    """A message from a row that begins with `DIALOGUE_COLUMNS`, in the order of `Dialogue`'s fields."""
    dialogue = Dialogue(*row[:18])
    # PostgreSQL's infinity is read as a time without zone, which compares with no other.
    if dialogue.expires_at is not None and dialogue.expires_at.tzinfo is None:
        dialogue = replace(dialogue, expires_at=dialogue.expires_at.replace(tzinfo=UTC))
    return dialogue
