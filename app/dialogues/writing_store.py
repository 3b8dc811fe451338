"""The SQL that stores messages, with all that is to be done about them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from asyncpg import DeadlockDetectedError, UniqueViolationError
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app.database.engine import Database, WriteSession
from app.dialogues.records import Dialogue, PreparedDialogue
from app.dialogues.store import DIALOGUE_COLUMNS, read_dialogue

# Whoever corrects himself is brief; what is longer is read by nobody for what it might correct.
_LONGEST_CORRECTION_CHARS = 200

_GIVEN: Final = """
    given AS (
        SELECT * FROM unnest(
            CAST(:uuids AS text[]), CAST(:user_ids AS bigint[]), CAST(:group_ids AS bigint[]),
            CAST(:chat_types AS text[]), CAST(:roles AS text[]), CAST(:contents AS text[]),
            CAST(:sender_names AS text[]), CAST(:message_ids AS bigint[]), CAST(:scores AS int[]),
            CAST(:expires_ats AS timestamptz[]), CAST(:pinneds AS boolean[]), CAST(:kinds AS text[]),
            CAST(:outdateds AS boolean[]), CAST(:created_ats AS timestamptz[]), CAST(:hashes AS bigint[]),
            CAST(:token_counts AS int[]), CAST(:terms AS bytea[])
        ) WITH ORDINALITY AS t (message_uuid, user_id, group_id, chat_type, role, content, sender_name,
            qq_message_id, score, expires_at, pinned, kind, outdated, created_at, written_hash, token_count,
            terms, place)
    )
"""
_INSERT: Final = """
        INSERT INTO dialogues (namespace, message_uuid, user_id, group_id, chat_type, role, content,
            sender_name, qq_message_id, score, expires_at, pinned, kind, outdated, created_at, stored_at,
            written_hash, token_count, terms)
        SELECT CAST(:namespace AS text), message_uuid, user_id, group_id, chat_type, role, content,
            sender_name, qq_message_id, score, expires_at, pinned, kind, outdated, created_at,
            CAST(:now AS timestamptz), written_hash, token_count,
            CAST('x' || encode(terms, 'hex') AS bit(512))
        FROM given
"""
# What is to be done about those that were stored, d.
_CONSEQUENCES: Final = """
    job AS (
        INSERT INTO embedding_jobs (dialogue_id) SELECT id FROM d
    ), correction AS (
        INSERT INTO correction_jobs (dialogue_id)
        SELECT id FROM d
        WHERE role = 'user' AND NOT outdated AND char_length(content) <= CAST(:longest_correction AS int)
    ), hot AS (
        INSERT INTO window_messages
            (namespace, user_id, group_id, dialogue_id, role, content, sender_name, token_count, created_at)
        SELECT namespace, user_id, group_id, id, role, content, sender_name, token_count, created_at
        FROM d WHERE created_at >= CAST(:live_since AS timestamptz)
            AND visible_until > CAST(:now AS timestamptz)
            -- The message of a chat is there already.
            AND NOT EXISTS (SELECT FROM turns t
                WHERE t.namespace = d.namespace AND t.message_uuid = d.message_uuid)
        ORDER BY id
    )
"""

_INSERT_UNKNOWN = text(
    f"""
    WITH {_GIVEN}, d AS (
        {_INSERT} ORDER BY place
        ON CONFLICT (namespace, message_uuid) DO NOTHING
        RETURNING *
    ), {_CONSEQUENCES}
    SELECT {DIALOGUE_COLUMNS} FROM d
    """
)

_INSERT_IF_ALL_NEW: Final = f"""
    WITH {_GIVEN}, named AS MATERIALIZED (
        SELECT user_id, group_key, qq_message_id, written_hash FROM dialogues
        WHERE qq_message_id = ANY(CAST(:nameless AS bigint[])) AND namespace = CAST(:namespace AS text)
            AND visible_until > CAST(:now AS timestamptz)
    ), known AS MATERIALIZED (
        SELECT FROM dialogues
        WHERE namespace = CAST(:namespace AS text) AND message_uuid = ANY(CAST(:uuids AS text[]))
        UNION ALL
        SELECT FROM named JOIN given USING (user_id, qq_message_id, written_hash)
        WHERE coalesce(group_id, 0) = group_key
        LIMIT 1
    ), d AS (
        {_INSERT} WHERE NOT EXISTS (SELECT FROM known)
        ORDER BY place
        RETURNING id, namespace, message_uuid, user_id, group_id, role, content, sender_name, token_count,
            created_at, outdated, visible_until
    ), {_CONSEQUENCES}
    SELECT message_uuid, id FROM d
