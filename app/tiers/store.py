"""The hot window's SQL."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import text

from app.database.engine import ReadSession, WriteSession
from app.dialogues.records import Role, Session, WindowMessage
from app.dialogues.store import erasure_condition, erasure_values

# A window is over its budget long before; this only bounds what is read where nobody compresses.
_MOST_MESSAGES = 1000


async def read_window(
    session: ReadSession, namespace: str, of: Session, *, now: datetime
) -> list[WindowMessage]:
    """The newest messages of a session's window, oldest first, without what has expired."""
    rows = await session.execute(
        text(
            """
            SELECT w.role, w.content, w.sender_name, w.created_at, w.token_count, w.dialogue_id, w.turn_id
            FROM (
                SELECT w.* FROM window_messages w LEFT JOIN dialogues d ON d.id = w.dialogue_id
                WHERE w.namespace = :namespace AND w.group_key = :group_key AND w.user_id = :user_id
                    AND (w.dialogue_id IS NULL OR d.visible_until > :now)
                ORDER BY w.created_at DESC, w.id DESC LIMIT :most
            ) w
            ORDER BY w.created_at, w.id
            """
        ),
        {
            "namespace": namespace,
            "group_key": of.group_key,
            "user_id": of.user_id,
            "now": now,
            "most": _MOST_MESSAGES,
        },
    )
    return [WindowMessage(*row) for row in rows]


async def count_window_tokens(session: WriteSession, namespace: str, of: Session) -> int:
    """How many tokens a session's window holds, what is still to be compressed included."""
    found = await session.execute(
        text(
            "SELECT coalesce(sum(token_count), 0) FROM window_messages"
            " WHERE namespace = :namespace AND group_key = :group_key AND user_id = :user_id"
        ),
        {"namespace": namespace, "group_key": of.group_key, "user_id": of.user_id},
    )
    return int(found.scalar_one())


async def erase_window(session: WriteSession, namespace: str, of: Session | int) -> int:
    """Empty a session's window, or all windows of a user; how many messages they held."""
    rows = await session.execute(
        text(
            f"""
            WITH locked AS MATERIALIZED (
                -- Whoever takes several rows of a window takes them in this order.
                SELECT id FROM window_messages WHERE {erasure_condition(of)} ORDER BY id FOR UPDATE
            )
            DELETE FROM window_messages w USING locked WHERE w.id = locked.id
            """
        ),
        {"namespace": namespace, **erasure_values(of)},
    )
    return int(rows.rowcount)


async def append_to_window(
    session: WriteSession,
    namespace: str,
    of: Session,
    *,
    turn_id: str,
    role: Role,
    content: str,
    sender_name: str | None,
    token_count: int,
    created_at: datetime,
) -> None:
    """Enter a message of a turn into the window, unless the turn has one of this role there already."""
    await session.execute(
        text(
            """
            INSERT INTO window_messages
                (namespace, user_id, group_id, turn_id, role, content, sender_name, token_count, created_at)
            SELECT CAST(:namespace AS text), CAST(:user_id AS bigint), CAST(:group_id AS bigint),
                CAST(:turn_id AS text), CAST(:role AS text), CAST(:content AS text),
                CAST(:sender_name AS text), CAST(:token_count AS int), CAST(:created_at AS timestamptz)
            WHERE NOT EXISTS (SELECT FROM window_messages WHERE turn_id = :turn_id AND role = :role)
            """
        ),
        {
            "namespace": namespace,
            "user_id": of.user_id,
            "group_id": of.group_id,
            "turn_id": turn_id,
            "role": role,
            "content": content,
            "sender_name": sender_name,
            "token_count": token_count,
            "created_at": created_at,
        },
    )


async def adopt_window_message(session: WriteSession, *, dialogue_id: int, turn_id: str) -> bool:
    """Make a stored message's place in the window that of a turn; whether it has one there."""
    adopted = await session.execute(
        text(
            "UPDATE window_messages SET turn_id = :turn_id"
            " WHERE dialogue_id = :dialogue_id AND coalesce(turn_id, :turn_id) = :turn_id RETURNING id"
        ),
        {"dialogue_id": dialogue_id, "turn_id": turn_id},
    )
    return adopted.first() is not None


async def link_window_messages(
    session: WriteSession,
    turn_id: str,
    *,
    user_dialogue_id: int | None,
    assistant_dialogue_id: int | None,
) -> None:
    """Tell the window which stored messages a turn's are, so that a change or deletion reaches them."""
    await session.execute(
        text(
            """
            WITH locked AS MATERIALIZED (
                SELECT id FROM window_messages WHERE turn_id = :turn_id ORDER BY id FOR UPDATE
            )
            UPDATE window_messages w SET dialogue_id =
                CASE role WHEN 'user' THEN CAST(:user_id AS bigint) ELSE CAST(:assistant_id AS bigint) END
            FROM locked WHERE w.id = locked.id
            """
        ),
        {"turn_id": turn_id, "user_id": user_dialogue_id, "assistant_id": assistant_dialogue_id},
    )


async def unlink_window_messages(session: WriteSession, dialogue_ids: Sequence[int]) -> None:
    """Let the window keep its copies of stored messages that are about to go."""
    await session.execute(
        text(
            """
            WITH locked AS MATERIALIZED (
                SELECT id FROM window_messages WHERE dialogue_id = ANY(CAST(:ids AS bigint[]))
                ORDER BY id FOR UPDATE
            )
            UPDATE window_messages w SET dialogue_id = NULL FROM locked WHERE w.id = locked.id
            """
        ),
        {"ids": list(dialogue_ids)},
    )
