"""/memory: recall as data and as a prompt."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.api.bodies import KeyedRoute, open_to
from app.api.context import ApiOptions, Injected, Namespace, Options
from app.api.fields import (
    MAX_TOKENS,
    Flag,
    GroupId,
    Persona,
    Query,
    ShortText,
    Time,
    TimeBefore9000,
    UserId,
    Zone,
    at_zone,
    whole,
)
from app.api.wire import (
    BODY_STATUSES,
    MemoryReply,
    Reply,
    SummaryReply,
    Writer,
    Written,
    answer_json,
    problems,
)
from app.dialogues.records import Kind, Role, Session
from app.errors import FieldFault, InvalidInputError
from app.recall.records import Language, Mode, Scope, SearchQuery
from app.recall.time_words import TimeRange

MAX_KEYWORDS = 32

router = APIRouter(route_class=KeyedRoute, tags=["memory"])


class SearchRequest(BaseModel):
    """A search of one session, or of one group."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"user_id": 123456789, "query": "我的订单到哪了？", "top_n": 3, "window_size": 2}]
        },
    )

    user_id: UserId
    query: Query
    group_id: GroupId = None
    top_n: Annotated[int, whole(ge=0, le=100)] | None = Field(
        default=None, description="Anchors at most. Default: the setting TOP_N."
    )
    window_size: Annotated[int, whole(ge=0, le=10)] | None = Field(
        default=None, description="Messages before and after each anchor. Default: the setting WINDOW_SIZE."
    )
    mode: Mode = "hybrid"
    role: Role | None = Field(default=None, description="Anchors of this role only.")
    kind: Kind | None = Field(
        default=None,
        description="Anchors of this kind only; `summary` searches summaries, which nothing else finds.",
    )
    keywords: list[ShortText] = Field(
        default_factory=list, max_length=MAX_KEYWORDS, description="Each must occur in an anchor."
    )
    since: Time | None = None
    until: Time | None = None
    min_similarity: float | None = Field(
        default=None,
        ge=0,
        le=1,
        strict=True,
        allow_inf_nan=False,
        description="The least `match` of an anchor: 0.5 is a question and its answer, whatever the model.",
    )
    decay: Flag = True
    include_outdated: Flag = False
    scope: Scope = Field(default="member", description="`group`: everyone in the group; needs a `group_id`.")
    max_tokens: Annotated[int, whole(ge=0, le=MAX_TOKENS)] | None = Field(
        default=None, description="Trim the memories to this many tokens, least relevant first."
    )
    fill_budget: Flag | None = Field(
        default=None,
        description="Add what else is relevant while it fits into the budget of tokens; without one, nothing"
        " is added. Default: false in a search, true for a prompt.",
    )
    language: Language | None = Field(default=None, description="Default: the setting PROMPT_LANGUAGE.")
    timezone: Zone | None = Field(
        default=None, description="Zone of the lines and of time words. Default: the setting TIMEZONE."
    )
    now: TimeBefore9000 | None = Field(
        default=None, description="Default: the clock. Everything relative is computed from it."
    )
    explain: Flag = Field(default=False, description="Add each side's scores to the memories.")


