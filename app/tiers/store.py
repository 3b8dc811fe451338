"""The hot window's SQL."""

from datetime import datetime

from sqlalchemy import text

from app.database.engine import ReadSession, WriteSession
from app.dialogues.records import Role, Session, WindowMessage
from app.dialogues.store import erasure_condition, erasure_values


async def read_window(
    session: ReadSession, namespace: str, of: Session, *, budget_tokens: int
) -> list[WindowMessage]:
    """The newest messages of a session's window that fit into a budget together, oldest first."""
    rows = await session.execute(
        text(
            """
            WITH newest AS (
                SELECT id, created_at,
                    sum(token_count) OVER (ORDER BY created_at DESC, id DESC) AS tokens_from_here
                FROM window_messages
                WHERE namespace = :namespace AND group_key = :group_key AND user_id = :user_id
            )
            SELECT w.role, w.content, w.sender_name, w.created_at, w.token_count, w.dialogue_id
            FROM newest JOIN window_messages w USING (id)
            WHERE newest.tokens_from_here <= :budget
            ORDER BY w.created_at, w.id
            """
        ),
        {
            "namespace": namespace,
            "group_key": of.group_key,
            "user_id": of.user_id,
            "budget": budget_tokens,
        },
    )
    return [WindowMessage(*row) for row in rows]


async def erase_window(session: WriteSession, namespace: str, of: Session | int) -> int:
    """Empty a session's window, or all windows of a user; how many messages they held."""
    rows = await session.execute(
        text(f"DELETE FROM window_messages WHERE {erasure_condition(of)}"),
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


async def link_window_messages(
    session: WriteSession, turn_id: str, *, user_dialogue_id: int, assistant_dialogue_id: int | None
) -> None:
    """Tell the window which stored messages a turn's messages are, so that memory does not repeat them."""
    await session.execute(
        text(
            "UPDATE window_messages SET dialogue_id = CASE role WHEN 'user' THEN CAST(:user_id AS bigint)"
            " ELSE CAST(:assistant_id AS bigint) END WHERE turn_id = :turn_id"
        ),
        {"turn_id": turn_id, "user_id": user_dialogue_id, "assistant_id": assistant_dialogue_id},
    )
