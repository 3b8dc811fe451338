"""How a request with a key and a body enters: who calls, how often, with what rights; then JSON, fields."""

import json
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import orjson
import structlog
from fastapi import Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.access.callers import ROLES, Caller, Role
from app.access.rate_limit import RateLimiter, Verdict
from app.api.problems import escape_pointer
from app.clock import monotonic_s
from app.errors import (
    FieldFault,
    ForbiddenError,
    InvalidInputError,
    MalformedRequestError,
    RateLimitedError,
)

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])

MAX_ITEMS: Final = 1000
_MAX_FIELDS: Final = 200
_MAX_FIELDS_OF_ITEMS: Final = 20_000


def parse_json(raw: bytes) -> Any:
    """The document in a body.

    Unpaired surrogates pass: the contract mends them in text fields.

    Raises:
        MalformedRequestError: not UTF-8, not JSON, or beyond what any request needs (depth, digits).
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        # orjson refuses a byte order mark, unpaired surrogates and NaN, each of which has a better answer.
        pass
    try:
        return json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise MalformedRequestError("The body is not UTF-8.") from None
    except json.JSONDecodeError as error:
        raise MalformedRequestError(
            f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from None
    except RecursionError:
        raise MalformedRequestError("The body is nested too deeply.") from None
    except ValueError:
        raise MalformedRequestError("The body holds a number with too many digits.") from None


def check_size(document: Any) -> None:
    """Refuse what has far more fields or items than any request: validation would tell a fault of each.

    Only what stands two levels deep is counted; no request has a field that is itself an object.

    Raises:
        InvalidInputError: names the one place that is too large.
    """
    if not isinstance(document, dict):
        return
    if len(document) > _MAX_FIELDS:
        raise _too_large("", f"has more than {_MAX_FIELDS} fields")
    for name, value in document.items():
        if not isinstance(value, list):
            continue
        place = "/" + escape_pointer(name)
        if len(value) > MAX_ITEMS:
            raise _too_large(place, f"should have at most {MAX_ITEMS} items")
        fields = 0
        for index, item in enumerate(value):
            count = len(item) if isinstance(item, dict) else 0
            if count > _MAX_FIELDS:
                raise _too_large(f"{place}/{index}", f"has more than {_MAX_FIELDS} fields")
            fields += count
        if fields > _MAX_FIELDS_OF_ITEMS:
            raise _too_large(place, f"has items with more than {_MAX_FIELDS_OF_ITEMS} fields together")


def _too_large(pointer: str, detail: str) -> InvalidInputError:
    return InvalidInputError([FieldFault(pointer, detail)])


class _ReadRequest(Request):
    """A request whose body has been read and parsed."""

    def __init__(self, request: Request, *, raw: bytes, document: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._raw = raw
        self._document = document

    async def body(self) -> bytes:
        return self._raw

    async def json(self) -> Any:
        return self._document


def open_to(*roles: Role) -> Callable[[_Endpoint], _Endpoint]:
    """Open a route to these roles; one that says nothing is open to `bot` alone."""

    def mark(endpoint: _Endpoint) -> _Endpoint:
        endpoint.__dict__["roles"] = frozenset(roles)
        return endpoint

    return mark


class KeyedRoute(APIRoute):
    """A route that needs a key: the caller is known before a byte of the body is read."""

    @property
    def roles(self) -> tuple[Role, ...]:
        """Who may call it."""
        chosen = getattr(self.endpoint, "roles", frozenset({"bot"}))
        return tuple(role for role in ROLES if role in chosen)

    def get_route_handler(self) -> _Handler:
        handler = super().get_route_handler()
        takes_body = self.body_field is not None
        roles = self.roles

        async def handle(request: Request) -> Response:
            state = request.app.state
            caller: Caller = await state.authenticator.identify(request.scope, state.services.keyring)
            request.state.caller = caller
            structlog.contextvars.bind_contextvars(namespace=caller.namespace, caller=caller.name)
            if state.limiter is not None:
                _limit(request, state.limiter, caller)
            if caller.role not in roles:
                raise ForbiddenError(f"This takes a key of the role {' or '.join(roles)}, not {caller.role}.")
            return await handler(await _read_body(request) if takes_body else request)

        return handle


def _limit(request: Request, limiter: RateLimiter, caller: Caller) -> None:
    verdict = limiter.take(caller.name, now_s=monotonic_s())
    request.scope["state"]["headers"] = _tell_limit(limiter, verdict)
    if not verdict.is_allowed:
        raise RateLimitedError(
            f"This key may send {limiter.limit.requests} requests in {limiter.limit.window_s} s.",
            retry_after_s=verdict.retry_after_s,
        )


def _tell_limit(limiter: RateLimiter, verdict: Verdict) -> dict[str, str]:
    """What is left, in the fields of the IETF's draft (draft-ietf-httpapi-ratelimit-headers)."""
    return {
        "RateLimit-Policy": f'"key";q={limiter.limit.requests};w={limiter.limit.window_s}',
        "RateLimit": f'"key";r={verdict.remaining};t={verdict.full_in_s}',
    }


async def _read_body(request: Request) -> Request:
    raw = await request.body()
    if raw and not _is_json(request.headers.get("content-type", "")):
        raise HTTPException(415, "Send the body with Content-Type: application/json.")
    document = parse_json(raw) if raw else None
    check_size(document)
    return _ReadRequest(request, raw=raw, document=document)


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
