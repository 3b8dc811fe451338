"""The SQL of summaries and of the compression that makes them."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text

from app.database.engine import ReadSession, WriteSession
from app.dialogues.records import Session, WindowMessage
from app.dialogues.store import erasure_condition, erasure_values
from app.tiers.records import Summary

# What is over is compressed again: one prompt takes no more messages than these.
_MOST_MESSAGES_AT_ONCE = 100


class StretchGoneError(Exception):
    """What was summarised has left the window meanwhile (erased, compressed by another), or holds no more."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The older part of a window that is over its budget, oldest first.

    Attributes:
        ids: of the window's rows.
        messages: what they say.
        outdated: the rows whose message was corrected: they leave the window, and no summary tells them.
    """

    ids: list[int]
    messages: list[WindowMessage]
    outdated: frozenset[int]

    @property
    def told(self) -> list[WindowMessage]:
        """What a summary is made of."""
        pairs = zip(self.ids, self.messages, strict=True)
        return [message for key, message in pairs if key not in self.outdated]

    def head(self, characters: int) -> "Stretch":
        """The oldest messages of so many characters together, and the one that is over it."""
        end, left = 0, characters
        while end < len(self.ids) and left > 0:
            left -= len(self.messages[end].content)
            end += 1
        return Stretch(self.ids[:end], self.messages[:end], self.outdated & set(self.ids[:end]))


_SHOWN = """
    FROM summaries s JOIN dialogues d ON d.id = s.dialogue_id
    WHERE s.namespace = :namespace AND s.group_key = :group_key AND s.user_id = :user_id
        AND d.visible_until > :now AND NOT d.outdated
"""


async def read_summaries(
    session: ReadSession, namespace: str, of: Session, *, now: datetime, limit: int | None
) -> list[Summary]:
    """A session's newest summaries, oldest first, without what has expired or is outdated."""
    rows = await session.execute(
        text(
            "SELECT * FROM (SELECT s.id, s.content, s.since, s.until, s.messages, s.created_at"
            f" {_SHOWN} ORDER BY s.until DESC, s.id DESC LIMIT CAST(:limit AS bigint)) newest"
            " ORDER BY until, id"
        ),
        {
            "namespace": namespace,
            "group_key": of.group_key,
            "user_id": of.user_id,
            "now": now,
            "limit": limit,
        },
    )
    return [Summary(*row) for row in rows]


async def read_newest_ids(
    session: ReadSession, namespace: str, of: Session, *, now: datetime, limit: int
) -> list[int]:
    """The ids of a session's newest summaries, oldest first; a summary that is changed gets a new id."""
    rows = await session.execute(
        text(f"SELECT s.id {_SHOWN} ORDER BY s.until DESC, s.id DESC LIMIT :limit"),
        {
            "namespace": namespace,
            "group_key": of.group_key,
            "user_id": of.user_id,
            "now": now,
            "limit": limit,
        },
    )
    return list(reversed(list(rows.scalars())))


async def read_last_row(session: WriteSession) -> int:
    """The number of the window row that was written last; 0 where there is none."""
    found = await session.execute(text("SELECT coalesce(max(id), 0) FROM window_messages"))
    return int(found.scalar_one())


async def claim_window(
    session: WriteSession, *, budget_tokens: int, lease_s: float, since_row: int
) -> tuple[str, Session] | None:
    """Take one window that is over its budget and that nobody is compressing, for a while.

    Args:
        session: a transaction.
        budget_tokens: of a window.
        lease_s: how long nobody else takes it.
        since_row: only windows with a row behind this one are looked at, and those that were claimed before.
    """
    row = (
        await session.execute(
            text(
                """
                WITH changed AS (
                    SELECT namespace, group_key, user_id FROM window_messages WHERE id > :since_row
                    UNION
                    SELECT namespace, group_key, user_id FROM compressions WHERE available_at <= now()
                ), over AS (
                    SELECT namespace, group_key, user_id
                    FROM changed JOIN window_messages USING (namespace, group_key, user_id)
                    GROUP BY namespace, group_key, user_id HAVING sum(token_count) > :budget
                ), free AS (
                    SELECT over.* FROM over LEFT JOIN compressions c USING (namespace, group_key, user_id)
                    WHERE c.available_at IS NULL OR c.available_at <= now()
                    ORDER BY c.available_at NULLS FIRST LIMIT 1
                )
                INSERT INTO compressions (namespace, group_key, user_id, available_at, attempts)
                SELECT namespace, group_key, user_id, now() + make_interval(secs => :lease), 1 FROM free
                ON CONFLICT (namespace, group_key, user_id) DO UPDATE
                    SET available_at = excluded.available_at, attempts = compressions.attempts + 1
                    WHERE compressions.available_at <= now()
                RETURNING namespace, group_key, user_id
                """
            ),
            {"budget": budget_tokens, "lease": lease_s, "since_row": since_row},
        )
    ).one_or_none()
    if row is None:
        return None
    return row.namespace, Session(row.user_id, row.group_key or None)


