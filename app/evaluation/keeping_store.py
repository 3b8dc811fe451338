"""Keeps the messages of turns in long-term memory, with their score and expiry."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from app.database.engine import WriteSession
from app.dialogues import store as dialogue_store
from app.dialogues.copies_store import find_wanted
from app.dialogues.preparation import prepare
from app.dialogues.records import Dialogue, DialogueChange, NewDialogue, PreparedDialogue, Role
from app.dialogues.writing_store import insert_dialogues
from app.evaluation import store
from app.evaluation.retention import Retention
from app.evaluation.store import Verdict
from app.evaluation.turns import Turn
from app.tiers import store as tier_store


async def record_verdict(session: WriteSession, turn: Turn, verdict: Verdict, *, now: datetime) -> bool:
    """Store a verdict, and the two messages where it keeps them; False where the turn is not there to judge.

    Args:
        session: a transaction of this alone: both messages are stored with the verdict, or nothing is.
        turn: that waits for its score, as it was when it was judged.
        verdict: without messages.
        now: when it is given.
    """
    current = await store.lock_waiting_turn(session, turn.turn_id)
    if current is None:
        return False
    if (current.user_content, current.reply) != (turn.user_content, turn.reply):
        # The score is that of another text: no turn like this one is to have it.
        verdict = replace(verdict, turn_hash=None)
    if verdict.retention is Retention.NONE:
        user_id, reply_id = await _let_go(session, current)
    else:
        (user, _), (reply, _) = [
            await _keep(session, current, message, now=now)
            for message in _prepare(current, ("user", "assistant"), verdict=verdict, now=now)
        ]
        user_id, reply_id = user.id, reply.id
        await tier_store.link_window_messages(
            session, turn.turn_id, user_dialogue_id=user_id, assistant_dialogue_id=reply_id
        )
    verdict = replace(verdict, user_dialogue_id=user_id, assistant_dialogue_id=reply_id)
    await store.judge_turn(session, turn.turn_id, verdict, now=now)
    return True


async def keep_early(session: WriteSession, turn_id: str, *, now: datetime) -> bool:
    """Store both messages of a turn that waits for its score, without one, to be found meanwhile.

    Its verdict gives them score and expiry, or takes them back.

    Returns:
        Whether the turn still waited.
    """
    turn = await store.lock_waiting_turn(session, turn_id)
    if turn is None or turn.kept_early:
        return False
    (user, user_is_new), (reply, reply_is_new) = [
        await _keep(session, turn, message, now=now)
        for message in _prepare(turn, ("user", "assistant"), verdict=None, now=now)
    ]
    await tier_store.link_window_messages(
        session, turn.turn_id, user_dialogue_id=user.id, assistant_dialogue_id=reply.id
    )
    # What the bot has stored itself is not the verdict's to take back.
    await store.note_kept_early(
        session,
        turn.turn_id,
        user_dialogue_id=user.id if user_is_new else None,
        assistant_dialogue_id=reply.id if reply_is_new else None,
    )
    return True


async def keep_unanswered(session: WriteSession, turn: Turn, *, now: datetime) -> None:
    """Keep the user's message of a turn that got no answer, in full, since there is no turn to judge."""
    # Where the turn was erased, or taken up by another, meanwhile, nothing is to be kept.
    if not await store.fail_turn(session, turn):
        return
    (message,) = _prepare(turn, ("user",), verdict=None, now=now)
    kept, is_new = await _keep(session, turn, message, now=now)
    if is_new:
        await store.note_user_dialogue(session, turn.turn_id, kept.id)
    await tier_store.link_window_messages(
        session, turn.turn_id, user_dialogue_id=kept.id, assistant_dialogue_id=None
    )


async def _let_go(session: WriteSession, turn: Turn) -> tuple[int | None, int | None]:
    """Take back what the turn was kept by before the verdict, since it is worth nothing.

    What is pinned by now, or has corrected another message, stays; so does what the bot has stored itself.

    Returns:
        The user's message and the reply, where they stay.
    """
    wanted = await find_wanted(session, turn.dialogue_ids)
    goes = sorted(set(turn.dialogue_ids) - wanted)
    # The conversation that is going on keeps its copies.
    await tier_store.unlink_window_messages(session, goes)
    for dialogue_id in goes:
        await dialogue_store.delete_dialogue(session, turn.namespace, dialogue_id)
    user_id, reply_id = (
        one if one in wanted else None for one in (turn.user_dialogue_id, turn.assistant_dialogue_id)
    )
    return user_id, reply_id


async def _keep(
    session: WriteSession, turn: Turn, message: PreparedDialogue, *, now: datetime
) -> tuple[Dialogue, bool]:
    """Store a message of a turn; one that it has stored before gets its score and expiry.

    Returns:
        The message, and whether it is new.
    """
    stored = await _insert(session, turn, message, now=now)
    if stored is not None:
        return stored, True
    uuid = message.message_uuid
    there = (await dialogue_store.find_by_uuid(session, turn.namespace, [uuid]))[uuid]
    is_same_text = there.written_hash == message.written_hash or there.dialogue.content == message.content
    if there.dialogue.session != message.session or not is_same_text:
        # The uuid became another message's while the model spoke: this one must not be lost for it.
        own = replace(message, message_uuid=turn.own_uuid(message.role))
        stored = await _insert(session, turn, own, now=now)
        if stored is not None:
            return stored, True
        uuid = own.message_uuid
        there = (await dialogue_store.find_by_uuid(session, turn.namespace, [uuid]))[uuid]
    is_ours = there.dialogue.id in turn.dialogue_ids
    # What the bot has stored itself is kept as the bot wants it: only a score that it left open is filled in.
    if message.score is None or not (is_ours or there.dialogue.score is None):
        return there.dialogue, False
    change = DialogueChange(score=message.score)
    # Who has pinned it meanwhile wants no end of it.
    if is_ours and not there.dialogue.pinned:
        change = replace(change, expires_at=message.expires_at)
    changed = await dialogue_store.update_dialogue(
        session, turn.namespace, there.dialogue.id, change, now=now
    )
    return changed or there.dialogue, False


async def _insert(
    session: WriteSession, turn: Turn, message: PreparedDialogue, *, now: datetime
) -> Dialogue | None:
    stored = await insert_dialogues(session, turn.namespace, [message], now=now, live_since=None)
    return stored[0] if stored else None


def _prepare(
    turn: Turn, roles: Sequence[Role], *, verdict: Verdict | None, now: datetime
) -> list[PreparedDialogue]:
    score = verdict.score if verdict else None
    ends = verdict.expires_at if verdict else None
    messages = []
    for role in roles:
        is_user = role == "user"
        messages.append(
            NewDialogue(
                user_id=turn.session.user_id,
                group_id=turn.session.group_id,
                role=role,
                content=turn.user_content if is_user else turn.reply or "",
                sender_name=turn.sender_name if is_user else turn.assistant_name,
                message_id=turn.message_id if is_user else None,
                message_uuid=turn.message_uuid if is_user else turn.own_uuid("assistant"),
                created_at=turn.created_at if is_user else turn.replied_at,
                score=score,
                expires_at=ends,
            )
        )
    return prepare(messages, now=now)
