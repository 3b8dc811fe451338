"""/dialogues: store, list, read, change and delete messages."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict
from starlette.responses import Response

from app.api import cursors
from app.api.bodies import MAX_ITEMS, KeyedRoute, open_to
from app.api.context import ApiOptions, Deeds, Injected, Namespace, Options
from app.api.fields import (
    Content,
    DialogueId,
    Flag,
    GroupId,
    Limit,
    MessageId,
    MessageUuid,
    OptionalNotNull,
    QueryGroupId,
    QueryTime,
    SenderName,
    Time,
    TimeBefore9000,
    UserId,
    at_zone,
    refuse_before_2000,
    whole,
)
from app.api.wire import BODY_STATUSES, DialogueReply, Reply, ReplyId, Written, answer_json, problems
from app.dialogues.records import UNSET, DialogueChange, NewDialogue, Role, Session
from app.errors import FieldFault, InvalidInputError

_MAX_AHEAD = timedelta(days=1)

router = APIRouter(route_class=KeyedRoute, tags=["dialogues"])

_EXAMPLE: JsonDict = {
    "user_id": 123456789,
    "group_id": 987654321,
    "role": "user",
    "content": "我的订单号是ORD123456",
    "sender_name": "小明",
    "message_id": 1001,
}


class DialogueRequest(BaseModel):
    """A message to store."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    user_id: UserId
    role: Role
    content: Content
    group_id: GroupId = None
    sender_name: SenderName = None
    message_id: MessageId = None
    message_uuid: MessageUuid | None = None
    created_at: Time | None = Field(default=None, description="Default: now, and the message is a live one.")
    score: Annotated[int, whole(ge=0, le=100)] | None = None
    expires_at: TimeBefore9000 | None = None
    pinned: Flag = False
    wait: Flag = Field(default=False, description="Answer only after the embedding is made.")


class BatchRequest(BaseModel):
    """Messages to store together: all of them, or none."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"dialogues": [_EXAMPLE]}]})

    dialogues: list[DialogueRequest] = Field(max_length=MAX_ITEMS)


class DialogueChangeRequest(BaseModel):
    """What is to change; what is left out stays."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"content": "我的新订单号是ORD654321", "pinned": True}]},
    )

    content: Annotated[Content | None, OptionalNotNull()] = None
    pinned: Annotated[Flag | None, OptionalNotNull()] = None
    outdated: Annotated[Flag | None, OptionalNotNull()] = None
    expires_at: TimeBefore9000 | None = None
    score: Annotated[int, whole(ge=0, le=100)] | None = None


class BatchItemReply(Reply):
    """One message of a batch."""

    id: ReplyId
    message_uuid: str
    status: Literal["stored", "duplicate"]


class BatchReply(Reply):
    """The outcome of a batch, in the order of the request."""

    stored: int
    duplicates: int
    dialogues: list[BatchItemReply]


class PageReply(Reply):
    """Some messages, and the cursor of those that follow."""

    dialogues: list[DialogueReply]
    next_cursor: str | None


def check_created_at(created_at: datetime, *, zone: ZoneInfo, latest: datetime) -> None:
    """Refuse what no message can have been said at.

    Raises:
        ValueError: it is before 2000 or later than `latest`.
    """
    refuse_before_2000(created_at, zone)
    if created_at > latest:
        raise ValueError("must not be more than one day ahead")


def _read_new(
    body: DialogueRequest, *, options: ApiOptions, latest: datetime, pointer: str, faults: list[FieldFault]
) -> NewDialogue:
    created_at = None if body.created_at is None else at_zone(body.created_at, options.zone)
    if created_at is not None:
        try:
            check_created_at(created_at, zone=options.zone, latest=latest)
        except ValueError as error:
            faults.append(FieldFault(f"{pointer}/created_at", str(error)))
    return NewDialogue(
        user_id=body.user_id,
        role=body.role,
        content=body.content,
        group_id=body.group_id,
        sender_name=body.sender_name,
        message_id=body.message_id,
        message_uuid=body.message_uuid,
        created_at=created_at,
        score=body.score,
        expires_at=None if body.expires_at is None else at_zone(body.expires_at, options.zone),
        pinned=body.pinned,
    )


@router.post(
    "/dialogues",
    status_code=201,
    response_model=DialogueReply,
    responses={
        200: {"model": DialogueReply, "description": "It was stored before; nothing was stored now"},
        **problems(409, *BODY_STATUSES),
    },
)
async def add_dialogue(
    body: DialogueRequest, *, services: Injected, options: Options, namespace: Namespace, writer: Written
) -> Response:
    """Store one message; the same one again answers 200 and stores nothing."""
    faults: list[FieldFault] = []
    new = _read_new(body, options=options, latest=services.clock() + _MAX_AHEAD, pointer="", faults=faults)
    if faults:
        raise InvalidInputError(faults)
    stored = await services.dialogues.add(namespace, new, wait=body.wait)
    return answer_json(writer.dialogue(stored.dialogue), status=201 if stored.created else 200)


