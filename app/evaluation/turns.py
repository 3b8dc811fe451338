"""A turn of conversation: one message of the user and the reply to it. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from app.dialogues.records import Session
from app.evaluation.retention import Retention

TurnStatus = Literal["answering", "failed", "pending", "scored", "unscored"]
Outcome = Literal["scored", "failed", "filtered", "cached", "disabled"]


@dataclass(frozen=True, slots=True)
class NewTurn:
    """A user's message that is to be answered.

    `message_uuid` None: the turn cannot be asked for again, and gets a uuid of its own.
    """

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
class Turn:
    """A turn as it is stored.

    Attributes:
        reply: None until the model has answered.
        outcome: how the score came about; None before.
        memory_ids: the messages that were recalled for it.
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
    memory_ids: tuple[int, ...]
    degraded: bool
    prompt_tokens: int | None
    completion_tokens: int | None
    memory_tokens: int | None
    attempts: int
    created_at: datetime
    replied_at: datetime | None

    @property
    def dialogue_ids(self) -> list[int]:
        """The stored messages, user's first; empty where the turn is not in long-term memory."""
        ids = (self.user_dialogue_id, self.assistant_dialogue_id)
        return [one for one in ids if one is not None]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said, and what it was given."""

    reply: str
    replied_at: datetime
    memory_ids: tuple[int, ...]
    degraded: bool
    prompt_tokens: int
    completion_tokens: int
    memory_tokens: int
