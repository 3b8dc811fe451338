"""The composition root: opens everything, wires it, closes it. Nobody else wires."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from app.access.administration_service import AdministrationService
from app.access.keyring_service import KeyringService
from app.chat.composer import PromptService
from app.chat.service import ChatService
from app.clients.embedding import CachedEmbedder, open_embedding_model
from app.clock import Clock, utc_now
from app.database.embedded import EmbeddedPostgres, start_embedded
from app.database.engine import Database
from app.database.migrations import MigrationOptions, migrate, newest_revision
from app.database.preflight import check_database, normalise_url
from app.dialogues import embedding_store
from app.dialogues.embedding import EmbeddingPipeline
from app.dialogues.reembedding import Reembedding
from app.dialogues.service import DialogueService
from app.dialogues.tokens import load_tokenizer
from app.errors import DatabaseSetupError
from app.evaluation.worker import EvaluationWorker
from app.forgetting.correcting import CorrectionService
from app.forgetting.erasure import ErasureService
from app.forgetting.retrievals import RetrievalRecorder
from app.forgetting.sweep import SweepService
from app.health import HealthService
from app.models import open_models
from app.recall.calibration_service import CalibrationService
from app.recall.service import DecayRule, RecallService
from app.settings import DatabaseSettings, EmbeddingSettings, Settings
from app.telemetry import Metrics, get_logger, hide_secrets
from app.tiers.service import SessionService
from app.tiers.summary_service import SummaryService

log = get_logger(__name__)

DATABASE_NAME = "temporal_memory"
_DATABASE_PATIENCE_S = 60.0
_REVIVE_EVERY_S = 2.0
_OFFLINE_DIMENSIONS = 384


@dataclass(frozen=True)
class Services:
    """Everything that routes, commands and the Python class call."""

    settings: Settings
    clock: Clock
    metrics: Metrics
    dialogues: DialogueService
    sessions: SessionService
    summaries: SummaryService
    embedder: CachedEmbedder
    recall: RecallService
    prompts: PromptService
    chat: ChatService
    evaluation: EvaluationWorker
    corrections: CorrectionService
    erasure: ErasureService
    retrievals: RetrievalRecorder
    sweep: SweepService
    keyring: KeyringService
    access: AdministrationService
    health: HealthService


@asynccontextmanager
async def open_services(
    settings: Settings, *, clock: Clock = utc_now, background: bool = True
) -> AsyncIterator[Services]:
    """Open the database (embedded where none is set), migrate it, load the model, start the loops.

    Args:
        settings: of this process.
        clock: what time it is.
        background: run the loops (embedding, windows); a command that only reads does not need them.

    Raises:
        StartupError: something cannot be opened; its text is one line that says what to do.
    """
    hide_secrets(settings.secrets())
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(open_database_url(settings.database))
        await migrate(_options(settings, url))
        loading = asyncio.create_task(asyncio.to_thread(load_tokenizer))
        database = Database(
            url,
            pool_size=settings.database.pool_size,
            transaction_pooler=settings.database.transaction_pooler,
            metrics=metrics,
        )
        stack.push_async_callback(database.aclose)
        embedder = await open_embedder(settings.embedding, metrics)
        stack.push_async_callback(embedder.aclose)
        workers = _embedding_workers(settings.embedding)
        await Reembedding(url=url, database=database, embedder=embedder, workers=workers).take_over()
        model_id, other_models = await _settle_model(database, embedder)
        pipeline = EmbeddingPipeline(
            database=database,
            embedder=embedder,
            model_id=model_id,
            workers=workers,
        )
        sessions = SessionService(
            database=database, hot_window_tokens=settings.tiers.hot_window_tokens, clock=clock
        )
        models = await stack.enter_async_context(open_models(settings, metrics))
        summaries = SummaryService(
            database=database,
            model=models.summary,
            pipeline=pipeline,
            clock=clock,
            metrics=metrics,
            zone=settings.recall.zone,
            hot_window_tokens=settings.tiers.hot_window_tokens,
            max_chars=settings.tiers.summary_max_chars,
        )
        retrievals = RetrievalRecorder(database=database, clock=clock)
        stack.push_async_callback(retrievals.flush)
        calibrations = CalibrationService(database=database, embedder=embedder, model_id=model_id)
        stack.push_async_callback(calibrations.aclose)
        recall = RecallService(
            database=database,
            embedder=embedder,
            pipeline=pipeline,
            calibrations=calibrations,
            reranker=models.reranker,
            model_id=model_id,
            other_models=bool(other_models),
            decay_rule=DecayRule(
                grace_days=settings.recall.decay_grace_days,
                horizon_days=settings.recall.decay_horizon_days,
                floor=settings.recall.decay_floor,
            ),
            clock=clock,
            metrics=metrics,
            note_retrieved=retrievals.note,
        )
        prompts = PromptService(
            recall=recall, sessions=sessions, summaries=summaries, memory_enabled=settings.recall.enabled
        )
        evaluation = EvaluationWorker(
            database=database,
            evaluator=models.evaluator,
            pipeline=pipeline,
            clock=clock,
            metrics=metrics,
            concurrency=settings.evaluation.concurrency,
            batch_size=settings.evaluation.batch_size,
        )
        chat = ChatService(
            database=database,
            prompts=prompts,
            model=models.chat,
            evaluation=evaluation,
            summaries=summaries,
            clock=clock,
            timeout_s=settings.chat.timeout_s,
            scrub=settings.record.scrub,
        )
        stack.push_async_callback(chat.aclose)
        keyring = KeyringService(database=database, clock=clock)
        stack.push_async_callback(keyring.flush)
        corrections = CorrectionService(database=database, clock=clock)
        sweep = SweepService(
            database=database,
            clock=clock,
            metrics=metrics,
            at=settings.forgetting.at,
            zone=settings.recall.zone,
            unretrieved_days=settings.forgetting.unretrieved_days,
        )
        await loading
        services = Services(
            settings=settings,
            clock=clock,
            metrics=metrics,
            dialogues=DialogueService(
                database=database, embedding=pipeline, clock=clock, scrub=settings.record.scrub
            ),
            sessions=sessions,
            summaries=summaries,
            embedder=embedder,
            recall=recall,
            prompts=prompts,
            chat=chat,
            evaluation=evaluation,
            corrections=corrections,
            erasure=ErasureService(database=database, summaries=summaries),
            retrievals=retrievals,
            sweep=sweep,
            keyring=keyring,
            access=AdministrationService(database=database, clock=clock),
            health=HealthService(
                database=database,
                pipeline=pipeline,
                evaluation=evaluation,
                sweep=sweep,
                metrics=metrics,
                revision=newest_revision(),
                embedding_model=embedder.name,
                other_models=other_models,
                data_dir=settings.database.data_dir if settings.database.url is None else None,
            ),
        )
        if background:
            await stack.enter_async_context(
                _running(
                    pipeline.run(),
                    summaries.run(),
                    evaluation.run(),
                    retrievals.run(),
                    corrections.run(),
                    sweep.run(),
                    keyring.run(),
                )
            )
        yield services


@asynccontextmanager
async def open_administration(settings: Settings) -> AsyncIterator[AdministrationService]:
    """Open what `temporal-memory keys` and `audit` work with; no model is loaded.

    Raises:
        StartupError: the database cannot be opened; its text is one line that says what to do.
    """
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(open_database_url(settings.database))
        await migrate(_options(settings, url))
        database = Database(url, pool_size=1, transaction_pooler=settings.database.transaction_pooler)
        stack.push_async_callback(database.aclose)
        yield AdministrationService(database=database, clock=utc_now)


@asynccontextmanager
async def open_reembedding(settings: Settings) -> AsyncIterator[Reembedding]:
    """Open what `temporal-memory reembed` works with, whatever model's vectors the database holds.

    Raises:
        StartupError: something cannot be opened; its text is one line that says what to do.
    """
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(open_database_url(settings.database))
        await migrate(_options(settings, url))
        database = Database(
            url,
            pool_size=settings.database.pool_size,
            transaction_pooler=settings.database.transaction_pooler,
        )
        stack.push_async_callback(database.aclose)
        embedder = await open_embedder(settings.embedding, Metrics())
        stack.push_async_callback(embedder.aclose)
        yield Reembedding(
            url=url, database=database, embedder=embedder, workers=_embedding_workers(settings.embedding)
        )


async def migrate_database(settings: Settings) -> str:
    """Bring the database that is set to the schema of this version; the revision it is at then.

    Raises:
        StartupError: it cannot be opened, or cannot be used as it is.
    """
    async with open_database_url(settings.database) as url:
        await migrate(_options(settings, url))
    return newest_revision()


@asynccontextmanager
async def open_database_url(settings: DatabaseSettings) -> AsyncIterator[str]:
    """The URL of a database that is up and fit; an embedded one runs while this is open."""
    if settings.url is not None:
        url = settings.url.get_secret_value()
        facts = await check_database(url, wait_s=_DATABASE_PATIENCE_S)
        log.info("database", server=facts.server_version, pgvector=facts.vector_version)
        yield normalise_url(url)
        return
    server = await asyncio.to_thread(start_embedded, settings.data_dir)
    try:
        async with _running(_keep_up(server)):
            yield server.url_for(DATABASE_NAME)
    finally:
        await asyncio.to_thread(server.close)


async def _keep_up(server: EmbeddedPostgres) -> None:
    """Nobody else starts the embedded server again when it was killed."""
    told: str | None = None
    while True:
        await asyncio.sleep(_REVIVE_EVERY_S)
        try:
            await asyncio.to_thread(server.revive)
            told = None
        except Exception as error:
            # A full disk or a folder that is gone may be mended: it is tried again, and told once.
            if str(error) != told:
                log.exception("the embedded PostgreSQL does not come up again", reason=str(error))
            told = str(error)


async def open_embedder(settings: EmbeddingSettings, metrics: Metrics) -> CachedEmbedder:
    """The embedding model that is set, loaded, behind its cache."""
    model = open_embedding_model(
        base_url=settings.base_url,
        api_key=settings.api_key.get_secret_value() if settings.api_key else None,
        model=settings.model,
        dimensions=settings.dimensions,
        batch_size=settings.batch_size,
        timeout_s=settings.timeout_s,
        metrics=metrics,
    )
    embedder = CachedEmbedder(
        model, cache_size=settings.cache_size, concurrency=settings.concurrency, metrics=metrics
    )
    await embedder.load()
    return embedder


def _embedding_workers(settings: EmbeddingSettings) -> int:
    return 1 if settings.offline else settings.concurrency


async def migrate_url(settings: Settings, url: str) -> None:
    """Bring a database that is open to the schema of this version.

    Raises:
        DatabaseSetupError: a later version of the service has been there.
    """
    await migrate(_options(settings, url))


def migration_options(settings: Settings) -> MigrationOptions:
    """What `alembic` on the command line needs; the database must have a URL, since nothing is started."""
    if settings.database.url is None:
        raise DatabaseSetupError(
            "Set DATABASE_URL, or use temporal-memory migrate, which starts the embedded one."
        )
    return _options(settings, normalise_url(settings.database.url.get_secret_value()))


def _options(settings: Settings, url: str) -> MigrationOptions:
    return MigrationOptions(
        url=url,
        dimensions=_OFFLINE_DIMENSIONS if settings.embedding.offline else settings.embedding.dimensions,
        zone=settings.recall.zone.key,
    )


async def _settle_model(database: Database, embedder: CachedEmbedder) -> tuple[int, dict[str, int]]:
    """The model's number, and how many vectors other models made.

    Raises:
        DatabaseSetupError: the vector column has another width.
    """
    async with database.read() as reading:
        width = await embedding_store.read_column_dimensions(reading)
    if width != embedder.dimensions:
        raise DatabaseSetupError(
            f"The database holds vectors of {width} dimensions, {embedder.name} makes {embedder.dimensions}:"
            " run temporal-memory reembed once with these settings, or go back to the model that was set."
        )
    async with database.transaction() as writing:
        model_id = await embedding_store.register_model(
            writing, name=embedder.name, dimensions=embedder.dimensions
        )
        if await embedding_store.read_live_model(writing) != model_id:
            await embedding_store.set_live_model(writing, model_id)
    async with database.read() as reading:
        others = await embedding_store.count_other_models(reading, model_id)
    for name, vectors in others.items():
        log.warning(
            "vectors of another model are found by words only: run temporal-memory reembed",
            other_model=name,
            model=embedder.name,
            vectors=vectors,
        )
    return model_id, others


@asynccontextmanager
async def _running(*loops: Coroutine[object, object, None]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(loop) for loop in loops]
    for task in tasks:
        task.add_done_callback(_tell_end)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _tell_end(task: asyncio.Task[None]) -> None:
    """A loop ends by being cancelled only; work that stands still must not go unseen."""
    if not task.cancelled():
        log.critical("background loop ended", loop=str(task.get_coro()), exc_info=task.exception())
