"""What a chat asks for, and what is told of it while it goes on. Pure."""

from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from app.dialogues.records import Session
from app.dialogues.scrubbing import PersonalDataError, ScrubMode, scrub_text
from app.errors import FieldFault, InvalidInputError, TemporalMemoryError
from app.recall.records import Language, Memory
from app.tiers.records import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A user's message to be answered, every default already filled in."""

    session: Session
    user_input: str
    now: datetime
    zone: ZoneInfo
    language: Language
    top_n: int
    window_size: int
    max_memory_tokens: int
    sender_name: str | None = None
    assistant_name: str | None = None
    message_id: int | None = None
    message_uuid: str | None = None
    persona: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """In tokens; `memory_tokens` is the part of the prompt that recalled text takes."""

    prompt_tokens: int
    completion_tokens: int
    memory_tokens: int


@dataclass(frozen=True, slots=True)
class Recalled:
    """First event: what the model is given of the past; `no_match`: none of it is likely to be an answer."""

    memories: list[Memory]
    summaries: list[Summary]
    no_match: bool


@dataclass(frozen=True, slots=True)
class Delta:
    """Some more of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """Last event of a turn that was answered."""

    turn_id: str
    session: Session
    reply: str
    memories: list[Memory]
    summaries: list[Summary]
    no_match: bool
    degraded: bool
    usage: Usage


@dataclass(frozen=True, slots=True)
class Failed:
    """Last event of a turn that was not answered; the user's message is kept."""

    error: TemporalMemoryError


ChatEvent = Recalled | Delta | Done | Failed


def scrub_request(request: ChatRequest, mode: ScrubMode) -> ChatRequest:
    """The request as it may be kept.

    Raises:
        InvalidInputError: it holds what is not kept here, and the mode is `refuse`.
    """
    if mode == "off":
        return request
    try:
        return replace(
            request,
            user_input=scrub_text(request.user_input, mode),
            sender_name=request.sender_name and scrub_text(request.sender_name, mode),
            assistant_name=request.assistant_name and scrub_text(request.assistant_name, mode),
        )
    except PersonalDataError as error:
        raise InvalidInputError([FieldFault("/user_input", str(error))]) from None
