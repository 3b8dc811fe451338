"""The SQL of turns: begun, answered, waiting for a score, judged."""

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Row, text

from app.database.engine import ReadSession, WriteSession
from app.dialogues.records import Session
from app.dialogues.store import erasure_condition, erasure_values
from app.evaluation.retention import Retention
from app.evaluation.turns import Answer, NewTurn, Outcome, Recollection, Turn, TurnStatus

_COLUMNS = (
    "turn_id, namespace, user_id, group_id, message_uuid, message_id, written_hash, sender_name,"
    " assistant_name, user_content, reply, status, outcome, score, retention, expires_at, user_dialogue_id,"
    " assistant_dialogue_id, memories, summary_ids, no_match, degraded, prompt_tokens, completion_tokens,"
    " memory_tokens, attempts, kept_early, created_at, replied_at"
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a turn. `score` None: it was kept unscored."""

    status: TurnStatus
    outcome: Outcome
    score: int | None
    retention: Retention | None
    expires_at: datetime | None
    turn_hash: int | None
    user_dialogue_id: int | None = None
    assistant_dialogue_id: int | None = None


async def begin_turn(
    session: WriteSession, namespace: str, new: NewTurn, *, lease_s: float, take_failed: bool
) -> tuple[Turn, bool] | None:
    """Begin a turn, or take up one that was given up, or find that it is there.

    Args:
        session: to write in.
        namespace: the caller's.
        new: the message to be answered.
        lease_s: how long nobody else may take the turn up.
        take_failed: take up a turn, too, whose model gave no answer.

    Returns:
        The turn, and whether it is the caller's to answer; None where it was erased between the two looks.
    """
    values = {
        "turn_id": new.turn_id,
        "namespace": namespace,
        "user_id": new.session.user_id,
        "group_id": new.session.group_id,
        "message_uuid": new.message_uuid,
        "message_id": new.message_id,
        "written_hash": new.written_hash,
        "sender_name": new.sender_name,
        "assistant_name": new.assistant_name,
        "user_content": new.user_content,
        "created_at": new.created_at,
        "lease": lease_s,
        "take_failed": take_failed,
    }
    begun = (
        await session.execute(
            text(
                f"""
                INSERT INTO turns (turn_id, namespace, user_id, group_id, message_uuid, message_id,
                    written_hash, sender_name, assistant_name, user_content, status, attempts, available_at,
                    created_at)
                VALUES (:turn_id, :namespace, :user_id, :group_id, :message_uuid, :message_id, :written_hash,
                    :sender_name, :assistant_name, :user_content, 'answering', 1,
                    now() + make_interval(secs => :lease), :created_at)
                ON CONFLICT (namespace, message_uuid) DO UPDATE
                    SET status = 'answering', attempts = turns.attempts + 1,
                        available_at = excluded.available_at
                    WHERE turns.written_hash = excluded.written_hash
                        AND turns.group_key = excluded.group_key AND turns.user_id = excluded.user_id
                        AND (turns.status = 'failed' AND :take_failed
                             OR turns.status = 'answering' AND turns.available_at <= now())
                RETURNING {_COLUMNS}
                """
            ),
            values,
        )
    ).one_or_none()
    if begun is not None:
        return _read_turn(begun), True
    there = (
        await session.execute(
            text(
                f"SELECT {_COLUMNS} FROM turns WHERE namespace = :namespace AND message_uuid = :message_uuid"
            ),
            values,
        )
    ).one_or_none()
    return (_read_turn(there), False) if there else None


async def answer_turn(session: WriteSession, turn: Turn, answer: Answer) -> bool:
    """Store the reply; the turn then waits for its score.

    Returns:
        Whether it was still there, and the caller's to answer.
    """
    updated = await session.execute(
        text(
            """
            UPDATE turns SET reply = :reply, replied_at = :replied_at,
                memories = CAST(:memories AS jsonb), summary_ids = CAST(:summary_ids AS bigint[]),
                no_match = :no_match, degraded = :degraded,
                prompt_tokens = :prompt_tokens, completion_tokens = :completion_tokens,
                memory_tokens = :memory_tokens, status = 'pending', available_at = now(), attempts = 0
            WHERE turn_id = :turn_id AND status = 'answering' AND attempts = :attempt
            RETURNING turn_id
            """
        ),
        {
            "turn_id": turn.turn_id,
            "attempt": turn.attempts,
            "reply": answer.reply,
            "replied_at": answer.replied_at,
            "memories": json.dumps([astuple(one) for one in answer.memories]),
            "summary_ids": list(answer.summary_ids),
            "no_match": answer.no_match,
            "degraded": answer.degraded,
            "prompt_tokens": answer.prompt_tokens,
            "completion_tokens": answer.completion_tokens,
            "memory_tokens": answer.memory_tokens,
        },
    )
    return updated.one_or_none() is not None


async def fail_turn(session: WriteSession, turn: Turn) -> bool:
    """Note that the model gave no answer, and lock the turn.

    Returns:
        Whether it was still there, and the caller's to answer.
    """
    updated = await session.execute(
        text(
            "UPDATE turns SET status = 'failed'"
            " WHERE turn_id = :turn_id AND status = 'answering' AND attempts = :attempt RETURNING turn_id"
        ),
        {"turn_id": turn.turn_id, "attempt": turn.attempts},
    )
    return updated.one_or_none() is not None


async def note_user_dialogue(session: WriteSession, turn_id: str, dialogue_id: int) -> None:
    """Note which stored message the user's half of a turn is."""
    await session.execute(
        text("UPDATE turns SET user_dialogue_id = :dialogue_id WHERE turn_id = :turn_id"),
        {"turn_id": turn_id, "dialogue_id": dialogue_id},
    )


async def lock_abandoned(session: WriteSession, *, after_s: float) -> list[Turn]:
    """Lock turns that nobody has been answering for so long."""
    rows = await session.execute(
        text(
            f"SELECT {_COLUMNS} FROM turns"
            " WHERE status = 'answering' AND available_at < now() - make_interval(secs => :after)"
            " ORDER BY available_at LIMIT 100 FOR UPDATE SKIP LOCKED"
        ),
        {"after": after_s},
    )
    return [_read_turn(row) for row in rows]


async def extend_answering(session: WriteSession, turn: Turn, *, seconds: float) -> None:
    """Move the end of the claim on a turn that is being answered to `seconds` from now."""
    await session.execute(
        text(
            "UPDATE turns SET available_at = now() + make_interval(secs => :seconds)"
            " WHERE turn_id = :turn_id AND status = 'answering' AND attempts = :attempt"
        ),
        {"turn_id": turn.turn_id, "attempt": turn.attempts, "seconds": seconds},
    )


async def find_turn(session: ReadSession | WriteSession, namespace: str, turn_id: str) -> Turn | None:
    """A turn of the namespace."""
    row = (
        await session.execute(
            text(f"SELECT {_COLUMNS} FROM turns WHERE namespace = :namespace AND turn_id = :turn_id"),
            {"namespace": namespace, "turn_id": turn_id},
        )
    ).one_or_none()
    return _read_turn(row) if row else None


async def claim_turns(
    session: WriteSession, *, limit: int, lease_s: float, given_up_before: datetime | None = None
) -> list[Turn]:
    """Take the oldest free turns that wait for a score, for a while.

    Args:
        session: to write in.
        limit: how many.
        lease_s: for how long.
        given_up_before: of those that were taken before, only such as were answered by then; None: all.
    """
    rows = await session.execute(
        text(
            f"""
            WITH free AS (
                SELECT turn_id FROM turns WHERE status = 'pending' AND available_at <= now()
                    AND (CAST(:given_up_before AS timestamptz) IS NULL OR attempts = 0
                         OR replied_at < :given_up_before)
                ORDER BY available_at, turn_id LIMIT :limit FOR UPDATE SKIP LOCKED
            )
            UPDATE turns SET available_at = now() + make_interval(secs => :lease), attempts = attempts + 1
            WHERE turn_id IN (SELECT turn_id FROM free)
            RETURNING {_COLUMNS}
            """
        ),
        {"limit": limit, "lease": lease_s, "given_up_before": given_up_before},
    )
    return sorted((_read_turn(row) for row in rows), key=lambda turn: (turn.created_at, turn.turn_id))


async def postpone_turns(
    session: WriteSession, turn_ids: Sequence[str], *, seconds: float, attempts: int | None = None
) -> None:
    """Move the time at which some waiting turns are free to `seconds` from now.

    Args:
        session: to write in.
        turn_ids: which.
        seconds: from now.
        attempts: what counts as their attempts from now on; None: what they had.
    """
    await session.execute(
        text(
            "UPDATE turns SET available_at = now() + make_interval(secs => :seconds),"
            " attempts = coalesce(CAST(:attempts AS int), attempts)"
            " WHERE turn_id IN (SELECT turn_id FROM turns WHERE turn_id = ANY(CAST(:ids AS text[]))"
            " AND status = 'pending' FOR UPDATE SKIP LOCKED)"
        ),
        {"ids": list(turn_ids), "seconds": seconds, "attempts": attempts},
    )


async def lock_waiting_turn(session: WriteSession, turn_id: str) -> Turn | None:
    """Lock a turn that still waits for its score, as it is now; None where it was judged, or erased."""
    row = (
        await session.execute(
            text(f"SELECT {_COLUMNS} FROM turns WHERE turn_id = :turn_id AND status = 'pending' FOR UPDATE"),
            {"turn_id": turn_id},
        )
    ).one_or_none()
    return _read_turn(row) if row else None


async def find_waiting_long(session: ReadSession, *, before: datetime, limit: int) -> list[str]:
    """The turns that were answered before then, have no score and are not kept yet, the oldest first."""
    rows = await session.execute(
        text(
            "SELECT turn_id FROM turns WHERE status = 'pending' AND NOT kept_early AND replied_at < :before"
            " ORDER BY replied_at LIMIT :limit"
        ),
        {"before": before, "limit": limit},
    )
    return list(rows.scalars())


async def note_kept_early(
    session: WriteSession, turn_id: str, *, user_dialogue_id: int | None, assistant_dialogue_id: int | None
) -> None:
    """Note that a turn is in long-term memory before its score, and which messages it has put there."""
    await session.execute(
        text(
            "UPDATE turns SET kept_early = true,"
            " user_dialogue_id = coalesce(:user_id, user_dialogue_id),"
            " assistant_dialogue_id = coalesce(:assistant_id, assistant_dialogue_id) WHERE turn_id = :turn_id"
        ),
        {"turn_id": turn_id, "user_id": user_dialogue_id, "assistant_id": assistant_dialogue_id},
    )


async def judge_turn(session: WriteSession, turn_id: str, verdict: Verdict, *, now: datetime) -> None:
    """Store what became of a turn that the caller has locked."""
    await session.execute(
        text(
            """
            UPDATE turns SET status = :status, outcome = :outcome, score = :score, retention = :retention,
                expires_at = :expires_at, user_dialogue_id = :user_dialogue_id,
                assistant_dialogue_id = :assistant_dialogue_id, turn_hash = :turn_hash, evaluated_at = :now
            WHERE turn_id = :turn_id
            """
        ),
        {
            "turn_id": turn_id,
            "status": verdict.status,
            "outcome": verdict.outcome,
            "score": verdict.score,
            "retention": verdict.retention,
            "expires_at": verdict.expires_at,
            "user_dialogue_id": verdict.user_dialogue_id,
            "assistant_dialogue_id": verdict.assistant_dialogue_id,
            "turn_hash": verdict.turn_hash,
            "now": now,
        },
    )


async def find_score(session: ReadSession, namespace: str, turn_hash: int, *, since: datetime) -> int | None:
    """The newest score that the evaluator gave the same turn."""
    found = await session.execute(
        text(
            "SELECT score FROM turns WHERE namespace = :namespace AND turn_hash = :turn_hash"
            " AND outcome = 'scored' AND evaluated_at >= :since ORDER BY evaluated_at DESC LIMIT 1"
        ),
        {"namespace": namespace, "turn_hash": turn_hash, "since": since},
    )
    return found.scalar_one_or_none()


async def erase_turns(session: WriteSession, namespace: str, of: Session | int) -> int:
    """Delete a session's turns, or all of a user's; how many they were."""
    rows = await session.execute(
        text(
            f"""
            WITH locked AS MATERIALIZED (
                SELECT turn_id FROM turns WHERE {erasure_condition(of)} ORDER BY turn_id FOR UPDATE
            )
            DELETE FROM turns t USING locked WHERE t.turn_id = locked.turn_id
            """
        ),
        {"namespace": namespace, **erasure_values(of)},
    )
    return int(rows.rowcount)


async def delete_old_turns(session: WriteSession, *, before: datetime, limit: int) -> int:
    """Delete turns that were judged, or failed, long ago; how many they were."""
    rows = await session.execute(
        text(
            "DELETE FROM turns WHERE turn_id IN (SELECT turn_id FROM turns WHERE created_at < :before"
            " AND status NOT IN ('pending', 'answering') LIMIT :limit FOR UPDATE SKIP LOCKED)"
        ),
        {"before": before, "limit": limit},
    )
    return int(rows.rowcount)


def _read_turn(row: Row[Any]) -> Turn:
    values = row._mapping  # noqa: SLF001 - SQLAlchemy's public name for it
    fields = {key: values[key] for key in Turn.__dataclass_fields__ if key in values}
    fields["session"] = Session(row.user_id, row.group_id)
    fields["memories"] = tuple(Recollection(*one) for one in row.memories)
    fields["summary_ids"] = tuple(row.summary_ids)
    fields["retention"] = Retention(row.retention) if row.retention else None
    return Turn(**fields)
