"""/maintenance: what runs daily by itself, now."""

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.api.bodies import KeyedRoute
from app.api.context import Injected, Namespace
from app.api.fields import Flag
from app.api.wire import BODY_STATUSES, Reply, answer_json, problems

router = APIRouter(route_class=KeyedRoute, tags=["maintenance"])


class ForgetRequest(BaseModel):
    """Whether to delete, or only to count."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"dry_run": True}]})

    dry_run: Flag = Field(default=False, description="Count what would be deleted, and delete nothing.")


class ForgottenCountsReply(Reply):
    """Messages by the reason for which they go; none is counted for both."""

    expired: int
    unretrieved: int = Field(description="Neither stored nor recalled for FORGET_UNRETRIEVED_DAYS.")


class ForgetReply(Reply):
    """What was deleted, or would be."""

    dry_run: bool
    counts: ForgottenCountsReply


@router.post("/maintenance/forget", response_model=ForgetReply, responses=problems(*BODY_STATUSES))
async def forget(body: ForgetRequest, *, services: Injected, namespace: Namespace) -> Response:
    """Delete, in the caller's namespace, what has expired and what nobody has asked for in a long time."""
    forgotten = await (services.sweep.count(namespace) if body.dry_run else services.sweep.forget(namespace))
    return answer_json(
        {
            "dry_run": body.dry_run,
            "counts": {"expired": forgotten.expired, "unretrieved": forgotten.unretrieved},
        }
    )
