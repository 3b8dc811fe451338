"""Vectors from SiliconFlow, or from any service that speaks OpenAI's embeddings protocol."""

import asyncio
import random
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final

from app.clients.call_log import CallLog
from app.clients.embedding_model import Embedded, Vector
from app.clients.embedding_text import cut_text, prepare_text
from app.clients.embedding_wire import (
    NoVectorError,
    batch_limit,
    instruct_query,
    length_limit_tokens,
    max_answer_bytes,
    read_vectors,
    takes_dimensions,
)
from app.clients.gate import ProviderGate
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

QUERY_INSTRUCTION: Final = (
    "Given a message of a conversation, retrieve earlier messages of the conversation that help to answer it"
)
MAX_INPUT_CHARS: Final = 8000

_INPUT_STATUSES: Final = {400, 413, 422}
_TRANSIENT_STATUSES: Final = {408, 409, 425}
_TIMEOUT_STATUSES: Final = {408, 504}
_RATE_LIMITED: Final = 429
_MODEL_NOT_FOUND: Final = "20012"
_SERVER_ERRORS: Final = 500

# SiliconFlow's rate windows are a minute long, and a refused call counts as a call.
_RATE_PAUSE_S: Final = (10.0, 60.0)
# Long enough that searches do not each pay a round trip, short enough that a mended key is soon noticed.
_DENIED_PAUSE_S: Final = (30.0, 30.0)
_FAILED_PAUSE_S: Final = (1.0, 30.0)
_DOCUMENT_RETRIES: Final = 2
_QUERY_RETRIES: Final = 1
_FIRST_BACKOFF_S: Final = 0.2
_HARMLESS_TEXT: Final = "hello"
_SHORTEST_CUT_CHARS: Final = 64

_log = get_logger(__name__)


class _InternalServerError(ProviderBusyError):
    def __init__(self, message: str, *, fault: ProviderFault) -> None:
        super().__init__(message)
        self.fault = fault


