"""Finds out the calibration of the model that is set: known, stored, or measured once."""

import asyncio
from typing import Final

import numpy as np

from app.clients.embedding import CachedEmbedder
from app.clock import monotonic_s
from app.database.engine import Database
from app.errors import ProviderError, ProviderRejectedError, TemporalMemoryError
from app.recall import calibration_store as store
from app.recall.calibration import (
    KNOWN,
    Calibration,
    calibrate,
    read_calibration,
    reference_answers,
    reference_questions,
)
from app.telemetry import get_logger

log = get_logger(__name__)

# Measuring takes three requests. Who searches meanwhile would get other scores than a moment later.
_PATIENCE_S: Final = 2.0
_PAUSE_AFTER_FAILURE_S: Final = 60.0


class CalibrationService:
    """The calibration of one model; asked for by each search, found out at the first."""

    def __init__(self, *, database: Database, embedder: CachedEmbedder, model_id: int) -> None:
        """Open nothing.

        Args:
            database: where calibrations are kept.
            embedder: of the model.
            model_id: the embedder's number in `embedding_models`.
        """
        self._database = database
        self._embedder = embedder
        self._model_id = model_id
        self._known = KNOWN.get(embedder.name)
        self._finding: asyncio.Task[None] | None = None
        self._try_again_at_s = 0.0

    async def current(self) -> Calibration | None:
        """The calibration; None where it cannot be had now, which is tried again a minute later."""
        if self._known is not None:
            return self._known
        if self._finding is None and monotonic_s() >= self._try_again_at_s:
            self._finding = asyncio.create_task(self._find())
        if self._finding is not None:
            await asyncio.wait([self._finding], timeout=_PATIENCE_S)
        return self._known

    async def aclose(self) -> None:
        """End what is running."""
        if self._finding is not None:
            self._finding.cancel()
            await asyncio.gather(self._finding, return_exceptions=True)

    async def _find(self) -> None:
        try:
            async with self._database.read() as session:
                written = await store.read_calibration(session, self._model_id)
            found = read_calibration(written)
            if found is None:
                found = await self._measure()
                async with self._database.transaction() as session:
                    await store.store_calibration(session, self._model_id, found.written())
                log.info("embedding model calibrated", model=self._embedder.name, **found.written())
            self._known = found
        except TemporalMemoryError as error:
            log.warning("embedding model not calibrated yet", model=self._embedder.name, reason=str(error))
        finally:
            self._try_again_at_s = monotonic_s() + _PAUSE_AFTER_FAILURE_S
            self._finding = None

    async def _measure(self) -> Calibration:
        queries = await self._embedder.embed_queries(reference_questions())
        answers = await self._embedder.embed_documents(reference_answers(), background=True)
        for embedded in (*queries, *answers):
            if isinstance(embedded, ProviderRejectedError):
                raise ProviderError(f"a reference text has no vector: {embedded}")
        return calibrate(np.array(queries, dtype=np.float32), np.array(answers, dtype=np.float32))
