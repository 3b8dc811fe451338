"""A turn of conversation: one message of the user and the reply to it. Pure."""

import hashlib
import unicodedata
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from app.dialogues.records import Role, Session
from app.dialogues.text import normalize_text
from app.evaluation.retention import Retention

TurnStatus = Literal["answering", "failed", "pending", "scored", "unscored"]
Outcome = Literal["scored", "failed", "filtered", "cached", "disabled"]


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A user's message that is to be answered; `message_uuid` tells it from others."""

    turn_id: str
    session: Session
    message_uuid: str
    message_id: int | None
    written_hash: int
    sender_name: str | None
    assistant_name: str | None
    user_content: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Recollection:
    """That a stored message was recalled for a turn, and how well it fitted."""

    dialogue_id: int
    is_anchor: bool
    similarity: float | None
    decay: float | None
    relevance: float | None
    match: float | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn as it is stored.

    Attributes:
        status: `answering` until the model has answered, or `failed` to; then `pending` until it is judged.
        reply: None until the model has answered.
        outcome: how the score came about; None before.
        user_dialogue_id: the stored message, where it is in long-term memory.
        assistant_dialogue_id: the stored reply, likewise.
        memories: the messages that were recalled for it.
        summary_ids: the summaries that it was told.
        no_match: nothing that was recalled was likely to be an answer.
        attempts: how often it was taken up, first to be answered, then, from 0 again, to be judged.
        kept_early: whether its messages went into long-term memory before it was judged.
    """

    turn_id: str
    namespace: str
    session: Session
    message_uuid: str
    message_id: int | None
    written_hash: int
    sender_name: str | None
    assistant_name: str | None
    user_content: str
    reply: str | None
    status: TurnStatus
    outcome: Outcome | None
    score: int | None
    retention: Retention | None
    expires_at: datetime | None
    user_dialogue_id: int | None
    assistant_dialogue_id: int | None
    memories: tuple[Recollection, ...]
    summary_ids: tuple[int, ...]
    no_match: bool
    degraded: bool
    prompt_tokens: int | None
    completion_tokens: int | None
    memory_tokens: int | None
    attempts: int
    kept_early: bool
    created_at: datetime
    replied_at: datetime | None

    @property
    def dialogue_ids(self) -> list[int]:
        """The stored messages, user's first; empty where the turn is not in long-term memory."""
        ids = (self.user_dialogue_id, self.assistant_dialogue_id)
        return [one for one in ids if one is not None]

    def own_uuid(self, role: Role) -> str:
        """The uuid of a message of this turn that came without one, or cannot have the one it came with."""
        return f"{self.turn_id}:{role}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said, and what it was given."""

    reply: str
    replied_at: datetime
    memories: tuple[Recollection, ...]
    summary_ids: tuple[int, ...]
    no_match: bool
    degraded: bool
    prompt_tokens: int
    completion_tokens: int
    memory_tokens: int


def turn_hash(turn: Turn, *, judge: str) -> int:
    """64 signed bits, the same for turns that differ in case, width, blanks and punctuation only.

    Args:
        turn: with its reply.
        judge: who judges, by which instructions: another's score is none of this one's.
    """
    parts = (_plain(turn.user_content), _plain(turn.reply or ""), judge)
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _plain(text: str) -> str:
    """Letters, digits and symbols (an emoji is one); a text of punctuation alone as it is."""
    folded = normalize_text("NFKC", text).casefold()
    return "".join(one for one in folded if unicodedata.category(one)[0] in "LNMS") or text
