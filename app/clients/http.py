"""JSON over HTTP to a provider: every wait bounded, every failure one of our errors, no secret in any.

The error bodies of providers come in three shapes (an object, a bare JSON string, plain text or HTML) and
sometimes not at all; `read_fault` reads them all.
"""

import asyncio
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import httpx
import orjson

from app.clients.redaction import on_one_line, without_what_was_sent
from app.clock import utc_now
from app.errors import ProviderBusyError, ProviderError, ProviderTimeoutError, SettingsError
from app.telemetry import mask_secrets

MAX_RETRY_AFTER_S: Final = 3600.0
_MAX_QUOTE_CHARS: Final = 200
_MAX_FAULT_BYTES: Final = 64 * 1024
_CONNECT_TIMEOUT_S: Final = 10.0
_LOOPBACK: Final = {"localhost", "127.0.0.1", "::1"}
_TRACE_HEADERS: Final = ("x-siliconcloud-trace-id", "x-request-id")


@dataclass(frozen=True)
class ProviderFault:
    """An answer that is not a success.

    Attributes:
        code: the provider's own number, as text; "" where there is none.
        message: quoted in part, on one line, without secrets and without what we sent.
        retry_after_s: 1 to 3600, if the provider asked for a pause.
    """

    status: int
    code: str
    message: str
    retry_after_s: float | None
    trace_id: str

    def __str__(self) -> str:
        code = f" (code {self.code})" if self.code and self.code != str(self.status) else ""
        trace = f" [trace {self.trace_id}]" if self.trace_id else ""
        return f"{self.status}{code}: {self.message or 'no reason given'}{trace}"