class PromptRequest(SearchRequest):
    """A search whose result becomes the messages of a chat model."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"user_id": 123456789, "query": "我的订单到哪了？", "system_prompt": "你是一个友好的助手。"}
            ]
        }
    )

    max_memory_tokens: Annotated[int, whole(ge=0, le=MAX_TOKENS)] | None = Field(
        default=None, description="Budget of the memories. Default: the setting MAX_MEMORY_TOKENS."
    )
    system_prompt: Persona = Field(default=None, description="The persona; it stands first.")


class TimeRangeReply(Reply):
    """What was read from the words of the query; it prefers, it does not filter."""

    text: str = Field(examples=["昨天"])
    since: datetime
    until: datetime


class ConfidenceReply(Reply):
    """Whether what was recalled is likely to hold an answer."""

    confidence: float = Field(
        description="0 to 1; the same for every embedding model. Of the first hits, by meaning and by words."
    )
    no_match: bool = Field(
        description="`confidence` is below 0.5: nothing that is remembered is likely to be an answer."
    )


class SearchReply(ConfidenceReply):
    """What was recalled, in order of time."""

    session_key: str
    now: datetime
    memories: list[MemoryReply]
    prompt: str
    token_count: int
    truncated: bool
    time_range: TimeRangeReply | None
    degraded: bool = Field(description="The embedding service failed; keywords alone were searched.")


class MessageReply(Reply):
    """One message for a chat model."""

    role: str
    content: str


class PromptReply(ConfidenceReply):
    """Messages ready to send to a chat model, and what they were made of."""

    messages: list[MessageReply]
    memories: list[MemoryReply]
    summaries: list[SummaryReply]
    token_count: int
    truncated: bool
    time_range: TimeRangeReply | None
    degraded: bool


def _read_query(
    body: SearchRequest,
    *,
    options: ApiOptions,
    clock_now: datetime,
    budget_tokens: int | None,
    fill_budget: bool,
) -> SearchQuery:
    if body.scope == "group" and body.group_id is None:
        raise InvalidInputError([FieldFault("/scope", "group needs a group_id")])

    def instant(written: datetime | None) -> datetime | None:
        return None if written is None else at_zone(written, options.zone)

    return SearchQuery(
        session=Session(body.user_id, body.group_id),
        query=body.query,
        now=instant(body.now) or clock_now,
        zone=body.timezone or options.zone,
        language=body.language or options.language,
        top_n=options.top_n if body.top_n is None else body.top_n,
        window_size=options.window_size if body.window_size is None else body.window_size,
        mode=body.mode,
        scope=body.scope,
        role=body.role,
        kind=body.kind,
        keywords=tuple(body.keywords),
        since=instant(body.since),
        until=instant(body.until),
        min_similarity=body.min_similarity,
        decay=body.decay,
        include_outdated=body.include_outdated,
        budget_tokens=budget_tokens,
        fill_budget=fill_budget if body.fill_budget is None else body.fill_budget,
        explain=body.explain,
    )


def _write_range(found: TimeRange | None, writer: Writer) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"text": found.text, "since": writer.time(found.since), "until": writer.time(found.until)}


@router.post("/memory/search", response_model=SearchReply, responses=problems(*BODY_STATUSES))
@open_to("bot", "reader")
async def search_memory(
    body: SearchRequest, *, services: Injected, options: Options, namespace: Namespace, writer: Written
) -> Response:
    """Find what was said: by meaning and by words, with its neighbours, as time-stamped lines."""
    query = _read_query(
        body, options=options, clock_now=services.clock(), budget_tokens=body.max_tokens, fill_budget=False
    )
    result = await services.recall.search(namespace, query)
    return answer_json(
        {
            "session_key": result.session.key,
            "now": writer.time(result.now),
            "memories": [writer.memory(memory, explain=body.explain) for memory in result.memories],
            "prompt": result.prompt,
            "token_count": result.token_count,
            "truncated": result.truncated,
            "time_range": _write_range(result.time_range, writer),
            "degraded": result.degraded,
            "confidence": result.confidence,
            "no_match": result.no_match,
        }
    )


@router.post("/memory/prompt", response_model=PromptReply, responses=problems(*BODY_STATUSES))
@open_to("bot", "reader")
async def compose_prompt(
    body: PromptRequest, *, services: Injected, options: Options, namespace: Namespace, writer: Written
) -> Response:
    """Recall, and compose messages ready to send to any OpenAI-compatible model."""
    budget_tokens = options.max_memory_tokens if body.max_memory_tokens is None else body.max_memory_tokens
    if body.max_tokens is not None:
        budget_tokens = min(budget_tokens, body.max_tokens)
    query = _read_query(
        body, options=options, clock_now=services.clock(), budget_tokens=budget_tokens, fill_budget=True
    )
    prompt = await services.prompts.compose(namespace, query, persona=body.system_prompt)
    return answer_json(
        {
            "messages": prompt.messages,
            "memories": [writer.memory(memory, explain=body.explain) for memory in prompt.memories],
            "summaries": [writer.summary(summary) for summary in prompt.summaries],
            "token_count": prompt.token_count,
            "truncated": bool(prompt.recalled and prompt.recalled.truncated),
            "time_range": _write_range(prompt.recalled.time_range if prompt.recalled else None, writer),
            "degraded": prompt.degraded,
            "confidence": prompt.recalled.confidence if prompt.recalled else 0.0,
            "no_match": prompt.no_match,
        }
    )
