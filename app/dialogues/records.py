"""What a message is, before and after it is stored. Pure."""

from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Final, Literal

Role = Literal["user", "assistant"]
ChatType = Literal["private", "group"]
Kind = Literal["chat", "fact", "preference", "decision", "summary"]
EmbeddingStatus = Literal["pending", "ready", "failed"]


class Unset(Enum):
    """The type of a field that a change does not mention."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation inside a namespace: a user in private (`group_id` None) or in one group."""

    user_id: int
    group_id: int | None = None

    @property
    def key(self) -> str:
        """`user_id` in private, `group_id:user_id` in a group."""
        return str(self.user_id) if self.group_id is None else f"{self.group_id}:{self.user_id}"

    @property
    def chat_type(self) -> ChatType:
        return "private" if self.group_id is None else "group"

    @property
    def group_key(self) -> int:
        """`group_id`, or 0 in private: no group is numbered 0, and an index takes 0 where null is no key."""
        return self.group_id or 0


@dataclass(frozen=True, slots=True)
class NewDialogue:
    """A message to store, its fields already cleaned and in range.

    `created_at` None: now, and live. `message_uuid` None: derived from `message_id` where there is one,
    else made. `kind` None: read from the content.
    """

    user_id: int
    role: Role
    content: str
    group_id: int | None = None
    sender_name: str | None = None
    message_id: int | None = None
    message_uuid: str | None = None
    created_at: datetime | None = None
    score: int | None = None
    expires_at: datetime | None = None
    pinned: bool = False
    kind: Kind | None = None
    outdated: bool = False

    @property
    def session(self) -> Session:
        return Session(self.user_id, self.group_id)


@dataclass(frozen=True, slots=True)
class PreparedDialogue:
    """A message with everything that is computed before it is written.

    Attributes:
        is_named: the uuid came with it; False: it may be stored under another, which its `message_id` tells.
    """

    message_uuid: str
    is_named: bool
    session: Session
    role: Role
    content: str
    sender_name: str | None
    message_id: int | None
    score: int | None
    expires_at: datetime | None
    pinned: bool
    kind: Kind
    outdated: bool
    created_at: datetime
    written_hash: int
    token_count: int
    terms: bytes


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A stored message. All times are aware, in UTC.

    Attributes:
        corrects: the earlier message that this one has made outdated.
        corrected_by: the later message that has made this one outdated; either may be gone by now.
    """

    id: int
    message_uuid: str
    user_id: int
    group_id: int | None
    role: Role
    content: str
    sender_name: str | None
    message_id: int | None
    token_count: int
    score: int | None
    expires_at: datetime | None
    pinned: bool
    kind: Kind
    outdated: bool
    embedding_status: EmbeddingStatus
    created_at: datetime
    corrects: int | None = None
    corrected_by: int | None = None

    @property
    def session(self) -> Session:
        return Session(self.user_id, self.group_id)


@dataclass(frozen=True, slots=True)
class DialogueChange:
    """What a PATCH changes; what is UNSET stays."""

    content: str | Unset = UNSET
    pinned: bool | Unset = UNSET
    outdated: bool | Unset = UNSET
    expires_at: datetime | Unset | None = UNSET
    score: int | Unset | None = UNSET


@dataclass(frozen=True, slots=True)
class Stored:
    """The outcome of one write: the stored message, and whether this call stored it."""

    dialogue: Dialogue
    created: bool


@dataclass(frozen=True, slots=True)
class Position:
    """A place in an order by (`created_at`, `id`)."""

    created_at: datetime
    id: int


@dataclass(frozen=True, slots=True)
class Page:
    """Some messages in order, and the place after which the next page starts (None: no more)."""

    dialogues: list[Dialogue]
    next: Position | None


@dataclass(frozen=True, slots=True)
class WindowMessage:
    """A message of the conversation that is going on (hot).

    Attributes:
        dialogue_id: of the stored message that this is a copy of; None where none is stored (yet).
        turn_id: of the turn that it is half of; None where it was not said in a chat of ours.
    """

    role: Role
    content: str
    sender_name: str | None
    created_at: datetime
    token_count: int
    dialogue_id: int | None
    turn_id: str | None = None


@dataclass(frozen=True, slots=True)
class SessionOverview:
    """A session and how much of it is stored."""

    session: Session
    dialogues: int
    first_at: datetime | None
    last_at: datetime | None
    window_tokens: int
    summaries: int


@dataclass(frozen=True, slots=True)
class Erased:
    """How much an erasure took."""

    dialogues: int
    window_messages: int
    summaries: int
    turns: int