@router.post("/dialogues/batch", response_model=BatchReply, responses=problems(409, *BODY_STATUSES))
async def add_dialogues(
    body: BatchRequest, *, services: Injected, options: Options, namespace: Namespace, writer: Written
) -> Response:
    """Store up to 1,000 messages in one transaction."""
    latest = services.clock() + _MAX_AHEAD
    faults: list[FieldFault] = []
    new = [
        _read_new(one, options=options, latest=latest, pointer=f"/dialogues/{index}", faults=faults)
        for index, one in enumerate(body.dialogues)
    ]
    if faults:
        raise InvalidInputError(faults)
    outcomes = await services.dialogues.add_many(namespace, new, wait=any(one.wait for one in body.dialogues))
    stored = sum(outcome.created for outcome in outcomes)
    return answer_json(
        {
            "stored": stored,
            "duplicates": len(outcomes) - stored,
            "dialogues": [
                {
                    "id": writer.id(outcome.dialogue.id),
                    "message_uuid": outcome.dialogue.message_uuid,
                    "status": "stored" if outcome.created else "duplicate",
                }
                for outcome in outcomes
            ],
        }
    )


@router.get("/dialogues", response_model=PageReply, responses=problems(422))
@open_to("bot", "reader")
async def list_dialogues(
    *,
    user_id: Annotated[UserId, Query()],
    group_id: Annotated[QueryGroupId, Query()] = None,
    role: Annotated[Role | None, Query()] = None,
    since: Annotated[QueryTime | None, Query()] = None,
    until: Annotated[QueryTime | None, Query()] = None,
    order: Annotated[Literal["asc", "desc"], Query()] = "asc",
    limit: Annotated[Limit, Query()] = 50,
    cursor: Annotated[str | None, Query(max_length=100)] = None,
    services: Injected,
    options: Options,
    namespace: Namespace,
    writer: Written,
) -> Response:
    """A session's messages by (`created_at`, `id`), page after page."""
    session = Session(user_id, group_id)
    first = None if since is None else at_zone(since, options.zone)
    end = None if until is None else at_zone(until, options.zone)
    this_list = f"dialogues {namespace} {session.key} {role} {first} {end} {order}"
    after = cursors.read_position(cursor, of=this_list)
    page = await services.dialogues.list_page(
        namespace,
        session=session,
        role=role,
        since=first,
        until=end,
        descending=order == "desc",
        limit=limit,
        after=after,
    )
    return answer_json(
        {
            "dialogues": [writer.dialogue(dialogue) for dialogue in page.dialogues],
            "next_cursor": page.next and cursors.write_position(page.next, of=this_list),
        }
    )


@router.get("/dialogues/{id}", response_model=DialogueReply, responses=problems(404, 422))
@open_to("bot", "reader")
async def get_dialogue(
    id: DialogueId,  # noqa: A002 - the name in the contract
    *,
    services: Injected,
    namespace: Namespace,
    writer: Written,
) -> Response:
    """One message."""
    return answer_json(writer.dialogue(await services.dialogues.get(namespace, id)))


@router.patch("/dialogues/{id}", response_model=DialogueReply, responses=problems(404, *BODY_STATUSES))
async def change_dialogue(
    id: DialogueId,  # noqa: A002 - the name in the contract
    body: DialogueChangeRequest,
    *,
    services: Injected,
    options: Options,
    namespace: Namespace,
    writer: Written,
) -> Response:
    """Change a message; a new `content` is embedded anew. `score` and `expires_at` take null."""
    given: dict[str, Any] = {name: getattr(body, name) for name in body.model_fields_set}
    faults = [
        FieldFault(f"/{name}", "must not be null")
        for name in ("content", "pinned", "outdated")
        if given.get(name, UNSET) is None
    ]
    if faults:
        raise InvalidInputError(faults)
    if body.expires_at is not None:
        given["expires_at"] = at_zone(body.expires_at, options.zone)
    if given:
        dialogue = await services.dialogues.change(namespace, id, DialogueChange(**given))
    else:
        dialogue = await services.dialogues.get(namespace, id)
    return answer_json(writer.dialogue(dialogue))


@router.delete("/dialogues/{id}", status_code=204, response_class=Response, responses=problems(404, 422))
async def delete_dialogue(
    id: DialogueId,  # noqa: A002 - the name in the contract
    *,
    services: Injected,
    namespace: Namespace,
    by: Deeds,
) -> Response:
    """Delete a message for good."""
    await services.dialogues.delete(namespace, id, by=by)
    return Response(status_code=204)
