"""The SQL of corrections: messages to be read for what they correct, what was said before, the mark."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from app.database.engine import ReadSession, WriteSession
from app.dialogues.copies_store import retract_summaries
from app.dialogues.records import EmbeddingStatus, Session
from app.forgetting.echoes import is_echo

_BY_BITS = 200


@dataclass(frozen=True, slots=True)
class Statement:
    """A message of a user that may correct an earlier one, as it was when it was claimed."""

    id: int
    namespace: str
    session: Session
    content: str
    created_at: datetime
    stored_at: datetime
    embedding_status: EmbeddingStatus


@dataclass(frozen=True, slots=True)
class Earlier:
    """What the same user said before. `similarity`: cosine; None where it is not known."""

    id: int
    content: str
    similarity: float | None


async def claim(
    session: WriteSession, *, now: datetime, limit: int, lease_s: float, most_attempts: int
) -> list[Statement]:
    """Take the first free messages of the queue for a while; those that are gone, or hold no more, leave it.

    So does one that has been claimed so often without an end that there must be something wrong with it.
    """
    rows = (
        await session.execute(
            text(
                """
                WITH free AS (
                    -- By id, not by time: what was said first is read first.
                    SELECT dialogue_id FROM correction_jobs WHERE available_at <= now()
                    ORDER BY dialogue_id LIMIT :limit FOR UPDATE SKIP LOCKED
                ), claimed AS (
                    UPDATE correction_jobs j
                    SET available_at = now() + make_interval(secs => :lease), attempts = attempts + 1
                    FROM free WHERE j.dialogue_id = free.dialogue_id
                    RETURNING j.dialogue_id, j.attempts
                )
                SELECT c.dialogue_id, c.attempts, d.id, d.namespace, d.user_id, d.group_id, d.content,
                    d.created_at, d.stored_at, d.embedding_status
                FROM claimed c LEFT JOIN dialogues d
                    ON d.id = c.dialogue_id AND NOT d.outdated AND d.visible_until > :now
                ORDER BY c.dialogue_id
                """
            ),
            {"now": now, "limit": limit, "lease": lease_s},
        )
    ).all()
    useless = [row.dialogue_id for row in rows if row.id is None or row.attempts > most_attempts]
    await finish(session, useless)
    return [
        Statement(
            row.id,
            row.namespace,
            Session(row.user_id, row.group_id),
            row.content,
            row.created_at,
            row.stored_at,
            row.embedding_status,
        )
        for row in rows
        if row.dialogue_id not in useless
    ]


async def extend(session: WriteSession, dialogue_ids: Sequence[int], *, seconds: float) -> None:
    """Move the end of claims to `seconds` from now."""
    await session.execute(
        text(
            "UPDATE correction_jobs SET available_at = now() + make_interval(secs => :seconds)"
            " WHERE dialogue_id IN (SELECT dialogue_id FROM correction_jobs"
            " WHERE dialogue_id = ANY(CAST(:ids AS bigint[])) FOR UPDATE SKIP LOCKED)"
        ),
        {"ids": list(dialogue_ids), "seconds": seconds},
    )


async def postpone(session: WriteSession, dialogue_id: int, *, seconds: float) -> None:
    """Let a message wait, which is no fault of its own."""
    await session.execute(
        text(
            "UPDATE correction_jobs SET available_at = now() + make_interval(secs => :seconds), attempts = 0"
            " WHERE dialogue_id = :id"
        ),
        {"id": dialogue_id, "seconds": seconds},
    )


async def finish(session: WriteSession, dialogue_ids: Sequence[int]) -> None:
    """Take messages that have been read out of the queue."""
    if dialogue_ids:
        await session.execute(
            text("DELETE FROM correction_jobs WHERE dialogue_id = ANY(CAST(:ids AS bigint[]))"),
            {"ids": list(dialogue_ids)},
        )


async def is_something_missing(session: ReadSession, statement: Statement) -> bool:
    """Whether anything that was said before in the session is still to be read, or to be stored."""
    found = await session.execute(
        text(
            """
            SELECT EXISTS (
                SELECT FROM correction_jobs j JOIN dialogues d ON d.id = j.dialogue_id
                WHERE j.dialogue_id < :id AND d.namespace = :namespace AND d.group_key = :group_key
                    AND d.user_id = :user_id
            ) OR EXISTS (
                SELECT FROM turns
                WHERE namespace = :namespace AND group_key = :group_key AND user_id = :user_id
                    AND (status = 'answering' OR status = 'pending' AND NOT kept_early)
                    AND created_at < :created_at
            )
            """
        ),
        _place_of(statement),
    )
    return bool(found.scalar_one())


async def read_earlier(
    session: ReadSession, statement: Statement, *, now: datetime, nearest: int, newest: int
) -> list[Earlier]:
    """What the user said before that is nearest in meaning, and what he said last, the newest last."""
    rows = await session.execute(
        text(
            """
            WITH me AS MATERIALIZED (
                SELECT embedding, embedding_bits, embedding_model_id FROM dialogues WHERE id = :id
            ), near AS MATERIALIZED (
                -- Bits are read from the index, and too rough to be the last word.
                SELECT id FROM dialogues
                WHERE namespace = :namespace AND group_key = :group_key AND user_id = :user_id
                    AND embedding_status = 'ready' AND NOT outdated AND kind <> 'summary' AND role = 'user'
                    AND embedding_model_id = (SELECT embedding_model_id FROM me) AND visible_until > :now
                    AND (created_at, id) < (:created_at, :id)
                ORDER BY embedding_bits <~> (SELECT embedding_bits FROM me) LIMIT :by_bits
            ), nearest AS (
                SELECT d.id FROM near JOIN dialogues d USING (id)
                ORDER BY d.embedding <=> (SELECT embedding FROM me) LIMIT :nearest
            ), newest AS (
                SELECT id FROM dialogues
                WHERE namespace = :namespace AND group_key = :group_key AND user_id = :user_id
                    AND NOT outdated AND kind <> 'summary' AND role = 'user' AND visible_until > :now
                    AND (created_at, id) < (:created_at, :id)
                ORDER BY created_at DESC, id DESC LIMIT :newest
            )
            SELECT d.id, d.content,
                CASE WHEN d.embedding_model_id = me.embedding_model_id
                    THEN 1 - (d.embedding <=> me.embedding) END AS similarity
            FROM (SELECT id FROM nearest UNION SELECT id FROM newest) c JOIN dialogues d USING (id), me
            ORDER BY d.created_at, d.id
            """
        ),
        _place_of(statement) | {"now": now, "by_bits": _BY_BITS, "nearest": nearest, "newest": newest},
    )
    return [Earlier(row.id, row.content, row.similarity) for row in rows]


async def mark_outdated(
    session: WriteSession, earlier: Earlier, statement: Statement, *, now: datetime
) -> bool:
    """Make a message outdated by another, and link the two; False where either has changed meanwhile.

    A reply that repeated it goes with it, and so do summaries of that time: they told what holds no more.
    """
    rows = (
        await session.execute(
            text(
                "SELECT id, content, created_at, outdated, corrects, visible_until > :now AS visible"
                " FROM dialogues WHERE id IN (:earlier, :later) ORDER BY id FOR NO KEY UPDATE"
            ),
            {"earlier": earlier.id, "later": statement.id, "now": now},
        )
    ).all()
    by_id = {row.id: row for row in rows if row.visible and not row.outdated}
    old, new = by_id.get(earlier.id), by_id.get(statement.id)
    if old is None or new is None or (old.content, new.content) != (earlier.content, statement.content):
        return False
    if new.corrects is None:
        await session.execute(
            text(
                """
                UPDATE dialogues SET outdated = (id = :earlier),
                    corrected_by = CASE WHEN id = :earlier THEN CAST(:later AS bigint) ELSE corrected_by END,
                    corrects = CASE WHEN id = :later THEN CAST(:earlier AS bigint) ELSE corrects END
                WHERE id IN (:earlier, :later)
                """
            ),
            {"earlier": earlier.id, "later": statement.id},
        )
        await _take_back_what_repeats_it(session, earlier, statement, said_at=old.created_at, now=now)
    return True


async def _take_back_what_repeats_it(
    session: WriteSession, earlier: Earlier, statement: Statement, *, said_at: datetime, now: datetime
) -> None:
    reply = (
        await session.execute(
            text(
                """
                SELECT id, role, content FROM dialogues
                WHERE namespace = :namespace AND group_key = :group_key AND user_id = :user_id
                    AND kind <> 'summary' AND visible_until > :now AND (created_at, id) > (:said_at, :earlier)
                ORDER BY created_at, id LIMIT 1
                """
            ),
            _place_of(statement) | {"now": now, "said_at": said_at, "earlier": earlier.id},
        )
    ).one_or_none()
    if (
        reply is not None
        and reply.role == "assistant"
        and is_echo(reply.content, corrected=earlier.content, correction=statement.content)
    ):
        await session.execute(
            text(
                "UPDATE dialogues SET outdated = true, corrected_by = :later"
                " WHERE id = :reply AND content = :content AND NOT outdated AND NOT pinned"
            ),
            {"later": statement.id, "reply": reply.id, "content": reply.content},
        )
    # A summary of that time that is just being stored needs these rows, too: it is there then, and goes.
    await session.execute(
        text("SELECT FROM window_messages WHERE dialogue_id = :id ORDER BY id FOR UPDATE"), {"id": earlier.id}
    )
    await retract_summaries(session, statement.namespace, statement.session, [said_at])


def _place_of(statement: Statement) -> dict[str, object]:
    return {
        "id": statement.id,
        "namespace": statement.namespace,
        "group_key": statement.session.group_key,
        "user_id": statement.session.user_id,
        "created_at": statement.created_at,
    }