async def postpone_compression(session: WriteSession, namespace: str, of: Session, *, seconds: float) -> None:
    """Move the end of a claim on a window to `seconds` from now."""
    await session.execute(
        text(
            "UPDATE compressions SET available_at = now() + make_interval(secs => :seconds)"
            " WHERE namespace = :namespace AND group_key = :group_key AND user_id = :user_id"
        ),
        {"namespace": namespace, "group_key": of.group_key, "user_id": of.user_id, "seconds": seconds},
    )


async def finish_compression(
    session: WriteSession, namespace: str, of: Session, *, budget_tokens: int
) -> None:
    """Give up the claim on a window for good; one that is still over its budget may be taken afresh."""
    values = {"namespace": namespace, "group_key": of.group_key, "user_id": of.user_id}
    left = await session.execute(
        text(
            """
            UPDATE compressions c SET available_at = now(), attempts = 0
            WHERE namespace = :namespace AND group_key = :group_key AND user_id = :user_id
                AND (SELECT sum(token_count) FROM window_messages w WHERE w.namespace = c.namespace
                    AND w.group_key = c.group_key AND w.user_id = c.user_id) > :budget
            RETURNING 1
            """
        ),
        values | {"budget": budget_tokens},
    )
    if left.first() is None:
        await session.execute(
            text(
                "DELETE FROM compressions"
                " WHERE namespace = :namespace AND group_key = :group_key AND user_id = :user_id"
            ),
            values,
        )


async def read_attempts(session: WriteSession, namespace: str, of: Session) -> int:
    """How often a window has been claimed without success."""
    found = await session.execute(
        text(
            "SELECT attempts FROM compressions"
            " WHERE namespace = :namespace AND group_key = :group_key AND user_id = :user_id"
        ),
        {"namespace": namespace, "group_key": of.group_key, "user_id": of.user_id},
    )
    return found.scalar_one_or_none() or 0


async def read_stretch(
    session: WriteSession, namespace: str, of: Session, *, budget_tokens: int, keep_tokens: int
) -> Stretch:
    """What stands in a window before its newest messages of so many tokens, if it is over its budget.

    The newest message stays, whatever its length.
    """
    rows = (
        await session.execute(
            text(
                """
                SELECT w.id, w.role, w.content, w.sender_name, w.created_at, w.token_count, w.dialogue_id,
                    w.turn_id, coalesce(d.outdated, false) AS outdated
                FROM (
                    SELECT *, sum(token_count) OVER newest AS tokens_from_here,
                        row_number() OVER newest AS place, sum(token_count) OVER () AS tokens
                    FROM window_messages
                    WHERE namespace = :namespace AND group_key = :group_key AND user_id = :user_id
                    WINDOW newest AS (ORDER BY created_at DESC, id DESC)
                ) w LEFT JOIN dialogues d ON d.id = w.dialogue_id
                WHERE w.tokens > :budget AND w.tokens_from_here > :keep AND w.place > 1
                ORDER BY w.created_at, w.id LIMIT :most
                """
            ),
            {
                "namespace": namespace,
                "group_key": of.group_key,
                "user_id": of.user_id,
                "budget": budget_tokens,
                "keep": keep_tokens,
                "most": _MOST_MESSAGES_AT_ONCE,
            },
        )
    ).all()
    return Stretch(
        [row.id for row in rows],
        [WindowMessage(*row[1:-1]) for row in rows],
        frozenset(row.id for row in rows if row.outdated),
    )


