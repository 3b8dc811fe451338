"""What services embed with: a cache, one flight per text, batches and bounded concurrency above a model."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from app.clients.embedding_http import RemoteEmbeddingModel
from app.clients.embedding_model import Embedded, EmbeddingModel, Vector
from app.clients.embedding_offline import OfflineEmbeddingModel
from app.clients.gate import ProviderGate
from app.errors import ProviderBusyError, ProviderRejectedError, ProviderTimeoutError
from app.telemetry import Metrics

__all__ = ["CachedEmbedder", "Embedded", "EmbeddingModel", "Vector", "open_embedding_model"]

_SILICONFLOW_URL = "https://api.siliconflow.cn/v1"
# A search by words at once is better than search after search that waits for a model that hangs.
_IMPATIENT_FOR_S = 10.0


def open_embedding_model(
    *,
    base_url: str | None,
    api_key: str | None,
    model: str,
    dimensions: int,
    batch_size: int,
    timeout_s: float,
    metrics: Metrics,
) -> EmbeddingModel:
    """The model that these settings mean: with neither URL nor key the bundled one, which has its own width.

    Args:
        base_url: None with a key: SiliconFlow.
        api_key: None with a URL: a service that wants none.
        model: as the provider names it.
        dimensions: width of the vectors.
        batch_size: texts in one request.
        timeout_s: for one request.
        metrics: where calls are counted.

    Raises:
        SettingsError: the URL or the key cannot be used.
    """
    if base_url is None and api_key is None:
        return OfflineEmbeddingModel(metrics=metrics)
    return RemoteEmbeddingModel(
        base_url=base_url or _SILICONFLOW_URL,
        api_key=api_key,
        model=model,
        dimensions=dimensions,
        batch_size=batch_size,
        timeout_s=timeout_s,
        metrics=metrics,
    )


class _Key(NamedTuple):
    model: str
    dimensions: int
    is_query: bool
    text_digest: bytes  # 16 bytes where a text may have 400 KB


class CachedEmbedder:
    """Embeds each text once: remembers vectors, and lets callers who ask for the same text share one call.

    A call is not the property of who started it: a caller that is cancelled leaves it running for the others
    and for the cache. An error reaches all who wait and is not remembered.

    Args:
        model: closed when this is closed.
        cache_size: vectors kept, least recently used out first; one of 1024 dimensions takes 4 KB. 0: none.
        concurrency: most calls to the model at once; above 1, one of them is kept free for queries.
    """

    def __init__(self, model: EmbeddingModel, *, cache_size: int, concurrency: int, metrics: Metrics) -> None:
        self._model = model
        self._cache_size = cache_size
        self._metrics = metrics
        self._cache: OrderedDict[_Key, Vector] = OrderedDict()
        self._flights: dict[_Key, asyncio.Future[Embedded]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._any_call = asyncio.Semaphore(concurrency)
        self._document_call = asyncio.Semaphore(max(1, concurrency - 1))
        # Who waits here has no place in the other queues, so what somebody waits for overtakes it there.
        self._background_call = asyncio.Semaphore(max(1, concurrency - 1))
        self._patience = ProviderGate()
        self._closed = False

    @property
    def name(self) -> str:
        """The model's name, to be stored with each vector."""
        return self._model.name

    @property
    def dimensions(self) -> int:
        """Width of each vector."""
        return self._model.dimensions

    @property
    def batch_size(self) -> int:
        """How many documents the model takes at once; `embed_documents` takes any number."""
        return self._model.batch_size

    async def load(self) -> None:
        """Do now what would make the first call slow.

        Raises:
            SettingsError: the model cannot be used on this machine.
        """
        await self._model.load()

    async def embed_query(self, text: str, *, patience_s: float | None = None) -> Vector:
        """The vector of what is searched for.

        Args:
            text: the query.
            patience_s: how long to wait; when that was too short, nobody waits at all for a while.

        Raises:
            ProviderTimeoutError: patience ran out, now or for another query a moment ago.
            ProviderRejectedError: this text has no vector.
            ProviderError: there is none now; at once where the provider is known to refuse us.
        """
        key = self._key(text, is_query=True)
        vector = self._remembered(key)
        if vector is not None:
            return vector
        started_s = self._patience.enter()
        flight = self._flights.get(key)
        if flight is None:
            flight = self._take_off([key], partial(self._query_call, text))[0]
        # wait() neither cancels the flight with its waiter nor hands one traceback from waiter to waiter.
        landed, _ = await asyncio.wait([flight], timeout=patience_s)
        if not landed:
            error = ProviderTimeoutError(f"the embedding model gave no vector within {patience_s} s")
            raise self._patience.fail(
                error, started_s=started_s, first_s=_IMPATIENT_FOR_S, limit_s=_IMPATIENT_FOR_S
            )
        embedded = flight.result()
        if isinstance(embedded, ProviderRejectedError):
            raise embedded
        return embedded

    async def embed_documents(self, texts: Sequence[str], *, background: bool = False) -> list[Embedded]:
        """The vectors of stored texts, in order; for each one that can never have a vector, the reason.

        Args:
            texts: any number.
            background: nobody waits for them; texts that somebody waits for go first.

        Raises:
            ProviderError: some call failed for reasons that are not the texts'. What other calls brought is
                remembered, so the next try is cheap.
        """
        known: dict[_Key, Vector] = {}
        flights: dict[_Key, asyncio.Future[Embedded]] = {}
        new: dict[_Key, str] = {}
        keys = [self._key(text, is_query=False) for text in texts]
        for key, text in zip(keys, texts, strict=True):
            if key in known or key in flights or key in new:
                continue
            vector = self._remembered(key)
            if vector is not None:
                known[key] = vector
            elif key in self._flights:
                flights[key] = self._flights[key]
            else:
                new[key] = text
        flights |= self._take_off_documents(new, background=background)
        if flights:
            await asyncio.wait(flights.values())
        return [known[key] if key in known else flights[key].result() for key in keys]

    async def embed_queries(self, texts: Sequence[str]) -> list[Embedded]:
        """The vectors of texts as queries, in order; they are not remembered, and whoever waits goes first.

        Raises:
            ProviderError: there are none now.
        """
        async with self._background_call, self._document_call, self._any_call:
            return await self._model.embed_queries(texts)

    async def aclose(self) -> None:
        """End what is running and close the model."""
        self._closed = True
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        self._land(self._flights, ProviderBusyError("the service is stopping"))
        await self._model.aclose()

    def _key(self, text: str, *, is_query: bool) -> _Key:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        return _Key(self._model.name, self._model.dimensions, is_query, digest)

    def _remembered(self, key: _Key) -> Vector | None:
        vector = self._cache.get(key)
        if vector is None:
            self._metrics.embedding_cache_misses.inc()
            return None
        self._cache.move_to_end(key)
        self._metrics.embedding_cache_hits.inc()
        return vector

    def _take_off_documents(
        self, new: dict[_Key, str], *, background: bool
    ) -> dict[_Key, asyncio.Future[Embedded]]:
        items = list(new.items())
        size = self._model.batch_size
        call = self._background_documents_call if background else self._documents_call
        flights: dict[_Key, asyncio.Future[Embedded]] = {}
        for start in range(0, len(items), size):
            keys = [key for key, _ in items[start : start + size]]
            texts = [text for _, text in items[start : start + size]]
            started = self._take_off(keys, partial(call, texts))
            flights |= dict(zip(keys, started, strict=True))
        return flights

    def _take_off(
        self, keys: Sequence[_Key], call: Callable[[], Awaitable[Sequence[Embedded]]]
    ) -> list[asyncio.Future[Embedded]]:
        if self._closed:
            raise RuntimeError("the embedder is closed")
        loop = asyncio.get_running_loop()
        flights = [loop.create_future() for _ in keys]
        self._flights |= dict(zip(keys, flights, strict=True))
        task = loop.create_task(self._fly(keys, call))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return flights

    async def _fly(self, keys: Sequence[_Key], call: Callable[[], Awaitable[Sequence[Embedded]]]) -> None:
        try:
            for key, embedded in zip(keys, await call(), strict=True):
                if not isinstance(embedded, ProviderRejectedError):
                    self._remember(key, embedded)
                self._flights.pop(key).set_result(embedded)
        except Exception as error:  # noqa: BLE001 - not swallowed: whoever waits for the flight raises it
            self._land(keys, error)

    def _land(self, keys: Iterable[_Key], error: Exception) -> None:
        for key in list(keys):
            flight = self._flights.pop(key, None)
            if flight is not None:
                flight.set_exception(error)
                flight.exception()  # nobody may be waiting any more

    async def _query_call(self, text: str) -> Sequence[Embedded]:
        async with self._any_call:
            return [await self._model.embed_query(text)]

    async def _documents_call(self, texts: Sequence[str]) -> Sequence[Embedded]:
        async with self._document_call, self._any_call:
            return await self._model.embed_documents(texts)

    async def _background_documents_call(self, texts: Sequence[str]) -> Sequence[Embedded]:
        async with self._background_call:
            return await self._documents_call(texts)

    def _remember(self, key: _Key, vector: Vector) -> None:
        vector.setflags(write=False)
        self._cache[key] = vector
        while len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)
