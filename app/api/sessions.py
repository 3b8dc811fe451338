"""/sessions and /users: what is stored of whom, the conversation that is going on, and erasure."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.responses import Response

from app.api import cursors
from app.api.bodies import KeyedRoute, open_to
from app.api.context import Deeds, Injected, Namespace
from app.api.fields import SESSION_KEY_SCHEMA, Limit, QueryGroupId, UserId, read_session_key
from app.api.wire import Reply, ReplyId, ReplyIdOrNull, SummaryReply, Written, answer_json, problems
from app.dialogues.records import Erased, Role, Session
from app.errors import FieldFault, InvalidInputError

router = APIRouter(route_class=KeyedRoute, tags=["sessions"])


SessionKey = Annotated[str, Path(json_schema_extra=SESSION_KEY_SCHEMA)]


def _read_session(session_key: str) -> Session:
    try:
        return read_session_key(session_key)
    except ValueError as error:
        raise InvalidInputError([FieldFault("path/session_key", str(error))]) from None


class SessionKeyReply(Reply):
    """The key of a session: `user_id` in private, `group_id:user_id` in a group."""

    session_key: str = Field(examples=["987654321:123456789"])


class SessionReply(Reply):
    """A session and how much of it is stored."""

    session_key: str
    user_id: ReplyId
    group_id: ReplyIdOrNull
    dialogues: int
    first_at: datetime | None
    last_at: datetime | None
    window_tokens: int
    summaries: int


class SessionPageReply(Reply):
    """Some sessions, and the cursor of those that follow."""

    sessions: list[SessionReply]
    next_cursor: str | None


class WindowMessageReply(Reply):
    """A message of the conversation that is going on."""

    role: Role
    content: str
    sender_name: str | None
    created_at: datetime
    token_count: int


class WindowReply(Reply):
    """The conversation that is going on, oldest first."""

    messages: list[WindowMessageReply]
    token_count: int


class ErasedCountsReply(Reply):
    """How much of each kind was erased."""

    dialogues: int
    window_messages: int
    summaries: int
    turns: int


class ErasedReply(Reply):
    """What an erasure took."""

    erased: ErasedCountsReply


@router.get("/session-key", response_model=SessionKeyReply, responses=problems(422))
@open_to("bot", "reader", "admin")
async def get_session_key(
    *, user_id: Annotated[UserId, Query()], group_id: Annotated[QueryGroupId, Query()] = None
) -> Response:
    """The key of a session."""
    return answer_json({"session_key": Session(user_id, group_id).key})


@router.get("/sessions", response_model=SessionPageReply, responses=problems(422))
@open_to("bot", "reader")
async def list_sessions(
    *,
    limit: Annotated[Limit, Query()] = 50,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
    services: Injected,
    namespace: Namespace,
    writer: Written,
) -> Response:
    """All sessions of the namespace, page after page."""
    this_list = f"sessions {namespace}"
    after = cursors.read_session(cursor, of=this_list)
    found, following = await services.sessions.list_page(namespace, limit=limit, after=after)
    return answer_json(
        {
            "sessions": [
                {
                    **writer.session_ids(one.session),
                    "dialogues": one.dialogues,
                    "first_at": writer.time_or_none(one.first_at),
                    "last_at": writer.time_or_none(one.last_at),
                    "window_tokens": one.window_tokens,
                    "summaries": one.summaries,
                }
                for one in found
            ],
            "next_cursor": following and cursors.write_session(following, of=this_list),
        }
    )


@router.get("/sessions/{session_key}/window", response_model=WindowReply, responses=problems(422))
@open_to("bot", "reader")
async def get_window(
    session_key: SessionKey, *, services: Injected, namespace: Namespace, writer: Written
) -> Response:
    """The conversation that is going on; empty for a session that is not known."""
    session = _read_session(session_key)
    messages = await services.sessions.window(namespace, session)
    return answer_json(
        {
            "messages": [
                {
                    "role": message.role,
                    "content": message.content,
                    "sender_name": message.sender_name,
                    "created_at": writer.time(message.created_at),
                    "token_count": message.token_count,
                }
                for message in messages
            ],
            "token_count": sum(message.token_count for message in messages),
        }
    )


class SummariesReply(Reply):
    """What has left the window, oldest first."""

    summaries: list[SummaryReply]


@router.get("/sessions/{session_key}/summaries", response_model=SummariesReply, responses=problems(422))
@open_to("bot", "reader")
async def list_summaries(
    session_key: SessionKey, *, services: Injected, namespace: Namespace, writer: Written
) -> Response:
    """Summaries of older parts of the conversation; empty for a session that is not known."""
    found = await services.summaries.list_all(namespace, _read_session(session_key))
    return answer_json({"summaries": [writer.summary(summary) for summary in found]})


@router.delete("/sessions/{session_key}", response_model=ErasedReply, responses=problems(422))
async def erase_session(
    session_key: SessionKey, *, services: Injected, namespace: Namespace, by: Deeds
) -> Response:
    """Erase one session for good; what was in flight does not come back."""
    session = _read_session(session_key)
    return _answer_erased(await services.erasure.erase_session(namespace, session, by=by))


@router.delete("/users/{user_id}", response_model=ErasedReply, responses=problems(422))
async def erase_user(user_id: UserId, *, services: Injected, namespace: Namespace, by: Deeds) -> Response:
    """Erase a user for good, in private and in every group."""
    return _answer_erased(await services.erasure.erase_user(namespace, user_id, by=by))


def _answer_erased(erased: Erased) -> Response:
    return answer_json(
        {
            "erased": {
                "dialogues": erased.dialogues,
                "window_messages": erased.window_messages,
                "summaries": erased.summaries,
                "turns": erased.turns,
            }
        }
    )