"""


async def insert_if_all_new(
    database: Database,
    namespace: str,
    prepared: Sequence[PreparedDialogue],
    *,
    nameless: Sequence[int],
    now: datetime,
    live_since: datetime | None,
) -> list[Dialogue] | None:
    """Store some messages in one statement, which is a transaction of its own, if none is stored already.

    Args:
        database: where the record is.
        namespace: the caller's.
        prepared: the messages, each with a uuid of its own.
        nameless: `message_id`s of those that came without a uuid: one that is stored under the same id, with
            the same session, role and content, is the same message whatever its uuid.
        now: when they are stored.
        live_since: those said since then, and not expired, enter the window; None: none does.

    Returns:
        All of them in order; None where one is stored already, or is being stored by somebody else: nothing
        was done then.
    """
    values = _values(namespace, prepared, now=now, live_since=live_since) | {"nameless": list(nameless)}
    try:
        rows = await database.write_rows(_INSERT_IF_ALL_NEW, values)
    except (UniqueViolationError, DeadlockDetectedError):
        return None
    except DBAPIError as error:
        if not isinstance(
            error.orig.__cause__ if error.orig else None, (UniqueViolationError, DeadlockDetectedError)
        ):
            raise
        return None
    if not rows:
        return None
    ids: dict[str, int] = {row[0]: row[1] for row in rows}
    return [_as_stored(ids[item.message_uuid], item) for item in prepared]


async def insert_dialogues(
    session: WriteSession,
    namespace: str,
    prepared: Sequence[PreparedDialogue],
    *,
    now: datetime,
    live_since: datetime | None,
) -> list[Dialogue]:
    """Store those whose uuid the namespace does not have yet, and enqueue them; live ones enter the window.

    Args:
        session: to write in.
        namespace: the caller's.
        prepared: the messages.
        now: when they are stored.
        live_since: those said since then, and not expired, enter the window; None: none does.

    Returns:
        What was stored, in no particular order.
    """
    rows = await session.execute(
        _INSERT_UNKNOWN, _values(namespace, prepared, now=now, live_since=live_since)
    )
    return [read_dialogue(row) for row in rows]


def _values(
    namespace: str, prepared: Sequence[PreparedDialogue], *, now: datetime, live_since: datetime | None
) -> dict[str, Any]:
    return {
        "namespace": namespace,
        "now": now,
        "live_since": live_since,
        "longest_correction": _LONGEST_CORRECTION_CHARS,
        "uuids": [item.message_uuid for item in prepared],
        "user_ids": [item.session.user_id for item in prepared],
        "group_ids": [item.session.group_id for item in prepared],
        "chat_types": [item.session.chat_type for item in prepared],
        "roles": [item.role for item in prepared],
        "contents": [item.content for item in prepared],
        "sender_names": [item.sender_name for item in prepared],
        "message_ids": [item.message_id for item in prepared],
        "scores": [item.score for item in prepared],
        "expires_ats": [item.expires_at for item in prepared],
        "pinneds": [item.pinned for item in prepared],
        "kinds": [item.kind for item in prepared],
        "outdateds": [item.outdated for item in prepared],
        "created_ats": [item.created_at for item in prepared],
        "hashes": [item.written_hash for item in prepared],
        "token_counts": [item.token_count for item in prepared],
        "terms": [item.terms for item in prepared],
    }


def _as_stored(dialogue_id: int, item: PreparedDialogue) -> Dialogue:
    """The message as the database would give it back."""
    return Dialogue(
        dialogue_id,
        item.message_uuid,
        item.session.user_id,
        item.session.group_id,
        item.role,
        item.content,
        item.sender_name,
        item.message_id,
        item.token_count,
        item.score,
        item.expires_at and item.expires_at.astimezone(UTC),
        item.pinned,
        item.kind,
        item.outdated,
        "pending",
        item.created_at.astimezone(UTC),
    )
