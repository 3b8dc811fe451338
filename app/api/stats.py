"""/stats: the namespace in numbers, for a dashboard."""

import asyncio
from dataclasses import asdict
from typing import Annotated, get_args

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from app.api.bodies import KeyedRoute, open_to
from app.api.context import Identified, Injected
from app.api.wire import Reply, answer_json, problems
from app.dialogues.records import EmbeddingStatus, Kind
from app.errors import ForbiddenError
from app.evaluation.retention import Retention
from app.evaluation.turns import Outcome, TurnStatus

router = APIRouter(route_class=KeyedRoute, tags=["stats"])


class StatsReply(Reply):
    """What is stored in the namespace, or, for an admin, in all of them or in the one that was asked for."""

    namespaces: dict[str, int] | None = Field(
        description="Messages by namespace; null but for an admin.", examples=[None, {"mybot": 120}]
    )
    dialogues: int
    sessions: int
    window_messages: int
    summaries: int
    tiers: dict[str, int] = Field(
        description="Messages in hot windows, summaries (warm), stored messages (cold).",
        examples=[{"hot": 12, "warm": 3, "cold": 120}],
    )
    kinds: dict[str, int] = Field(examples=[{"chat": 110, "fact": 6, "preference": 3, "decision": 1}])
    roles: dict[str, int] = Field(examples=[{"user": 60, "assistant": 60}])
    embeddings: dict[str, int] = Field(examples=[{"ready": 118, "pending": 2, "failed": 0}])
    scores: dict[str, int] = Field(
        description="Messages by band of score.", examples=[{"71-90": 4, "none": 116}]
    )
    turns: dict[str, int] = Field(
        description="Turns of chat by state; `pending` ones wait for their score. Of the last 30 days.",
        examples=[{"scored": 50, "pending": 1}],
    )
    evaluations: dict[str, int] = Field(
        description="Judged turns by how they were judged.",
        examples=[{"scored": 40, "filtered": 8, "cached": 2, "failed": 0, "disabled": 0}],
    )
    retentions: dict[str, int] = Field(
        description="Scored turns by how long they are kept.", examples=[{"none": 10, "one_week": 30}]
    )
    pinned: int
    outdated: int
    expiring: int = Field(description="Messages with an expiry that is still to come.")
    expired: int = Field(
        description="Messages past their expiry that are not deleted yet; no search finds them."
    )
    unretrieved: int = Field(description="Messages that the next sweep deletes since nobody asks for them.")


@router.get("/stats", response_model=StatsReply, responses=problems(422))
@open_to("bot", "reader", "admin")
async def get_stats(
    *,
    services: Injected,
    caller: Identified,
    namespace: Annotated[
        str | None, Query(max_length=64, description="Of which namespace: an admin may choose.")
    ] = None,
) -> Response:
    """Counts by tier, kind, role, score, state of embedding and evaluation, and what is to be forgotten."""
    if caller.role != "admin" and namespace not in {None, caller.namespace}:
        raise ForbiddenError("Only a key of the role admin counts what is in another namespace.")
    namespace = caller.namespace or namespace
    record, turns, forgettable = await asyncio.gather(
        services.dialogues.stats(namespace),
        services.evaluation.counts(namespace),
        services.sweep.count(namespace),
    )
    counts = asdict(record)
    is_admin = caller.role == "admin"
    counts["namespaces"] = await services.dialogues.count_by_namespace(namespace) if is_admin else None
    return answer_json(
        counts
        | {
            "tiers": {"hot": record.window_messages, "warm": record.summaries, "cold": record.dialogues},
            "kinds": dict.fromkeys(get_args(Kind), 0) | record.kinds,
            "embeddings": dict.fromkeys(get_args(EmbeddingStatus), 0) | record.embeddings,
            "turns": dict.fromkeys(get_args(TurnStatus), 0) | turns.statuses,
            "evaluations": dict.fromkeys(get_args(Outcome), 0) | turns.outcomes,
            "retentions": dict.fromkeys(map(str, Retention), 0) | turns.retentions,
            "expired": forgettable.expired,
            "unretrieved": forgettable.unretrieved,
        }
    )
