"""/stats: the namespace in numbers, for a dashboard."""

from dataclasses import asdict

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from app.api.bodies import KeyedRoute
from app.api.context import Injected, Namespace
from app.api.wire import Reply, answer_json, problems

router = APIRouter(route_class=KeyedRoute, tags=["stats"])


class StatsReply(Reply):
    """What is stored in the namespace."""

    dialogues: int
    sessions: int
    window_messages: int
    kinds: dict[str, int] = Field(examples=[{"chat": 120}])
    roles: dict[str, int] = Field(examples=[{"user": 60, "assistant": 60}])
    embeddings: dict[str, int] = Field(examples=[{"ready": 118, "pending": 2}])
    scores: dict[str, int] = Field(
        description="Messages by band of score.", examples=[{"71-90": 4, "none": 116}]
    )
    pinned: int
    outdated: int
    expiring: int = Field(description="Messages with an expiry that is still to come.")
    expired: int = Field(
        description="Messages past their expiry that are not deleted yet; no search finds them."
    )


@router.get("/stats", response_model=StatsReply, responses=problems())
async def get_stats(*, services: Injected, namespace: Namespace) -> Response:
    """Counts by tier, kind, role, state of the embedding and score."""
    return answer_json(asdict(await services.dialogues.stats(namespace)))
