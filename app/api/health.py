"""/health and /metrics: for those who run the service; no key is needed."""

from http import HTTPStatus
from typing import Any, Literal

from fastapi import APIRouter, Request
from prometheus_client.exposition import choose_encoder
from pydantic import Field
from starlette.responses import Response

from app.api.context import Injected
from app.api.problems import make_problem
from app.api.wire import Reply, answer_json, problem_entry
from app.errors import UnavailableError

router = APIRouter(tags=["operation"])


class LiveReply(Reply):
    """The process answers."""

    status: Literal["live"]


class ReadyReply(Reply):
    """The service can do its work."""

    status: Literal["ready"]
    details: dict[str, Any] = Field(description="Database, migrations, embedding model, queue.")


@router.get("/health/live", response_model=LiveReply, responses=problem_entry(500))
async def check_live() -> Response:
    """Whether the process answers; nothing else is asked."""
    return answer_json({"status": "live"})


@router.get("/health/ready", response_model=ReadyReply, responses=problem_entry(500, 503))
async def check_ready(request: Request, services: Injected) -> Response:
    """Whether the database answers, is migrated, and the queue is not stuck; 503 names the reason."""
    readiness = await services.health.check_ready()
    if readiness.ready:
        return answer_json({"status": "ready", "details": readiness.details})
    return make_problem(
        request.scope,
        status=HTTPStatus.SERVICE_UNAVAILABLE,
        slug=UnavailableError.slug,
        title=UnavailableError.title,
        detail="; ".join(readiness.reasons),
        headers={"Retry-After": "5"},
    )


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"description": "Prometheus metrics", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **problem_entry(500),
    },
)
async def show_metrics(request: Request, services: Injected) -> Response:
    """The metrics of the service: of this process, or of all of its workers."""
    await services.health.refresh_gauges()
    try:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
    except (TypeError, ValueError):
        # A version that is no number: whoever asks so gets what everybody can read.
        encode, content_type = choose_encoder("")
    return Response(encode(services.metrics.collected()), media_type=content_type)
