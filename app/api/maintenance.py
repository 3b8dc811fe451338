"""/maintenance: what runs daily by itself, now."""

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from app.api.bodies import KeyedRoute, open_to
from app.api.context import Deeds, Identified, Injected
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
@open_to("bot", "admin")
async def forget(body: ForgetRequest, *, services: Injected, caller: Identified, by: Deeds) -> Response:
    """Delete what has expired and what nobody has asked for in a long time.

    In the caller's namespace, or, with an admin's key, in all of them.
    """
    namespace = caller.namespace
    if body.dry_run:
        forgotten = await services.sweep.count(namespace)
    else:
        forgotten = await services.sweep.forget(namespace)
        await services.access.record_forgotten(
            namespace, expired=forgotten.expired, unretrieved=forgotten.unretrieved, by=by
        )
    return answer_json(
        {
            "dry_run": body.dry_run,
            "counts": {"expired": forgotten.expired, "unretrieved": forgotten.unretrieved},
        }
    )