class JsonClient:
    """Posts JSON to one provider.

    Redirects are not followed: they would carry the content to another machine. Proxies of the environment
    are used (many networks need one), except for a provider on this machine.

    Args:
        base_url: what the paths are added to, such as https://api.siliconflow.cn/v1.
        api_key: sent as a bearer token; None: no such header.
        setting: beginning of the names of the settings to blame: EMBEDDING, CHAT.

    Raises:
        SettingsError: the URL or the key cannot be used.
    """

    def __init__(self, *, base_url: str, api_key: str | None, setting: str) -> None:
        self._api_key = api_key
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if api_key is not None:
            if not re.fullmatch(r"[\x21-\x7e]+", api_key):
                raise SettingsError(f"{setting}_API_KEY holds characters that no key has, such as blanks")
            headers["Authorization"] = f"Bearer {api_key}"
        try:
            url = httpx.URL(base_url)
        except httpx.InvalidURL:
            raise SettingsError(f"{setting}_BASE_URL is not a URL") from None
        if url.scheme not in {"http", "https"} or not url.host:
            raise SettingsError(f"{setting}_BASE_URL is not the URL of a web service")
        self.host = url.host
        self._http = httpx.AsyncClient(
            base_url=url,
            headers=headers,
            follow_redirects=False,
            trust_env=url.host not in _LOOPBACK,
            # How many calls run at once is the caller's to bound; a full pool would be one more queue.
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16, keepalive_expiry=30),
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def post(
        self, path: str, payload: Mapping[str, object], *, timeout_s: float, max_answer_bytes: int
    ) -> bytes | ProviderFault:
        """Send JSON; the body of a 2xx answer, or what the provider says is wrong.

        Args:
            path: relative to the base URL, such as `embeddings`.
            payload: what orjson can write.
            timeout_s: for all of it; a provider that drips single bytes outlives a read timeout.
            max_answer_bytes: a longer answer is given up.

        Raises:
            ProviderTimeoutError: there was no whole answer in time.
            ProviderBusyError: the provider could not be reached, or broke off.
            ProviderError: the answer is too long.
        """
        with self._provider_errors(timeout_s):
            async with (
                asyncio.timeout(timeout_s),
                self._request(path, payload, timeout_s=timeout_s, accept="application/json") as answer,
            ):
                if not answer.is_success:
                    return await self._read_fault(answer, payload)
                body = await _read_at_most(answer, max_answer_bytes + 1)
        if len(body) > max_answer_bytes:
            raise self._too_long(max_answer_bytes)
        return body

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        payload: Mapping[str, object],
        *,
        timeout_s: float,
        idle_timeout_s: float,
        max_answer_bytes: int,
    ) -> AsyncIterator[AsyncGenerator[bytes, None] | ProviderFault]:
        """Send JSON; the body of a 2xx answer piece by piece as it comes, or what the provider says is wrong.

        Errors are those of `post`, raised on entering and by the pieces.

        Args:
            path: relative to the base URL, such as `chat/completions`.
            payload: what orjson can write.
            timeout_s: for all of it, what the reader of the pieces takes included.
            idle_timeout_s: longest silence once the answer has begun.
            max_answer_bytes: a longer answer is given up.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        async with AsyncExitStack() as stack:
            with self._provider_errors(timeout_s):
                async with asyncio.timeout_at(deadline_s):
                    answer = await stack.enter_async_context(
                        self._request(path, payload, timeout_s=timeout_s, accept="text/event-stream")
                    )
                    fault = None if answer.is_success else await self._read_fault(answer, payload)
            if fault is not None:
                yield fault
                return
            pieces = self._pieces(
                answer,
                deadline_s=deadline_s,
                timeout_s=timeout_s,
                idle_timeout_s=idle_timeout_s,
                max_answer_bytes=max_answer_bytes,
            )
            yield await stack.enter_async_context(aclosing(pieces))

    def read_fault_in_answer(
        self, status: int, body: bytes, *, payload: Mapping[str, object]
    ) -> ProviderFault:
        """What an error says that came as, or within, a successful answer to `payload`."""
        return read_fault(status, httpx.Headers(), body, secret=self._api_key, now=utc_now(), payload=payload)

    def _request(
        self, path: str, payload: Mapping[str, object], *, timeout_s: float, accept: str
    ) -> AbstractAsyncContextManager[httpx.Response]:
        return self._http.stream(
            "POST",
            path,
            content=orjson.dumps(payload),
            headers={"Content-Type": "application/json", "Accept": accept},
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_TIMEOUT_S)),
        )

    async def _pieces(
        self,
        answer: httpx.Response,
        *,
        deadline_s: float,
        timeout_s: float,
        idle_timeout_s: float,
        max_answer_bytes: int,
    ) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        incoming = answer.aiter_bytes()
        size = 0
        while True:
            idle_at_s = loop.time() + idle_timeout_s
            waited_s = idle_timeout_s if idle_at_s < deadline_s else timeout_s
            with self._provider_errors(waited_s):
                async with asyncio.timeout_at(min(deadline_s, idle_at_s)):
                    piece = await anext(incoming, None)
            if piece is None:
                return
            size += len(piece)
            if size > max_answer_bytes:
                raise self._too_long(max_answer_bytes)
            yield piece

    async def _read_fault(self, answer: httpx.Response, payload: Mapping[str, object]) -> ProviderFault:
        body = await _read_at_most(answer, _MAX_FAULT_BYTES)
        return read_fault(
            answer.status_code, answer.headers, body, secret=self._api_key, now=utc_now(), payload=payload
        )

    @contextmanager
    def _provider_errors(self, timeout_s: float) -> Iterator[None]:
        try:
            yield
        except (TimeoutError, httpx.TimeoutException):
            raise ProviderTimeoutError(f"{self.host} did not answer within {timeout_s:.3g} s") from None
        except (httpx.HTTPError, OSError) as error:
            reason = _quote(str(error), self._api_key) or type(error).__name__
            raise ProviderBusyError(f"{self.host} cannot be reached: {reason}") from None

    def _too_long(self, max_answer_bytes: int) -> ProviderError:
        return ProviderError(f"{self.host} gave an answer of over {max_answer_bytes} bytes")


def read_fault(
    status: int,
    headers: httpx.Headers,
    body: bytes,
    *,
    secret: str | None,
    now: datetime,
    payload: Mapping[str, object],
) -> ProviderFault:
    """What an answer to `payload` other than 2xx says, whatever the shape of its body."""
    code, message = _read_reason(body)
    message = without_what_was_sent(message[: 4 * _MAX_QUOTE_CHARS], payload)
    if 300 <= status < 400:  # noqa: PLR2004 - the redirects of RFC 9110
        message = message or "redirects are not followed"
    trace_id = next((headers[name] for name in _TRACE_HEADERS if name in headers), "")
    return ProviderFault(
        status=status,
        code=_quote(code, secret),
        message=_quote(message, secret),
        retry_after_s=read_retry_after_s(headers.get("retry-after"), now=now),
        trace_id=_quote(trace_id, secret),
    )


def read_retry_after_s(value: str | None, *, now: datetime) -> float | None:
    """The pause that a Retry-After header asks for, from 1 to 3600 s; None where it makes no sense.

    Source: RFC 9110, section 10.2.3: seconds or a date. Fractions of seconds are seen in the wild.
    """
    if value is None:
        return None
    try:
        pause_s = float(value)
    except ValueError:
        try:
            until = parsedate_to_datetime(value)
        except ValueError:
            return None
        pause_s = (until.replace(tzinfo=until.tzinfo or UTC) - now).total_seconds()
    return min(max(pause_s, 1.0), MAX_RETRY_AFTER_S) if math.isfinite(pause_s) else None


def _read_reason(body: bytes) -> tuple[str, str]:
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError:
        return "", body.decode("utf-8", "replace")
    if isinstance(content, dict):
        # OpenAI nests it under `error`, SiliconFlow does not; FastAPI servers (vLLM, TEI) say `detail`.
        inner = content.get("error")
        content = inner if isinstance(inner, dict) else content
        message = next(
            (content[key] for key in ("message", "msg", "detail", "error") if content.get(key)), ""
        )
        return _text(content.get("code")), _text(message)
    return "", _text(content)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        # FastAPI lists its complaints and quotes the input, which is private, beside each.
        return "; ".join(_text(item["msg"]) for item in value if isinstance(item, dict) and "msg" in item)
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _quote(text: str, secret: str | None) -> str:
    if secret:
        text = text.replace(secret, "***")
    return mask_secrets(on_one_line(text[: 4 * _MAX_QUOTE_CHARS])).strip()[:_MAX_QUOTE_CHARS]


async def _read_at_most(answer: httpx.Response, max_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) >= max_bytes:
            break
    return bytes(body[:max_bytes])
