"""Metrics and structured logs.

Each app has a registry of its own, so that two apps in one process (tests, the Python class) never share
numbers. No label ever holds a user, group, session or namespace.
"""

import logging
import platform
import re
import sys
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import quote

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.values import ValueClass

_FAST_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# A model that chats takes longer than one that embeds.
_SLOW_BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)
# Most gauges tell of the database, which is one; whoever looked last knows best.
_OF_ALL: Final = "mostrecent"
# Some tell of one process: what all that live have is added up.
_OF_EACH: Final = "livesum"
# A series that begins with its first event hides that event from rate(): what can happen begins at 0.
_CALL_OUTCOMES: Final = ("ok", "timeout", "busy", "denied", "rejected", "failed")
_MODEL_USES: Final = ("chat", "evaluation", "summary")
_EVALUATION_OUTCOMES: Final = ("scored", "failed", "filtered", "cached")
_RETENTIONS: Final = ("none", "one_day", "one_week", "one_month", "forever", "unscored")
_SECRET = re.compile(r"(?i)(bearer\s+|://[^:/@\s]*:|\bsk-|\btm_[a-z0-9]{8}_)[^\s@'\",}]+")
# What is shorter may stand in any text without being meant.
_SHORTEST_KNOWN: Final = 8


class Metrics:
    """The metrics of one app, named as the HTTP contract's section 7 names them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)
        self.http_requests = Counter(
            "http_requests_total", "Requests answered.", ("method", "route", "status"), registry=self.registry
        )
        self.http_request_duration = Histogram(
            "http_request_duration_seconds",
            "Time from the first byte to the end of the answer.",
            ("method", "route"),
            buckets=_FAST_BUCKETS_S,
            registry=self.registry,
        )
        self.embedding_requests = Counter(
            "memory_embedding_requests_total",
            f"Calls to the embedding model, by outcome: {', '.join(_CALL_OUTCOMES)}.",
            ("outcome",),
            registry=self.registry,
        )
        self.embedding_duration = Histogram(
            "memory_embedding_duration_seconds",
            "One call to the embedding model.",
            buckets=_FAST_BUCKETS_S,
            registry=self.registry,
        )
        self.embedding_cache_hits = Counter(
            "memory_embedding_cache_hits_total", "Texts whose vector was cached.", registry=self.registry
        )
        self.embedding_cache_misses = Counter(
            "memory_embedding_cache_misses_total", "Texts that had to be embedded.", registry=self.registry
        )
        self.embeddings_pending = Gauge(
            "memory_embeddings_pending",
            "Messages that wait for their vector.",
            multiprocess_mode=_OF_ALL,
            registry=self.registry,
        )
        self.embeddings_failed = Gauge(
            "memory_embeddings_failed",
            "Messages that can not be embedded.",
            multiprocess_mode=_OF_ALL,
            registry=self.registry,
        )
        self.embedding_lag = Gauge(
            "memory_embedding_lag_seconds",
            "Age of the oldest pending message.",
            multiprocess_mode=_OF_ALL,
            registry=self.registry,
        )
        self.renewal_messages = Gauge(
            "memory_renewal_messages",
            "Messages there were when copying them for another embedding model began; 0: none are copied.",
            multiprocess_mode=_OF_ALL,
            registry=self.registry,
        )
        self.renewal_left = Gauge(
            "memory_renewal_left",
            "Messages that are still to be copied for another embedding model.",
            multiprocess_mode=_OF_ALL,
            registry=self.registry,
        )
        self.search_duration = Histogram(
            "memory_search_duration_seconds",
            "One search, embedding of the query included.",
            buckets=_FAST_BUCKETS_S,
            registry=self.registry,
        )
        self.searches_degraded = Counter(
            "memory_searches_degraded_total",
            "Searches by words alone, because the embedding model gave no vector.",
            registry=self.registry,
        )
        self.rerank_requests = Counter(
            "memory_rerank_requests_total",
            f"Calls to the rerank model, by outcome: {', '.join(_CALL_OUTCOMES)}.",
            ("outcome",),
            registry=self.registry,
        )
        self.rerank_duration = Histogram(
            "memory_rerank_duration_seconds",
            "One call to the rerank model.",
            buckets=_FAST_BUCKETS_S,
            registry=self.registry,
        )
        self.evaluations = Counter(
            "memory_evaluations_total",
            f"Turns judged, by how: {', '.join(_EVALUATION_OUTCOMES)}.",
            ("outcome",),
            registry=self.registry,
        )
        self.evaluation_score = Histogram(
            "memory_evaluation_score",
            "Scores of turns.",
            buckets=(20, 40, 70, 90, 100),
            registry=self.registry,
        )
        self.evaluation_lag = Gauge(
            "memory_evaluation_lag_seconds",
            "Age of the oldest turn without a score.",
            multiprocess_mode=_OF_ALL,
            registry=self.registry,
        )
        self.turns_pending = Gauge(
            "memory_turns_pending",
            "Answered turns that wait for their score.",
            multiprocess_mode=_OF_ALL,
            registry=self.registry,
        )
        self.turns = Counter(
            "memory_turns_total",
            f"Turns judged, by retention: {', '.join(_RETENTIONS)}.",
            ("retention",),
            registry=self.registry,
        )
        self.summaries = Counter(
            "memory_summaries_total",
            "Stretches of the window compressed, by outcome: stored, failed.",
            ("outcome",),
            registry=self.registry,
        )
        self.forgotten = Counter(
            "memory_forgotten_total",
            "Messages deleted, by reason: expired, unretrieved.",
            ("reason",),
            registry=self.registry,
        )
        self.last_sweep = Gauge(
            "memory_last_sweep_timestamp_seconds",
            "When the last daily sweep was finished; 0: there was none yet.",
            multiprocess_mode=_OF_ALL,
            registry=self.registry,
        )
        self.model_requests = Counter(
            "memory_model_requests_total",
            f"Calls to models that write, by use: {', '.join(_MODEL_USES)}; and outcome, as of embedding.",
            ("use", "outcome"),
            registry=self.registry,
        )
        self.model_duration = Histogram(
            "memory_model_request_duration_seconds",
            "One call to a model that writes, to the end of its answer.",
            ("use",),
            buckets=_SLOW_BUCKETS_S,
            registry=self.registry,
        )
        self.database_up = Gauge(
            "memory_database_up",
            "Whether the database answered when it was asked last.",
            multiprocess_mode=_OF_ALL,
            registry=self.registry,
        )
        self.pool_size = Gauge(
            "memory_database_pool_size",
            "Connections that may be open at once, by pool: reading, writing.",
            ("pool",),
            multiprocess_mode=_OF_EACH,
            registry=self.registry,
        )
        self.pool_in_use = Gauge(
            "memory_database_pool_in_use",
            "Connections that somebody works with now.",
            ("pool",),
            multiprocess_mode=_OF_EACH,
            registry=self.registry,
        )
        self.pool_waiting = Gauge(
            "memory_database_pool_waiting",
            "Those who wait for a connection now.",
            ("pool",),
            multiprocess_mode=_OF_EACH,
            registry=self.registry,
        )
        self.pool_refused = Counter(
            "memory_database_pool_refused_total",
            "Those who waited for a connection in vain, and were told to come back later.",
            ("pool",),
            registry=self.registry,
        )
        self.disk_free = Gauge(
            "memory_disk_free_bytes",
            "Room left where the embedded database lives; no sample with a database of another machine.",
            ("volume",),
            multiprocess_mode=_OF_ALL,
            registry=self.registry,
        )
        self.disk_size = Gauge(
            "memory_disk_size_bytes",
            "Size of the file system where the embedded database lives.",
            ("volume",),
            multiprocess_mode=_OF_ALL,
            registry=self.registry,
        )
        self.build_info = Gauge(
            "memory_build_info",
            "1; its labels say what runs.",
            ("version", "python"),
            multiprocess_mode=_OF_ALL,
            registry=self.registry,
        )
        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        for outcome in _CALL_OUTCOMES:
            self.embedding_requests.labels(outcome)
            self.rerank_requests.labels(outcome)
            for use in _MODEL_USES:
                self.model_requests.labels(use, outcome)
        for outcome in _EVALUATION_OUTCOMES:
            self.evaluations.labels(outcome)
        for retention in _RETENTIONS:
            self.turns.labels(retention)
        for outcome in ("stored", "failed"):
            self.summaries.labels(outcome)
        for reason in ("expired", "unretrieved"):
            self.forgotten.labels(reason)
        self.build_info.labels(version("temporal-memory"), platform.python_version()).set(1)

    def collected(self) -> CollectorRegistry:
        """What is to be shown: these metrics, or where several workers serve, all of theirs together."""
        if not ValueClass._multiprocess:  # noqa: SLF001 - the package tells it in no other way
            return self.registry
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return together


class _KnownSecrets:
    """The secrets of this process, which are masked wherever they stand, whatever they look like."""

    def __init__(self) -> None:
        self._secrets: set[str] = set()
        self._pattern: re.Pattern[str] | None = None

    def add(self, secrets: Iterable[str]) -> None:
        new = {secret for secret in secrets if len(secret) >= _SHORTEST_KNOWN}
        # As URLs write it, too.
        new |= {quote(secret, safe="") for secret in new}
        if new <= self._secrets:
            return
        self._secrets |= new
        # Of two that begin alike, the longer one.
        self._pattern = re.compile("|".join(map(re.escape, sorted(self._secrets, key=len, reverse=True))))

    def mask(self, text: str) -> str:
        return self._pattern.sub("***", text) if self._pattern else text


_KNOWN: Final = _KnownSecrets()


def hide_secrets(secrets: Iterable[str]) -> None:
    """Mask these from now on, in all logs and errors of the process; those of under 8 signs are let be."""
    _KNOWN.add(secrets)


def mask_secrets(text: str) -> str:
    """The text with `***` for known secrets, bearer tokens, `sk-` and `tm_` keys, and URL passwords."""
    return _SECRET.sub(lambda match: match.group(1) + "***", _KNOWN.mask(text))


def mask_value(value: Any) -> Any:
    """The value with its secrets masked, however deep: containers copied, other objects by their repr."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return mask_secrets(value)
    if isinstance(value, dict):
        return {mask_secrets(str(key)): mask_value(of_key) for key, of_key in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [mask_value(item) for item in value]
    return mask_secrets(repr(value))


def _mask_event(_logger: Any, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    # What begins with an underscore is structlog's own, and shown to nobody.
    return {key: value if key.startswith("_") else mask_value(value) for key, value in event.items()}


def configure_logging(*, level: str, json_lines: bool | None = None) -> None:
    """Send every log line of the process, ours and the libraries', through one masking formatter to stderr.

    Args:
        level: DEBUG, INFO, WARNING or ERROR.
        json_lines: one JSON object a line, or lines for people; None: lines for people on a terminal.
    """
    people = sys.stderr.isatty() if json_lines is None else not json_lines
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _mask_event,
    ]
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=people)
        if people
        else structlog.processors.JSONRenderer(ensure_ascii=False)
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    for noisy in ("httpx", "httpcore", "asyncio", "sqlalchemy.engine", "alembic"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers = []
        # The server's own access lines hold whole addresses, user ids included; ours name the route.
        logger.propagate = name != "uvicorn.access"


def log_to_standard_logging() -> None:
    """Hand our log lines to `logging`, as the host program has set it up; its own structlog set-up stays."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            _mask_event,
            structlog.stdlib.render_to_log_kwargs,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A structured logger: `log.info("event", key=value)`."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger
