"""Errors as `application/problem+json` (RFC 9457). What a caller sent is never echoed."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from app.api.problem_types import METHOD_NOT_ALLOWED, UNSUPPORTED_MEDIA_TYPE
from app.errors import (
    FieldFault,
    InvalidInputError,
    MalformedRequestError,
    NotFoundError,
    PayloadTooLargeError,
    ProviderError,
    RateLimitedError,
    RequestError,
    TemporalMemoryError,
    UnauthorizedError,
    UnavailableError,
)
from app.telemetry import get_logger, mask_secrets

PROBLEM_JSON = "application/problem+json"

_MAX_FAULTS = 100
_MAX_POINTER_CHARS = 200
_log = get_logger(__name__)

_HTTP_KINDS: dict[int, tuple[str, str]] = {
    kind.status: (kind.slug, kind.title)
    for kind in (
        MalformedRequestError,
        UnauthorizedError,
        NotFoundError,
        PayloadTooLargeError,
        METHOD_NOT_ALLOWED,
        UNSUPPORTED_MEDIA_TYPE,
        UnavailableError,
    )
}


class FieldFaultShape(BaseModel):
    """One field at fault."""

    pointer: str = Field(
        description="JSON pointer into the body, or query/… or path/…", examples=["/dialogues/3/user_id"]
    )
    detail: str


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str = Field(
        description="An address of this service that explains it", examples=["/problems/not-found"]
    )
    title: str
    status: int
    detail: str
    instance: str = Field(description="The path that was asked for")
    request_id: str


class FieldProblem(Problem):
    """Fields are at fault."""

    errors: list[FieldFaultShape]


_INTERNAL_DETAIL = "The service failed; its log has the cause under this request_id."


def _printable(text: str) -> str:
    """The text as it may be answered: whole characters, and no secret that came in a wrong place."""
    return mask_secrets(text.encode("utf-8", "replace").decode("utf-8"))


def make_problem(
    scope: Scope,
    *,
    status: int,
    slug: str,
    title: str,
    detail: str,
    faults: Sequence[FieldFault] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The answer that tells a caller about one problem."""
    document = _document(scope, status=status, slug=slug, title=title, detail=detail)
    if status == InvalidInputError.status:
        document["errors"] = [
            {"pointer": _printable(fault.pointer), "detail": _printable(fault.detail)}
            for fault in faults[:_MAX_FAULTS]
        ]
    return Response(
        orjson.dumps(document), status_code=status, headers=dict(headers or {}), media_type=PROBLEM_JSON
    )


def _document(scope: Scope, *, status: int, slug: str, title: str, detail: str) -> dict[str, Any]:
    return {
        "type": f"/problems/{slug}",
        "title": title,
        "status": status,
        "detail": _printable(detail),
        "instance": _printable(scope["path"]),
        "request_id": scope.get("state", {}).get("request_id"),
    }


def describe_problem(scope: Scope, error: TemporalMemoryError) -> dict[str, Any]:
    """The problem as a document, for an answer that has begun already; a fault of ours without its cause."""
    told = isinstance(error, (RequestError, UnavailableError, ProviderError))
    return _document(
        scope,
        status=error.status,
        slug=error.slug,
        title=error.title,
        detail=str(error) or error.title if told else _INTERNAL_DETAIL,
    )


def make_internal_problem(scope: Scope) -> Response:
    """The answer to a fault of ours: it says nothing about the cause."""
    return make_problem(
        scope,
        status=TemporalMemoryError.status,
        slug=TemporalMemoryError.slug,
        title=TemporalMemoryError.title,
        detail=_INTERNAL_DETAIL,
    )


def point_at(location: Sequence[int | str]) -> str:
    """The pointer of a pydantic location: `/dialogues/3/user_id`, or `query/limit` outside the body."""
    place, *parts = [str(part) for part in location]
    if place == "body":
        return "".join("/" + escape_pointer(part) for part in parts)
    return "/".join([place, *(_printable(part)[:_MAX_POINTER_CHARS] for part in parts)])


def escape_pointer(part: str) -> str:
    """One part of a JSON pointer, short enough for an answer."""
    return _printable(part)[:_MAX_POINTER_CHARS].replace("~", "~0").replace("/", "~1")


def _within(location: Sequence[int | str], document: Any) -> Sequence[int | str]:
    """The part of a location that leads through the document; pydantic names its own types after fields."""
    for place, part in enumerate(location):
        try:
            document = document[part]
        except (KeyError, IndexError, TypeError):
            return location[:place]
    return location


def _read_faults(error: RequestValidationError) -> list[FieldFault]:
    faults = []
    for one in error.errors()[:_MAX_FAULTS]:
        detail = str(one["msg"]).removeprefix("Value error, ")
        if one["type"] == "extra_forbidden":
            detail = "is not a field of this request"
        place, *parts = one["loc"]
        if place == "body" and one["type"] != "missing":
            parts = list(_within(parts, error.body))
        fault = FieldFault(point_at([place, *parts]), detail)
        if fault not in faults:
            faults.append(fault)
    return faults


async def _answer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, TemporalMemoryError)  # noqa: S101 - registered for this class only
    if not isinstance(error, (RequestError, UnavailableError, ProviderError)):
        _log.error("request_failed", exc_info=error)
        return make_internal_problem(request.scope)
    headers = {}
    faults: Sequence[FieldFault] = ()
    retry_after_s = getattr(error, "retry_after_s", None)
    if isinstance(error, (UnavailableError, ProviderError, RateLimitedError)) and retry_after_s is not None:
        headers["Retry-After"] = str(max(1, round(retry_after_s)))
    if isinstance(error, UnauthorizedError):
        headers["WWW-Authenticate"] = 'Bearer realm="temporal-memory"'
    if isinstance(error, InvalidInputError):
        faults = error.faults
    if not isinstance(error, RequestError):
        _log.warning("request_refused", problem=error.slug, cause=str(error))
    return make_problem(
        request.scope,
        status=error.status,
        slug=error.slug,
        title=error.title,
        detail=str(error) or error.title,
        faults=faults,
        headers=headers,
    )


async def _answer_validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this class only
    return await _answer_error(request, InvalidInputError(_read_faults(error)))


async def _answer_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this class only
    headers = dict(error.headers or {})
    detail = str(error.detail)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = _allowed_methods(request, headers.get("Allow", ""))
        detail = f"This address takes {headers['Allow']}."
    slug, title = _HTTP_KINDS.get(error.status_code, (RequestError.slug, RequestError.title))
    return make_problem(
        request.scope,
        status=error.status_code,
        slug=slug,
        title=title,
        detail=detail,
        headers=headers,
    )


def _allowed_methods(request: Request, of_one_route: str) -> str:
    """The methods of all routes at this path; the framework names those of the first one only."""
    methods = {method for method in of_one_route.split(", ") if method}
    for route in request.app.state.routes:
        if route.path_regex.match(request.scope["path"]):
            methods |= route.methods
    return ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


def install_problem_handlers(app: FastAPI) -> None:
    """Make every error of the app a problem; what is not foreseen is the middleware's."""
    app.add_exception_handler(TemporalMemoryError, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_validation_error)
    app.add_exception_handler(HTTPException, _answer_http_error)
