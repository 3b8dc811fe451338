"""The hot window's SQL."""

from datetime import datetime

from sqlalchemy import text

from app.database.engine import ReadSession, WriteSession
from app.dialogues.records import Session, WindowMessage
from app.dialogues.store import erasure_condition, erasure_values


async def read_window(
    session: ReadSession, namespace: str, of: Session, *, budget_tokens: int, now: datetime
) -> list[WindowMessage]:
    """The newest unexpired messages of a session's window that fit into a budget together, oldest first.

    The newest is among them whatever its length.
    """
    rows = await session.execute(
        text(
            """
            WITH visible AS (
                SELECT w.id, w.created_at, w.token_count
                FROM window_messages w LEFT JOIN dialogues d ON d.id = w.dialogue_id
                WHERE w.namespace = :namespace AND w.group_key = :group_key AND w.user_id = :user_id
                    AND (d.id IS NULL OR d.visible_until > :now)
            ), newest AS (
                SELECT id, sum(token_count) OVER back AS tokens_from_here, row_number() OVER back AS place
                FROM visible WINDOW back AS (ORDER BY created_at DESC, id DESC)
            )
            SELECT w.role, w.content, w.sender_name, w.created_at, w.token_count, w.dialogue_id
            FROM newest JOIN window_messages w USING (id)
            WHERE newest.tokens_from_here <= :budget OR newest.place = 1
            ORDER BY w.created_at, w.id
            """
        ),
        {
            "namespace": namespace,
            "group_key": of.group_key,
            "user_id": of.user_id,
            "budget": budget_tokens,
            "now": now,
        },
    )
    return [WindowMessage(*row) for row in rows]


async def trim_windows(session: WriteSession, *, budget_tokens: int) -> int:
    """Drop what stands before the budget in every window that is over it; how many messages that were."""
    rows = await session.execute(
        text(
            """
            WITH over AS (
                SELECT namespace, group_key, user_id FROM window_messages
                GROUP BY namespace, group_key, user_id HAVING sum(token_count) > :budget
            ), excess AS (
                SELECT old.id FROM over CROSS JOIN LATERAL (
                    SELECT id, sum(token_count) OVER back AS tokens_from_here, row_number() OVER back AS place
                    FROM window_messages w
                    WHERE w.namespace = over.namespace AND w.group_key = over.group_key
                        AND w.user_id = over.user_id
                    WINDOW back AS (ORDER BY created_at DESC, id DESC)
                ) old WHERE old.tokens_from_here > :budget AND old.place > 1
            ), locked AS (
                SELECT id FROM window_messages WHERE id IN (SELECT id FROM excess) FOR UPDATE SKIP LOCKED
            )
            DELETE FROM window_messages w USING locked WHERE w.id = locked.id
            """
        ),
        {"budget": budget_tokens},
    )
    return int(rows.rowcount)


async def erase_window(session: WriteSession, namespace: str, of: Session | int) -> int:
    """Empty a session's window, or all windows of a user; how many messages they held."""
    rows = await session.execute(
        text(f"DELETE FROM window_messages WHERE {erasure_condition(of)}"),
        {"namespace": namespace, **erasure_values(of)},
    )
    return int(rows.rowcount)
