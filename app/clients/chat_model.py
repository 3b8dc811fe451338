"""Answers of a chat model that speaks OpenAI's protocol: whole, or as the model speaks."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final, Literal, Self, TypeVar, cast

from app.clients.call_log import CallLog
from app.clients.chat_roles import Rule, reshape, rules_of
from app.clients.chat_wire import (
    Completion,
    CompletionReader,
    ErrorInAnswerError,
    EventReader,
    is_denied,
    is_rejected,
    read_completion,
    without_refused_fields,
)
from app.clients.gate import ProviderGate, wait_out
from app.clients.http import JsonClient, ProviderFault
from app.clock import monotonic_s
from app.errors import (
    ProviderBusyError,
    ProviderDeniedError,
    ProviderError,
    ProviderRejectedError,
    ProviderTimeoutError,
)
from app.telemetry import Metrics, get_logger

__all__ = ["ChatModel", "ChatStream", "Completion", "Message", "ModelUse"]

ModelUse = Literal["chat", "evaluation", "summary"]

Message = Mapping[str, str]
"""`{"role": "system" | "user" | "assistant", "content": …}`"""

IDLE_TIMEOUT_S: Final = 30.0

_MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
# One token of a stream takes some 250 bytes.
_MAX_STREAM_BYTES: Final = 32 * 1024 * 1024
_RATE_LIMITED: Final = 429
_BAD_GATEWAY: Final = 502
_SERVER_ERRORS: Final = 500
_TRANSIENT_STATUSES: Final = {408, 409, 425}
_TIMEOUT_STATUSES: Final = {408, 504}
# 403 may be about what one user wrote, and 404 costs nothing to ask again.
_REFUSES_EVERYBODY: Final = {401, 402}
# A refused call counts as a call; a person waits for the answer.
_RATE_PAUSE_S: Final = (5.0, 60.0)
_DENIED_PAUSE_S: Final = (5.0, 30.0)
_BACKOFF_S: Final = 0.25
# Too many tokens are a matter of one prompt; the others are never taken by this model.
_REMEMBERED_REFUSALS: Final = ("stream_options", "enable_thinking", "temperature")

_log = get_logger(__name__)
_Answer = TypeVar("_Answer")


class ChatStream:
    """The text of one answer, as it comes; when it has been read to its end, `completion` is the whole.

    The whole is without thoughts that nothing had announced, though they may have been delivered.

    Nothing is asked again once text was delivered: an error of the iteration leaves half an answer.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        *,
        read_error: Callable[[ErrorInAnswerError], ProviderError],
        host: str,
    ) -> None:
        self._pieces = pieces
        self._connection = AsyncExitStack()
        self._read_error = read_error
        self._host = host
        self._events = EventReader()
        self._reader = CompletionReader()
        self._texts: list[str] = []
        self._is_at_end = False
        self._completion: Completion | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        """More text, never empty.

        Raises:
            ProviderTimeoutError: it did not come in time.
            ProviderError: it will not come.
        """
        await self.wait_for_text()
        if not self._texts:
            raise StopAsyncIteration
        return self._texts.pop(0)

    @property
    def completion(self) -> Completion:
        """The whole answer.

        Raises:
            RuntimeError: the iteration has not come to its end.
        """
        if self._completion is None or self._texts:
            raise RuntimeError("the answer has not been read to its end")
        return self._completion

    async def wait_for_text(self) -> None:
        """Read on until there is text to deliver, or the end.

        Raises:
            ProviderError: as for the iteration.
        """
        while not self._texts and not self._is_at_end:
            piece = await anext(self._pieces, None)
            self._is_at_end = piece is None
            try:
                text = self._read(piece)
            except ErrorInAnswerError as error:
                raise self._read_error(error) from None
            except ValueError as error:
                raise ProviderError(f"{self._host} answered {error}") from None
            if text:
                self._texts.append(text)

    def keep(self, connection: AsyncExitStack) -> None:
        """Take over what is to be closed with the stream."""
        self._connection = connection

    async def aclose(self) -> None:
        """Break the connection off, if the answer is still coming."""
        await self._connection.aclose()

    def _read(self, piece: bytes | None) -> str:
        events = self._events.finish() if piece is None else self._events.feed(piece)
        text = "".join(self._reader.feed(event) for event in events)
        self._is_at_end |= self._events.is_done or self._reader.is_full
        if not self._is_at_end:
            return text
        if not self._events.is_done and not self._reader.is_finished:
            raise ProviderBusyError(f"{self._host} broke off in the middle of its answer")
        text += self._reader.finish()
        self._completion = self._reader.completion()
        return text


