"""The SQL of what holds a message besides its row: the turn it is half of, the hot window, summaries."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import text

from app.database.engine import WriteSession
from app.dialogues.records import Dialogue, Session

# The turn that a message is half of. A turn that has stored nothing yet knows the user's message by its uuid.
_TURN_OF = """
    SELECT t.turn_id FROM turns t, dialogues d
    WHERE d.id = :id AND d.namespace = :namespace AND t.namespace = d.namespace
        AND t.group_key = d.group_key AND t.user_id = d.user_id
        AND t.{half} = d.{named}
        AND coalesce(CASE d.role WHEN 'user' THEN t.user_dialogue_id ELSE t.assistant_dialogue_id END, d.id)
            = d.id
"""
# The uuid is the client's, or one that the turn gave; each is looked up by a key.
_TURNS_OF = (
    _TURN_OF.format(half="message_uuid", named="message_uuid")
    + " UNION "
    + _TURN_OF.format(half="turn_id", named="message_uuid").replace(
        "t.turn_id = d.message_uuid", "t.turn_id = regexp_replace(d.message_uuid, ':(user|assistant)$', '')"
    )
)


async def find_wanted(session: WriteSession, dialogue_ids: Sequence[int]) -> set[int]:
    """Those of these messages that are pinned, or have corrected another."""
    rows = await session.execute(
        text(
            "SELECT id FROM dialogues WHERE id = ANY(CAST(:ids AS bigint[]))"
            " AND (pinned OR corrects IS NOT NULL)"
        ),
        {"ids": list(dialogue_ids)},
    )
    return set(rows.scalars())


async def lock_turns(session: WriteSession, namespace: str, dialogue_id: int) -> list[str]:
    """Lock the turn that a message is half of, if there is one, before the message itself is touched."""
    rows = await session.execute(
        text(f"SELECT turn_id FROM turns WHERE turn_id IN ({_TURNS_OF}) ORDER BY turn_id FOR UPDATE"),
        {"id": dialogue_id, "namespace": namespace},
    )
    return list(rows.scalars())


async def delete_turns(session: WriteSession, turn_ids: Sequence[str]) -> None:
    """Delete turns whose message was deleted: what they hold of it must not come back."""
    await session.execute(
        text("DELETE FROM turns WHERE turn_id = ANY(CAST(:ids AS text[]))"), {"ids": list(turn_ids)}
    )


async def rewrite_turns(session: WriteSession, turn_ids: Sequence[str], dialogue: Dialogue) -> None:
    """Let turns say what their message says now; their score is no longer that of turns like them."""
    column = "user_content" if dialogue.role == "user" else "reply"
    await session.execute(
        text(
            f"UPDATE turns SET {column} = :content, turn_hash = NULL"
            " WHERE turn_id = ANY(CAST(:ids AS text[]))"
        ),
        {"ids": list(turn_ids), "content": dialogue.content},
    )


async def retract_summaries(
    session: WriteSession, namespace: str, of: Session, times: Sequence[datetime]
) -> int:
    """Delete a session's summaries of what was said at any of these times; how many they were.

    What they told stays in the record, as far as it still holds. To be called after the window's copies were
    changed or locked: a summary that is being stored is there then, or finds that its window has changed.
    """
    rows = await session.execute(
        text(
            """
            WITH gone AS (
                DELETE FROM summaries s
                WHERE s.namespace = :namespace AND s.group_key = :group_key AND s.user_id = :user_id
                    AND EXISTS (SELECT FROM unnest(CAST(:times AS timestamptz[])) AS said (at)
                        WHERE said.at BETWEEN s.since AND s.until)
                RETURNING s.dialogue_id
            ), texts AS (
                DELETE FROM dialogues d USING gone WHERE d.id = gone.dialogue_id RETURNING d.id
            ), jobs AS (
                DELETE FROM embedding_jobs j USING gone WHERE j.dialogue_id = gone.dialogue_id
            ), recalled AS (
                DELETE FROM retrievals r USING gone WHERE r.dialogue_id = gone.dialogue_id
            )
            SELECT count(*) FROM gone
            """
        ),
        {
            "namespace": namespace,
            "group_key": of.group_key,
            "user_id": of.user_id,
            "times": list(times),
        },
    )
    return int(rows.scalar_one())


async def rewrite_summary(session: WriteSession, namespace: str, dialogue: Dialogue) -> None:
    """Let the warm copy of a summary say what its message says now."""
    await session.execute(
        text(
            # Under a new id: what other processes remember of it is then known to be old.
            "UPDATE summaries SET content = :content, id = DEFAULT WHERE namespace = :namespace"
            " AND group_key = :group_key AND user_id = :user_id AND dialogue_id = :id"
        ),
        {
            "id": dialogue.id,
            "content": dialogue.content,
            "namespace": namespace,
            "group_key": dialogue.session.group_key,
            "user_id": dialogue.user_id,
        },
    )