class RemoteEmbeddingModel:
    """A provider's model.

    What is wrong with one text is told apart from what is wrong with us or with the provider: a batch that is
    refused is split until the text that is refused stands alone, after one harmless text was accepted.

    Args:
        base_url: what `/embeddings` is added to.
        api_key: None for a service that wants none.
        batch_size: texts in one request; becomes less when the provider names a smaller limit.
        timeout_s: for one request, its quick retries included.
        query_instruction: one English sentence for Qwen3-Embedding, which embeds queries by a task.
        max_input_chars: a longer text is embedded by its beginning.
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
        dimensions: int,
        batch_size: int,
        timeout_s: float,
        metrics: Metrics,
        query_instruction: str = QUERY_INSTRUCTION,
        max_input_chars: int = MAX_INPUT_CHARS,
        monotonic: Callable[[], float] = monotonic_s,
    ) -> None:
        self.name: Final = model
        self.dimensions: Final = dimensions
        self.batch_size = batch_size
        self._client = JsonClient(
            base_url=base_url.rstrip("/").removesuffix("/embeddings"), api_key=api_key, setting="EMBEDDING"
        )
        self._timeout_s = timeout_s
        self._metrics = metrics
        self._instruction = query_instruction if takes_dimensions(model) else None
        self._sends_dimensions = takes_dimensions(model)
        self._max_input_chars = max_input_chars
        self._gate = ProviderGate(monotonic)
        self._calls = CallLog(f"embedding model {model} at {self._client.host}", monotonic=monotonic)

    async def load(self) -> None:
        """Nothing is loaded: a provider that is down must not keep the service from starting."""

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def embed_documents(self, texts: Sequence[str]) -> list[Embedded]:
        """Embed stored texts, in order; one that is blank or refused has the reason in its place.

        Raises:
            ProviderBusyError: no vectors now; knows how long all callers have to wait.
            ProviderTimeoutError: the same, because of no answer in time.
            ProviderDeniedError: the provider refuses our key, balance, model or parameters.
        """
        prepared = [prepare_text(text, max_chars=self._max_input_chars) for text in texts]
        sent = [text for text in prepared if text]
        answered = iter(await self._embed(sent, retries=_DOCUMENT_RETRIES) if sent else [])
        return [next(answered) if text else ProviderRejectedError("the text is blank") for text in prepared]

    async def embed_query(self, text: str) -> Vector:
        """Embed what is searched for; fails at once while the provider wants a pause.

        Raises:
            ProviderRejectedError: the text is blank or refused.
            ProviderError: as for documents.
        """
        embedded = (await self._embed_queries([text], retries=_QUERY_RETRIES))[0]
        if isinstance(embedded, ProviderRejectedError):
            raise embedded
        return embedded

    async def embed_queries(self, texts: Sequence[str]) -> list[Embedded]:
        """Embed texts as queries, in order; one that is blank or refused has the reason in its place.

        Raises:
            ProviderError: as for documents.
        """
        return await self._embed_queries(texts, retries=_DOCUMENT_RETRIES)

    async def _embed_queries(self, texts: Sequence[str], *, retries: int) -> list[Embedded]:
        prepared = [prepare_text(text, max_chars=self._max_input_chars) for text in texts]
        sent = [self._as_query(text) for text in prepared if text]
        answered = iter(await self._embed(sent, retries=retries) if sent else [])
        return [next(answered) if text else ProviderRejectedError("the text is blank") for text in prepared]

    def _as_query(self, text: str) -> str:
        return text if self._instruction is None else instruct_query(text, self._instruction)

    async def _embed(self, texts: list[str], *, retries: int, trusted: bool = False) -> list[Embedded]:
        """Embed any number of texts.

        Args:
            texts: none of them blank.
            retries: quick ones, of each request.
            trusted: the provider is known to accept our requests as such, so that a refusal is the texts'.
        """
        if len(texts) > self.batch_size:
            return await self._embed_parts(texts, self.batch_size, retries=retries, trusted=trusted)
        answer = await self._request(texts, retries=retries)
        if not isinstance(answer, ProviderFault):
            return answer
        limit = batch_limit(answer.message, sent=len(texts))
        if limit is not None:
            self.batch_size = limit
            _log.warning("embedding_batch_size_reduced", batch_size=limit, reason=str(answer))
            return await self._embed(texts, retries=retries, trusted=trusted)
        if not trusted:
            mended = await self._check_request(answer, retries=retries)
            # A 500 may still have been chance: a single text is blamed for it after a second round only.
            if mended or (len(texts) == 1 and answer.status == _SERVER_ERRORS):
                return await self._embed(texts, retries=retries, trusted=True)
        if len(texts) > 1:
            return await self._embed_parts(texts, (len(texts) + 1) // 2, retries=retries, trusted=True)
        return [await self._embed_shortened(texts[0], answer, retries=retries)]

    async def _embed_parts(
        self, texts: list[str], size: int, *, retries: int, trusted: bool
    ) -> list[Embedded]:
        embedded: list[Embedded] = []
        for start in range(0, len(texts), size):
            embedded += await self._embed(texts[start : start + size], retries=retries, trusted=trusted)
        return embedded

    async def _embed_shortened(self, text: str, fault: ProviderFault, *, retries: int) -> Embedded:
        """Try a refused text once more, cut to what the provider says it takes or else to half."""
        limit_tokens = length_limit_tokens(fault.message)
        # A tokenizer makes at most about one token of a Chinese character.
        chars = min(len(text) // 2, len(text) if limit_tokens is None else limit_tokens * 9 // 10)
        if chars >= _SHORTEST_CUT_CHARS:
            answer = await self._request([cut_text(text, chars)], retries=retries)
            if not isinstance(answer, ProviderFault):
                return answer[0]
            fault = answer
        return ProviderRejectedError(f"{self._client.host} does not take this text: {fault}")

    async def _check_request(self, fault: ProviderFault, *, retries: int) -> bool:
        """Find out whether a refusal is about our requests as such, by sending a harmless text.

        Returns:
            True: requests are made in another way from now on, so try again. False: it was about the texts.

        Raises:
            ProviderDeniedError: the harmless text is refused too.
            ProviderError: it has no good vector either.
        """
        answer = await self._request([_HARMLESS_TEXT], retries=retries)
        if not isinstance(answer, ProviderFault):
            return False
        if answer.status == HTTPStatus.OK:
            error = ProviderError(f"{self._client.host} gives no vectors at present: {answer.message}")
            raise self._failed(error, started_s=self._gate.enter())
        if self._sends_dimensions and "dimension" in fault.message.lower():
            # vLLM refuses `dimensions`, even at full width, unless it was started for cut vectors.
            self._sends_dimensions = False
            answer = await self._request([_HARMLESS_TEXT], retries=retries)
            if not isinstance(answer, ProviderFault):
                return True
            self._sends_dimensions = True
        raise self._denied(fault, started_s=self._gate.enter())

    async def _request(self, texts: list[str], *, retries: int) -> list[Embedded] | ProviderFault:
        """Send one batch, again after a short while if it fails for a reason that may pass.

        Returns:
            The answer, or the fault if the input may be to blame: the provider says so, or no vector is
            good, or it answers 500 again and again, as some do to a text that they cannot read.
        """
        deadline_s = monotonic_s() + self._timeout_s
        backoff_s = _FIRST_BACKOFF_S * random.uniform(0.75, 1.25)  # noqa: S311 - not for secrecy
        while True:
            started_s = self._gate.enter()
            try:
                answer = await self._measured_call(
                    texts, started_s=started_s, timeout_s=deadline_s - monotonic_s()
                )
            except ProviderError as error:
                if error.retry_after_s is not None:  # the gate is closed
                    raise
                retries -= 1
                if retries < 0 or monotonic_s() + backoff_s >= deadline_s:
                    if isinstance(error, _InternalServerError):
                        if texts != [_HARMLESS_TEXT]:
                            return error.fault
                        # The gate raises errors of the kind that it was told, made of a message and a pause.
                        error = ProviderBusyError(str(error))
                    raise self._failed(error, started_s=started_s) from None
                await asyncio.sleep(backoff_s)
                backoff_s *= 2 * random.uniform(0.75, 1.25)  # noqa: S311 - not for secrecy
            else:
                self._gate.succeed(started_s)
                return answer

    async def _measured_call(
        self, texts: list[str], *, started_s: float, timeout_s: float
    ) -> list[Embedded] | ProviderFault:
        began_s = monotonic_s()
        outcome = "failed"
        try:
            answer = await self._call(texts, started_s=started_s, timeout_s=timeout_s)
            outcome = ProviderRejectedError.outcome if isinstance(answer, ProviderFault) else "ok"
        except ProviderError as error:
            outcome = error.outcome
            self._calls.fail(error)
            raise
        else:
            self._calls.succeed()
        finally:
            self._metrics.embedding_requests.labels(outcome).inc()
            self._metrics.embedding_duration.observe(monotonic_s() - began_s)
        return answer

    async def _call(
        self, texts: list[str], *, started_s: float, timeout_s: float
    ) -> list[Embedded] | ProviderFault:
        payload: dict[str, object] = {"model": self.name, "input": texts, "encoding_format": "float"}
        if self._sends_dimensions:
            payload["dimensions"] = self.dimensions
        answer = await self._client.post(
            "embeddings",
            payload,
            timeout_s=timeout_s,
            max_answer_bytes=max_answer_bytes(count=len(texts), dimensions=self.dimensions),
        )
        if isinstance(answer, bytes):
            try:
                return read_vectors(answer, count=len(texts), dimensions=self.dimensions)
            except NoVectorError as error:
                return ProviderFault(HTTPStatus.OK, "", str(error), retry_after_s=None, trace_id="")
            except ValueError as error:
                raise ProviderError(f"{self._client.host} answered {error}") from None
        if answer.status in _INPUT_STATUSES and answer.code != _MODEL_NOT_FOUND:
            return answer
        raise self._error_of(answer, started_s=started_s)

    def _error_of(self, fault: ProviderFault, *, started_s: float) -> ProviderError:
        message = f"{self._client.host} answered {fault}"
        if fault.status == _RATE_LIMITED or (
            fault.status >= _SERVER_ERRORS and fault.retry_after_s is not None
        ):
            first_s, limit_s = _RATE_PAUSE_S
            error = ProviderBusyError(message, retry_after_s=fault.retry_after_s)
            return self._gate.fail(error, started_s=started_s, first_s=first_s, limit_s=limit_s)
        if fault.status in _TIMEOUT_STATUSES:
            return ProviderTimeoutError(message)
        if fault.status == _SERVER_ERRORS:
            return _InternalServerError(message, fault=fault)
        if fault.status > _SERVER_ERRORS or fault.status in _TRANSIENT_STATUSES:
            return ProviderBusyError(message)
        return self._denied(fault, started_s=started_s)

    def _failed(self, error: ProviderError, *, started_s: float) -> ProviderError:
        first_s, limit_s = _FAILED_PAUSE_S
        return self._gate.fail(error, started_s=started_s, first_s=first_s, limit_s=limit_s)

    def _denied(self, fault: ProviderFault, *, started_s: float) -> ProviderError:
        first_s, limit_s = _DENIED_PAUSE_S
        error = ProviderDeniedError(f"{self._client.host} refuses us (key, balance, model or URL): {fault}")
        return self._gate.fail(error, started_s=started_s, first_s=first_s, limit_s=limit_s)