class ChatModel:
    """A provider's chat model.

    A call that fails for a reason that may pass is made once more, if no text was delivered and there is
    time. Optional fields that the provider refuses (`stream_options`, …) are left out from then on, and roles
    are ordered as it wants them. While it limits our rate or refuses our key, calls fail at once and know how
    long; with patience, they wait a short limit of the rate out.

    Args:
        base_url: what `/chat/completions` is added to.
        api_key: None for a service that wants none.
        model: as the provider names it.
        timeout_s: for one answer, the quick retry included.
        setting: beginning of the names of the settings to blame: CHAT, EVALUATION.
        use: what it writes for, in metrics.
        metrics: where calls are counted; None: nowhere.
        enable_thinking: sent if not None; only hybrid models of SiliconFlow and Qwen know it.
        idle_timeout_s: longest silence in the middle of a stream.
        rate_patience_s: how long, within `timeout_s`, a call waits until the provider takes calls again. For
            somebody who waits for an answer, late is better than none.
        monotonic: the clock of the pauses.

    Raises:
        SettingsError: the URL or the key cannot be used.
    """

    def __init__(
        self,
        *,
        base_url: str,
        api_key: str | None,
        model: str,
        timeout_s: float,
        setting: str = "CHAT",
        use: ModelUse = "chat",
        metrics: Metrics | None = None,
        enable_thinking: bool | None = None,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        rate_patience_s: float = 0.0,
        monotonic: Callable[[], float] = monotonic_s,
    ) -> None:
        self.name: Final = model
        self._client = JsonClient(
            base_url=base_url.rstrip("/").removesuffix("/chat/completions"), api_key=api_key, setting=setting
        )
        self._timeout_s = timeout_s
        self._idle_timeout_s = idle_timeout_s
        self._rate_patience_s = rate_patience_s
        self._use = use
        self._metrics = metrics
        self._enable_thinking = enable_thinking
        self._refused: set[str] = set()
        self._role_rules: frozenset[Rule] = frozenset()
        self._monotonic = monotonic
        self._gate = ProviderGate(monotonic)
        self._calls = CallLog(f"{use} model {model} at {self._client.host}", monotonic=monotonic)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def complete(
        self, messages: Sequence[Message], *, max_tokens: int | None = None, temperature: float | None = None
    ) -> Completion:
        """The whole answer.

        Args:
            messages: the prompt.
            max_tokens: of the answer, thinking included; None: the provider's limit.
            temperature: 0 to 2; None: the model's own.

        Raises:
            ProviderTimeoutError: there was no whole answer in time.
            ProviderBusyError: the provider is busy or out of reach; knows the pause, if there is one.
            ProviderDeniedError: the provider refuses our key, balance or model.
            ProviderRejectedError: the provider will never take this prompt.
            ProviderError: the answer is empty, or none.
        """
        payload = self._payload(messages, max_tokens=max_tokens, temperature=temperature)
        answer, began_s = await self._ask(payload, self._complete)
        self._note(None, began_s=began_s)
        return answer

    @asynccontextmanager
    async def stream(
        self, messages: Sequence[Message], *, max_tokens: int | None = None, temperature: float | None = None
    ) -> AsyncIterator[ChatStream]:
        """The answer as the model speaks; entered when there is text to show, left at any time.

        Arguments and errors are those of `complete`; after the first text they are raised by the iteration.
        """
        payload = self._payload(messages, max_tokens=max_tokens, temperature=temperature)
        payload["stream"] = True
        if "stream_options" not in self._refused:
            payload["stream_options"] = {"include_usage": True}
        answer, began_s = await self._ask(payload, self._open_stream)
        try:
            yield answer
        except ProviderError as error:
            self._note(error, began_s=began_s)
            raise
        else:
            self._note(None, began_s=began_s)
        finally:
            await answer.aclose()

    def _payload(
        self, messages: Sequence[Message], *, max_tokens: int | None, temperature: float | None
    ) -> dict[str, object]:
        optional: dict[str, object | None] = {
            "max_tokens": max_tokens,
            "temperature": temperature,
            "enable_thinking": self._enable_thinking,
        }
        wanted = {
            key: value for key, value in optional.items() if key not in self._refused and value is not None
        }
        return {"model": self.name, "messages": reshape(messages, self._role_rules), **wanted}

    async def _ask(
        self,
        payload: dict[str, object],
        call: Callable[[dict[str, object], float], Awaitable[_Answer | ProviderFault]],
    ) -> tuple[_Answer, float]:
        """Make a call, again without what is refused, and once more after what may pass.

        Returns:
            The answer, and when the call that brought it began; it is noted when it has been read.
        """
        began_s = monotonic_s()
        deadline_s = began_s + self._timeout_s
        patient_until_s = began_s + min(self._rate_patience_s, self._timeout_s)
        retries = 1
        while True:
            try:
                started_s = self._gate.enter()
            except ProviderBusyError as error:
                await wait_out(error, until_s=patient_until_s)
                continue
            asked_s = monotonic_s()
            try:
                answer = await call(payload, deadline_s - asked_s)
                if isinstance(answer, ProviderFault):
                    payload = self._payload_for(payload, answer, started_s=started_s)
                    continue
            except ProviderError as error:
                self._note(error, began_s=asked_s)
                if isinstance(error, ProviderBusyError) and error.retry_after_s is not None:
                    await wait_out(error, until_s=patient_until_s)
                    continue
                may_pass = isinstance(error, ProviderBusyError)
                if not may_pass or retries == 0 or monotonic_s() + _BACKOFF_S >= deadline_s:
                    raise
                retries -= 1
                await asyncio.sleep(_BACKOFF_S * random.uniform(0.75, 1.25))  # noqa: S311 - not for secrecy
            else:
                self._gate.succeed(started_s)
                return answer, asked_s

    def _note(self, error: ProviderError | None, *, began_s: float) -> None:
        if error is None:
            self._calls.succeed()
        else:
            self._calls.fail(error)
        if self._metrics:
            self._metrics.model_requests.labels(self._use, error.outcome if error else "ok").inc()
            self._metrics.model_duration.labels(self._use).observe(monotonic_s() - began_s)

    def _payload_for(
        self, refused: dict[str, object], fault: ProviderFault, *, started_s: float
    ) -> dict[str, object]:
        """The request as the provider may take it; what it refuses once is not sent again.

        Raises:
            ProviderError: its complaint is another.
        """
        self._role_rules |= rules_of(fault.message)
        messages = cast("list[dict[str, str]]", refused["messages"])
        reshaped = reshape(messages, self._role_rules)
        if reshaped != messages:
            return refused | {"messages": reshaped}
        accepted = without_refused_fields(refused, fault)
        if accepted is None:
            raise self._error_of(fault, started_s=started_s)
        self._remember_refusal(refused.keys() - accepted.keys(), fault)
        return accepted

    def _remember_refusal(self, fields: set[str], fault: ProviderFault) -> None:
        fields &= set(_REMEMBERED_REFUSALS)
        self._refused |= fields
        if fields:
            _log.info("chat_fields_left_out", fields=sorted(fields), reason=str(fault))

    async def _complete(self, payload: dict[str, object], timeout_s: float) -> Completion | ProviderFault:
        answer = await self._client.post(
            "chat/completions", payload, timeout_s=timeout_s, max_answer_bytes=_MAX_ANSWER_BYTES
        )
        if isinstance(answer, ProviderFault):
            return answer
        try:
            return read_completion(answer)
        except ErrorInAnswerError as error:
            raise self._error_in_answer(payload, error) from None
        except ValueError as error:
            raise ProviderError(f"{self._client.host} answered {error}") from None

    async def _open_stream(self, payload: dict[str, object], timeout_s: float) -> ChatStream | ProviderFault:
        async with AsyncExitStack() as connection:
            pieces = await connection.enter_async_context(
                self._client.stream(
                    "chat/completions",
                    payload,
                    timeout_s=timeout_s,
                    idle_timeout_s=self._idle_timeout_s,
                    max_answer_bytes=_MAX_STREAM_BYTES,
                )
            )
            if isinstance(pieces, ProviderFault):
                return pieces
            answer = ChatStream(
                pieces, read_error=partial(self._error_in_answer, payload), host=self._client.host
            )
            await answer.wait_for_text()
            answer.keep(connection.pop_all())
            return answer

    def _error_in_answer(self, payload: dict[str, object], error: ErrorInAnswerError) -> ProviderError:
        fault = self._client.read_fault_in_answer(error.status or _BAD_GATEWAY, error.body, payload=payload)
        return self._error_of(fault, started_s=self._monotonic())

    def _error_of(self, fault: ProviderFault, *, started_s: float) -> ProviderError:
        message = f"{self._client.host} answered {fault}"
        if fault.status == _RATE_LIMITED or (
            fault.status >= _SERVER_ERRORS and fault.retry_after_s is not None
        ):
            error = ProviderBusyError(message, retry_after_s=fault.retry_after_s)
            return self._closed_by(error, started_s=started_s, pause_s=_RATE_PAUSE_S)
        if fault.status in _TIMEOUT_STATUSES:
            return ProviderTimeoutError(message)
        if fault.status >= _SERVER_ERRORS or fault.status in _TRANSIENT_STATUSES:
            return ProviderBusyError(message)
        if is_rejected(fault) and not is_denied(fault):
            return ProviderRejectedError(f"{self._client.host} does not take this prompt: {fault}")
        denied = ProviderDeniedError(f"{self._client.host} refuses us (key, balance, model or URL): {fault}")
        if fault.status not in _REFUSES_EVERYBODY:
            return denied
        return self._closed_by(denied, started_s=started_s, pause_s=_DENIED_PAUSE_S)

    def _closed_by(
        self, error: ProviderError, *, started_s: float, pause_s: tuple[float, float]
    ) -> ProviderError:
        first_s, limit_s = pause_s
        return self._gate.fail(error, started_s=started_s, first_s=first_s, limit_s=limit_s)
