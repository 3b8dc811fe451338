"""A model that reads a query and a message together: SiliconFlow's `/v1/rerank`, and what speaks like it."""

from collections.abc import Callable, Sequence
from typing import Final

from app.clients.call_log import CallLog
from app.clients.embedding_text import cut_text
from app.clients.gate import ProviderGate
from app.clients.http import JsonClient, ProviderFault
from app.clients.rerank_wire import read_scores, rerank_payload
from app.clock import monotonic_s
from app.errors import (
    ProviderBusyError,
    ProviderDeniedError,
    ProviderError,
    ProviderTimeoutError,
)
from app.telemetry import Metrics

MOST_DOCUMENTS: Final = 40
"""Of one request; providers take 64 and more."""

# Query and document together, in the 8,192 tokens of the smallest model in use.
_MAX_QUERY_CHARS: Final = 1_000
_MAX_DOCUMENT_CHARS: Final = 2_000
_MAX_ANSWER_BYTES: Final = 1_000_000
_RATE_LIMITED: Final = 429
_SERVER_ERRORS: Final = 500
_TRANSIENT_STATUSES: Final = {408, 409, 425}
_TIMEOUT_STATUSES: Final = {408, 504}
# A search is answered without it: better soon, for a while, than each after waiting in vain.
_RATE_PAUSE_S: Final = (10.0, 60.0)
_FAILED_PAUSE_S: Final = (10.0, 60.0)
_DENIED_PAUSE_S: Final = (30.0, 60.0)


class Reranker:
    """Scores messages by how well they answer a query. Nothing is tried twice: somebody waits.

    Args:
        base_url: what `/rerank` is added to.
        api_key: None for a service that wants none.
        model: as the provider names it.
        timeout_s: for one request; what takes longer is done without.
        metrics: where calls are counted.
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
        metrics: Metrics,
        monotonic: Callable[[], float] = monotonic_s,
    ) -> None:
        self._model = model
        self._client = JsonClient(
            base_url=base_url.rstrip("/").removesuffix("/rerank"), api_key=api_key, setting="RERANK"
        )
        self._timeout_s = timeout_s
        self._metrics = metrics
        self._gate = ProviderGate(monotonic)
        self._calls = CallLog(f"rerank model {model} at {self._client.host}", monotonic=monotonic)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def score(self, query: str, documents: Sequence[str]) -> list[float]:
        """How well each document answers the query, 0 to 1, in order.

        Args:
            query: what is asked; a long one is cut.
            documents: 1 to `MOST_DOCUMENTS`, none of them blank; long ones are cut.

        Raises:
            ProviderError: there are no scores now; at once while the provider is known to fail.
        """
        started_s = self._gate.enter()
        payload = rerank_payload(
            model=self._model,
            query=cut_text(query, _MAX_QUERY_CHARS),
            documents=[cut_text(document, _MAX_DOCUMENT_CHARS) for document in documents],
        )
        began_s, outcome = monotonic_s(), ProviderError.outcome
        try:
            scores = await self._call(payload, count=len(documents))
            outcome = "ok"
        except ProviderError as error:
            outcome = error.outcome
            self._calls.fail(error)
            first_s, limit_s = _pause_s(error)
            raise self._gate.fail(error, started_s=started_s, first_s=first_s, limit_s=limit_s) from None
        finally:
            self._metrics.rerank_requests.labels(outcome).inc()
            self._metrics.rerank_duration.observe(monotonic_s() - began_s)
        self._gate.succeed(started_s)
        self._calls.succeed()
        return scores

    async def _call(self, payload: dict[str, object], *, count: int) -> list[float]:
        answer = await self._client.post(
            "rerank", payload, timeout_s=self._timeout_s, max_answer_bytes=_MAX_ANSWER_BYTES
        )
        if isinstance(answer, ProviderFault):
            raise self._error_of(answer)
        try:
            return read_scores(answer, count=count)
        except ValueError as error:
            raise ProviderError(f"{self._client.host} answered {error}") from None

    def _error_of(self, fault: ProviderFault) -> ProviderError:
        message = f"{self._client.host} answered {fault}"
        if fault.status in _TIMEOUT_STATUSES:
            return ProviderTimeoutError(message)
        if (
            fault.status == _RATE_LIMITED
            or fault.status >= _SERVER_ERRORS
            or fault.status in _TRANSIENT_STATUSES
        ):
            return ProviderBusyError(message, retry_after_s=fault.retry_after_s)
        # What is refused because of its texts costs the next ones a pause, and nobody a search.
        return ProviderDeniedError(f"{self._client.host} refuses us (key, balance, model or URL): {fault}")


def _pause_s(error: ProviderError) -> tuple[float, float]:
    if isinstance(error, ProviderDeniedError):
        return _DENIED_PAUSE_S
    return _RATE_PAUSE_S if isinstance(error, ProviderBusyError) else _FAILED_PAUSE_S
