"""What surrounds every request, as pure ASGI: id, security headers, access log, metrics, HEAD, body limit.

Metrics are counted in `finally`, around everything, so that what fails unforeseen is counted, too. Labels are
route templates: a raw path would hold user ids, and let any client make as many series as it likes.
"""

import asyncio
import re
from http import HTTPStatus
from typing import Final
from uuid import uuid4

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.problems import make_internal_problem, make_problem
from app.clock import monotonic_s
from app.errors import PayloadTooLargeError, UnavailableError
from app.telemetry import Metrics, get_logger, mask_secrets

MAX_BODY_BYTES: Final = 16 * 1024 * 1024

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}
# An answer may hold what people said: no cache keeps it, no page frames it, no browser guesses a type for it.
# A route that has set one of them knows better. No Access-Control header is among them: a web page of another
# origin may not read an answer.
_SECURITY_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'; base-uri 'none'; object-src 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_QUIET_ROUTES = {"/health/live", "/health/ready", "/metrics"}
# Nobody receives it; nginx's number for a client that hung up keeps it apart in the metrics.
_CLIENT_CLOSED_REQUEST = 499
# For a restart, or until the client is led to another process.
_RETRY_AFTER_S = "5"
_access_log = get_logger("app.access")
_log = get_logger(__name__)


class RequestContextMiddleware:
    """Gives requests their id and answers their headers; answers what fails unforeseen, logs and counts."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        # A key that was put into the wrong header is not passed on to logs.
        is_good = _REQUEST_ID.fullmatch(given) and mask_secrets(given) == given
        request_id = given if is_good else uuid4().hex
        method = scope["method"] if scope["method"] in _METHODS else "OTHER"
        # Whoever GETs may HEAD; the server leaves out the body, this only finds the route.
        scope = {**scope, "method": "GET"} if method == "HEAD" else scope
        scope.setdefault("state", {})["request_id"] = request_id
        status: int | None = None

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                for name, value in scope["state"].get("headers", {}).items():
                    headers[name] = value
                for name, value in _SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            elif method == "HEAD" and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        started_s = monotonic_s()
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, send_with_id)
            except ClientDisconnect:
                status = _CLIENT_CLOSED_REQUEST
            except (Exception, asyncio.CancelledError) as error:
                problem = _answer_failure(scope, error)
                if status is not None:
                    # The head has left: only a broken connection tells the client that the rest is missing.
                    raise
                await problem(scope, receive, send_with_id)
            finally:
                _record(scope, method=method, status=status, duration_s=monotonic_s() - started_s)


def _answer_failure(scope: Scope, error: BaseException) -> Response:
    if isinstance(error, Exception):
        _log.error("request_failed", route=_name_route(scope), error=type(error).__name__, exc_info=error)
        return make_internal_problem(scope)
    # The server stops, and has waited for this request as long as it may; it would answer 500 itself.
    _log.warning("request_given_up", route=_name_route(scope), cause="the service is stopping")
    return make_problem(
        scope,
        status=UnavailableError.status,
        slug=UnavailableError.slug,
        title=UnavailableError.title,
        detail="the service is stopping",
        headers={"Retry-After": _RETRY_AFTER_S},
    )


def _name_route(scope: Scope) -> str:
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "unmatched"


def _record(scope: Scope, *, method: str, status: int | None, duration_s: float) -> None:
    route = _name_route(scope)
    shown = status or HTTPStatus.INTERNAL_SERVER_ERROR
    services = getattr(scope["app"].state, "services", None)
    if services is not None:
        metrics: Metrics = services.metrics
        metrics.http_requests.labels(method, route, str(int(shown))).inc()
        metrics.http_request_duration.labels(method, route).observe(duration_s)
    write = _access_log.debug if route in _QUIET_ROUTES else _access_log.info
    write("request", method=method, route=route, status=int(shown), duration_ms=round(duration_s * 1000, 2))


class _BodyTooLargeError(Exception):
    """Raised where the body is read, caught where it is counted, whatever stands between."""


class BodyLimitMiddleware:
    """Answers 413 to a body over the limit, announced or not, without holding it.

    The connection stays open, and the server throws away what still comes: closing it would reset it under a
    client that is still sending, and the client would never see the answer.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and announced.isascii() and int(announced[:20]) > self._max_bytes:
            await self._refuse(scope, receive, send)
            return
        received_bytes = 0
        is_too_large = False
        is_answered = False

        async def receive_counted() -> Message:
            nonlocal received_bytes, is_too_large
            message = await receive()
            received_bytes += len(message.get("body", b""))
            if received_bytes > self._max_bytes:
                is_too_large = True
                raise _BodyTooLargeError
            return message

        async def send_unless_too_large(message: Message) -> None:
            # A framework may have caught our exception and made another answer of it.
            nonlocal is_answered
            if is_too_large and not is_answered:
                return
            is_answered = True
            await send(message)

        try:
            await self._app(scope, receive_counted, send_unless_too_large)
        except _BodyTooLargeError:
            if is_answered:
                raise
        if is_too_large and not is_answered:
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = make_problem(
            scope,
            status=PayloadTooLargeError.status,
            slug=PayloadTooLargeError.slug,
            title=PayloadTooLargeError.title,
            detail=f"A body may have up to {self._max_bytes} bytes.",
        )
        await answer(scope, receive, send)
