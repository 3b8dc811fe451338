"""Records as replies: plain dicts that orjson writes at once, with nothing validated twice.

The pydantic `…Reply` classes describe the same shapes for OpenAPI; tests hold the two together.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import orjson
from fastapi import Depends
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from starlette.responses import Response

from app.api.context import Options
from app.dialogues.records import ChatType, Dialogue, EmbeddingStatus, Kind, Role, Session
from app.recall.records import Memory
from app.tiers.records import Summary

_REPLY_ID = {
    "anyOf": [{"type": "integer", "format": "int64"}, {"type": "string", "pattern": "^-?[0-9]{1,19}$"}],
    "description": "A number; a string of its digits where the service runs with IDS_AS_STRINGS=true.",
}
ReplyId = Annotated[int, WithJsonSchema(_REPLY_ID)]
ReplyIdOrNull = Annotated[
    int | None, WithJsonSchema(_REPLY_ID | {"anyOf": [*_REPLY_ID["anyOf"], {"type": "null"}]})
]


class Reply(BaseModel):
    """Base of the reply shapes."""

    model_config = ConfigDict(extra="forbid")


class DialogueReply(Reply):
    """A stored message."""

    id: ReplyId
    message_uuid: str
    session_key: str = Field(examples=["987654321:123456789"])
    user_id: ReplyId
    group_id: ReplyIdOrNull
    chat_type: ChatType
    role: Role
    content: str = Field(examples=["大家好"])
    sender_name: str | None = Field(examples=["小明"])
    message_id: ReplyIdOrNull
    token_count: int
    score: int | None
    expires_at: datetime | None
    pinned: bool
    kind: Kind
    outdated: bool
    embedding_status: EmbeddingStatus
    created_at: datetime
    corrects: ReplyIdOrNull = Field(description="The earlier message that this one has made outdated.")
    corrected_by: ReplyIdOrNull = Field(
        description="The later message that has made this one outdated. It may be gone by now."
    )


class ExplainReply(Reply):
    """How the relevance of a hit came about; null where a side has no say."""

    vector: float | None
    lexical: float | None
    neighbour: float
    time_boost: float
    rerank: float | None = Field(description="What the rerank model scored; null where none was asked.")


class MemoryReply(DialogueReply):
    """A recalled message. The scores of a neighbour are null."""

    absolute_time: str = Field(examples=["2024-01-16 10:30:15"])
    relative_time: str = Field(examples=["5小时前"])
    line: str = Field(examples=["[2024-01-16 10:30:15] (5小时前) user(小明): 我的订单号是ORD123456"])
    is_anchor: bool
    similarity: float | None
    match: float | None = Field(
        description="The similarity on a scale that is the same for every embedding model: 0 as unrelated"
        " texts have it, 0.5 as a question has it with its answer, 1 as a text with itself. `min_similarity`"
        " is the least of it. Null where it cannot be told."
    )
    decay: float | None
    relevance: float | None
    explain: ExplainReply | None = Field(
        default=None, description="Only where the request has `explain`; null for a neighbour."
    )


class SummaryReply(Reply):
    """A summary of an older part of the conversation."""

    id: ReplyId
    content: str
    since: datetime
    until: datetime
    messages: int
    created_at: datetime


class Writer:
    """Writes records with the ids and times of this service."""

    def __init__(self, *, zone: ZoneInfo, ids_as_strings: bool) -> None:
        self._zone = zone
        self.id: Callable[[int], int | str] = str if ids_as_strings else int

    def id_or_none(self, number: int | None) -> int | str | None:
        return None if number is None else self.id(number)

    def time(self, instant: datetime) -> datetime:
        """The instant in the service's zone, or in its own where the calendar of the zone ends."""
        try:
            return instant.astimezone(self._zone)
        except OverflowError:
            return instant

    def time_or_none(self, instant: datetime | None) -> datetime | None:
        return None if instant is None else self.time(instant)

    def session_ids(self, session: Session) -> dict[str, Any]:
        return {
            "session_key": session.key,
            "user_id": self.id(session.user_id),
            "group_id": self.id_or_none(session.group_id),
        }

    def dialogue(self, dialogue: Dialogue) -> dict[str, Any]:
        session = dialogue.session
        return {
            "id": self.id(dialogue.id),
            "message_uuid": dialogue.message_uuid,
            **self.session_ids(session),
            "chat_type": session.chat_type,
            "role": dialogue.role,
            "content": dialogue.content,
            "sender_name": dialogue.sender_name,
            "message_id": self.id_or_none(dialogue.message_id),
            "token_count": dialogue.token_count,
            "score": dialogue.score,
            "expires_at": self.time_or_none(dialogue.expires_at),
            "pinned": dialogue.pinned,
            "kind": dialogue.kind,
            "outdated": dialogue.outdated,
            "embedding_status": dialogue.embedding_status,
            "created_at": self.time(dialogue.created_at),
            "corrects": self.id_or_none(dialogue.corrects),
            "corrected_by": self.id_or_none(dialogue.corrected_by),
        }

    def memory(self, memory: Memory, *, explain: bool) -> dict[str, Any]:
        written = self.dialogue(memory.dialogue) | {
            "absolute_time": memory.absolute_time,
            "relative_time": memory.relative_time,
            "line": memory.line,
            "is_anchor": memory.is_anchor,
            "similarity": memory.similarity,
            "match": memory.match,
            "decay": memory.decay,
            "relevance": memory.relevance,
        }
        if explain:
            # A frozen dataclass is written field by field by orjson.
            written["explain"] = memory.explanation
        return written

    def summary(self, summary: Summary) -> dict[str, Any]:
        return {
            "id": self.id(summary.id),
            "content": summary.content,
            "since": self.time(summary.since),
            "until": self.time(summary.until),
            "messages": summary.messages,
            "created_at": self.time(summary.created_at),
        }


async def get_writer(options: Options) -> Writer:
    return Writer(zone=options.zone, ids_as_strings=options.ids_as_strings)


Written = Annotated[Writer, Depends(get_writer)]


def answer_json(document: Mapping[str, Any], *, status: int = 200) -> Response:
    """The document as the answer."""
    return Response(orjson.dumps(document), status_code=status, media_type="application/json")


_PROBLEM = {"content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}}
_FIELD_PROBLEM = {
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/FieldProblem"}}}
}
_MEANINGS = {
    400: "The body is not JSON in UTF-8",
    401: "No API key, or a wrong one",
    403: "The key's role may not do this",
    404: "Not there, or in another namespace",
    409: "The message_uuid belongs to another message",
    413: "The body is over 16 MiB",
    415: "The body is not sent as application/json",
    422: "Fields are at fault; `errors` names them",
    429: "More requests than RATE_LIMIT allows; see Retry-After",
    500: "A fault of the service",
    502: "The chat model failed; the message is kept",
    503: "The service cannot answer now; see Retry-After",
    504: "The chat model did not answer in time; the message is kept",
}
Problems = dict[int | str, dict[str, Any]]
_FIELD_STATUS = 422
BODY_STATUSES = (400, 413, 415, 422)


def problem_entry(*statuses: int) -> Problems:
    """The OpenAPI entries of these problems."""
    return {
        status: {
            "description": _MEANINGS[status],
            **(_FIELD_PROBLEM if status == _FIELD_STATUS else _PROBLEM),
        }
        for status in sorted(statuses)
    }


def problems(*statuses: int) -> Problems:
    """The OpenAPI entries of a keyed route: the problems that every such route has, and these."""
    return problem_entry(*{401, 403, 413, 429, 500, 503, *statuses})
