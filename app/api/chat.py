"""/chat: one turn of conversation with memory, whole or as the model speaks."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import orjson
from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response, StreamingResponse

from app.api.bodies import KeyedRoute, open_to
from app.api.context import ApiOptions, Injected, Namespace, Options
from app.api.fields import (
    MAX_TOKENS,
    Content,
    Flag,
    GroupId,
    MessageId,
    MessageUuid,
    Persona,
    SenderName,
    UserId,
    Zone,
    whole,
)
from app.api.problems import describe_problem
from app.api.wire import (
    BODY_STATUSES,
    MemoryReply,
    Reply,
    ReplyId,
    SummaryReply,
    Writer,
    Written,
    answer_json,
    problems,
)
from app.chat.events import ChatEvent, ChatRequest, Delta, Done, Failed, Recalled
from app.dialogues.records import Session
from app.evaluation.retention import Retention
from app.evaluation.turns import TurnStatus
from app.recall.records import Language

router = APIRouter(route_class=KeyedRoute, tags=["chat"])

_STATUSES: Final[dict[TurnStatus, Literal["pending", "scored", "unscored"]]] = {
    "answering": "pending",
    "failed": "unscored",
    "pending": "pending",
    "scored": "scored",
    "unscored": "unscored",
}


class ChatTurnRequest(BaseModel):
    """A user's message to be answered."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"user_id": 123456789, "user_input": "我的订单到哪了？", "sender_name": "小明"}]
        },
    )

    user_id: UserId
    user_input: Content
    group_id: GroupId = None
    sender_name: SenderName = None
    assistant_name: SenderName = Field(default=None, description="The bot's name, stored with its replies.")
    message_id: MessageId = Field(
        default=None,
        description="Where no message_uuid is given, the same id with the same text in the same session"
        " answers the stored turn, too.",
    )
    message_uuid: MessageUuid | None = Field(
        default=None, description="The same uuid again answers the stored turn, with no second model call."
    )
    top_n: Annotated[int, whole(ge=0, le=100)] | None = None
    window_size: Annotated[int, whole(ge=0, le=10)] | None = None
    max_memory_tokens: Annotated[int, whole(ge=0, le=MAX_TOKENS)] | None = None
    system_prompt: Persona = Field(
        default=None, description="The persona; it stands before the memory rules."
    )
    language: Language | None = None
    timezone: Zone | None = None
    stream: Flag = Field(default=False, description="Answer as text/event-stream while the model speaks.")


class UsageReply(Reply):
    """In tokens; `memory_tokens` is what recalled messages take of the prompt."""

    prompt_tokens: int
    completion_tokens: int
    memory_tokens: int


class ChatReply(Reply):
    """An answered turn."""

    reply: str
    turn_id: str
    session_key: str
    memories: list[MemoryReply]
    summaries: list[SummaryReply]
    no_match: bool = Field(description="Nothing that was recalled is likely to be an answer.")
    degraded: bool
    usage: UsageReply


class TurnReply(Reply):
    """What a turn scored, and how long it is kept."""

    turn_id: str
    status: Literal["pending", "scored", "unscored"] = Field(
        description="`pending`: not answered or not judged yet. `unscored`: kept in full, without expiry:"
        " evaluation failed for good or is switched off, or the model gave no answer."
    )
    score: int | None
    retention: Retention | None
    expires_at: datetime | None
    dialogue_ids: list[ReplyId] = Field(
        description="The user's and the assistant's message; the user's alone where the model gave no answer;"
        " empty where nothing is kept, or not yet."
    )
    created_at: datetime


@router.post(
    "/chat",
    response_model=ChatReply,
    responses={
        200: {
            "description": "The turn; with `stream`, events `memories`, `delta`, then `done` or `error`",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **problems(409, 502, 504, *BODY_STATUSES),
    },
)
async def chat(
    body: ChatTurnRequest,
    *,
    request: Request,
    services: Injected,
    options: Options,
    namespace: Namespace,
    writer: Written,
) -> Response:
    """Answer a message with what is remembered; the turn is judged after the answer was sent."""
    asked = _read_request(body, options=options, now=services.clock())
    if not body.stream:
        return answer_json(_write_done(await services.chat.chat(namespace, asked), writer))
    events = services.chat.stream(namespace, asked)
    # The first event is waited for before the status is sent: a refusal is a problem, not a stream.
    first = await anext(events)
    if isinstance(first, Failed):
        raise first.error

    async def speak() -> AsyncIterator[bytes]:
        async with aclosing(events):
            yield _write_event(request, first, writer)
            async for event in events:
                yield _write_event(request, event, writer)

    return StreamingResponse(
        speak(),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


@router.get("/chat/turns/{turn_id}", response_model=TurnReply, responses=problems(404, 422))
@open_to("bot", "reader")
async def get_turn(
    turn_id: Annotated[str, Path(max_length=100)],
    *,
    services: Injected,
    namespace: Namespace,
    writer: Written,
) -> Response:
    """What a turn scored, and how long it is kept."""
    turn = await services.chat.find_turn(namespace, turn_id)
    return answer_json(
        {
            "turn_id": turn.turn_id,
            "status": _STATUSES[turn.status],
            "score": turn.score,
            "retention": turn.retention,
            "expires_at": writer.time_or_none(turn.expires_at),
            "dialogue_ids": [writer.id(one) for one in turn.dialogue_ids],
            "created_at": writer.time(turn.created_at),
        }
    )


def _read_request(body: ChatTurnRequest, *, options: ApiOptions, now: datetime) -> ChatRequest:
    budget = body.max_memory_tokens
    return ChatRequest(
        session=Session(body.user_id, body.group_id),
        user_input=body.user_input,
        now=now,
        zone=body.timezone or options.zone,
        language=body.language or options.language,
        top_n=options.top_n if body.top_n is None else body.top_n,
        window_size=options.window_size if body.window_size is None else body.window_size,
        max_memory_tokens=options.max_memory_tokens if budget is None else budget,
        sender_name=body.sender_name,
        assistant_name=body.assistant_name,
        message_id=body.message_id,
        message_uuid=body.message_uuid,
        persona=body.system_prompt,
    )


def _write_recalled(recalled: Recalled | Done, writer: Writer) -> dict[str, Any]:
    return {
        "memories": [writer.memory(memory, explain=False) for memory in recalled.memories],
        "summaries": [writer.summary(summary) for summary in recalled.summaries],
        "no_match": recalled.no_match,
    }


def _write_done(done: Done, writer: Writer) -> dict[str, Any]:
    return {
        "reply": done.reply,
        "turn_id": done.turn_id,
        "session_key": done.session.key,
        **_write_recalled(done, writer),
        "degraded": done.degraded,
        "usage": done.usage,
    }


def _write_event(request: Request, event: ChatEvent, writer: Writer) -> bytes:
    if isinstance(event, Recalled):
        name, document = "memories", _write_recalled(event, writer)
    elif isinstance(event, Delta):
        name, document = "delta", {"text": event.text}
    elif isinstance(event, Done):
        name, document = "done", _write_done(event, writer)
    else:
        name, document = "error", describe_problem(request.scope, event.error)
    return b"event: %s\ndata: %s\n\n" % (name.encode(), orjson.dumps(document))