async def read_newest(session: WriteSession, namespace: str, of: Session) -> tuple[int, str, int] | None:
    """The row, text and tokens of a window's newest message; None where it is empty."""
    row = (
        await session.execute(
            text(
                "SELECT id, content, token_count FROM window_messages"
                " WHERE namespace = :namespace AND group_key = :group_key AND user_id = :user_id"
                " ORDER BY created_at DESC, id DESC LIMIT 1 FOR UPDATE"
            ),
            {"namespace": namespace, "group_key": of.group_key, "user_id": of.user_id},
        )
    ).one_or_none()
    return (row.id, row.content, row.token_count) if row else None


async def shorten_message(session: WriteSession, row_id: int, *, content: str, token_count: int) -> None:
    """Hold a shorter text in the window; what was said stays whole in the record."""
    await session.execute(
        text("UPDATE window_messages SET content = :content, token_count = :count WHERE id = :id"),
        {"id": row_id, "content": content, "count": token_count},
    )


async def drop_expired(session: WriteSession, namespace: str, of: Session, *, now: datetime) -> None:
    """Leave out of a window what has expired: no summary may tell it."""
    await session.execute(
        text(
            """
            WITH locked AS MATERIALIZED (
                SELECT w.id FROM window_messages w JOIN dialogues d ON d.id = w.dialogue_id
                WHERE w.namespace = :namespace AND w.group_key = :group_key AND w.user_id = :user_id
                    AND d.visible_until <= :now
                ORDER BY w.id FOR UPDATE OF w
            )
            DELETE FROM window_messages w USING locked WHERE w.id = locked.id
            """
        ),
        {"namespace": namespace, "group_key": of.group_key, "user_id": of.user_id, "now": now},
    )


async def replace_stretch(
    session: WriteSession,
    namespace: str,
    of: Session,
    stretch: Stretch,
    *,
    summary: Summary,
    dialogue_id: int,
) -> None:
    """Store a summary in place of the window's rows that it stands for.

    Raises:
        StretchGoneError: one of them is gone, says something else, or was corrected: what was erased or
            changed while the model wrote must not come back.
    """
    contents = await drop_messages(session, stretch.ids)
    if [contents.get(key) for key in stretch.ids] != [one.content for one in stretch.messages]:
        raise StretchGoneError
    # A correction marks first and then waits for these rows of the window: if its mark is not seen here,
    # it will see the summary.
    corrected = await session.execute(
        text("SELECT EXISTS (SELECT FROM dialogues WHERE id = ANY(CAST(:ids AS bigint[])) AND outdated)"),
        {"ids": [one.dialogue_id for one in stretch.told if one.dialogue_id is not None]},
    )
    if corrected.scalar_one():
        raise StretchGoneError
    await session.execute(
        text(
            """
            INSERT INTO summaries (namespace, user_id, group_id, dialogue_id, content, since, until, messages,
                created_at)
            VALUES (:namespace, :user_id, :group_id, :dialogue_id, :content, :since, :until, :messages,
                :created_at)
            """
        ),
        {
            "namespace": namespace,
            "user_id": of.user_id,
            "group_id": of.group_id,
            "dialogue_id": dialogue_id,
            "content": summary.content,
            "since": summary.since,
            "until": summary.until,
            "messages": summary.messages,
            "created_at": summary.created_at,
        },
    )


async def drop_messages(session: WriteSession, ids: list[int]) -> dict[int, str]:
    """Leave these messages out of their window; what they said, by their row."""
    gone = await session.execute(
        text(
            """
            WITH locked AS MATERIALIZED (
                SELECT id FROM window_messages WHERE id = ANY(CAST(:ids AS bigint[])) ORDER BY id FOR UPDATE
            )
            DELETE FROM window_messages w USING locked WHERE w.id = locked.id RETURNING w.id, w.content
            """
        ),
        {"ids": ids},
    )
    return {row.id: row.content for row in gone}


async def erase_summaries(session: WriteSession, namespace: str, of: Session | int) -> int:
    """Delete a session's summaries, or all of a user's, and claims on the windows; how many summaries."""
    where, values = erasure_condition(of), {"namespace": namespace, **erasure_values(of)}
    await session.execute(text(f"DELETE FROM compressions WHERE {where}"), values)
    rows = await session.execute(text(f"DELETE FROM summaries WHERE {where}"), values)
    return int(rows.rowcount)
