"""Metrics and structured logs.

Each app has a registry of its own, so that two apps in one process (tests, the Python class) never share
numbers. No label ever holds a user, group, session or namespace.
"""

import logging
import re
import sys
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.values import ValueClass

_FAST_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# Gauges tell of the database, which is one; whoever looked last knows best.
_OF_ALL: Final = "mostrecent"
_SECRET = re.compile(r"(?i)(bearer\s+|://[^:/@\s]*:|\bsk-)[^\s@'\",}]+")


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
            "Calls to the embedding model, by outcome: ok, timeout, busy, denied, rejected, failed.",
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
        self.search_duration = Histogram(
            "memory_search_duration_seconds",
            "One search, embedding of the query included.",
            buckets=_FAST_BUCKETS_S,
            registry=self.registry,
        )
        self.evaluations = Counter(
            "memory_evaluations_total",
            "Turns judged, by how: scored, failed, filtered, cached.",
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
        self.turns = Counter(
            "memory_turns_total",
            "Turns judged, by retention: none, one_day, one_week, one_month, forever, unscored.",
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
            "memory_forgotten_total", "Messages deleted, by reason.", ("reason",), registry=self.registry
        )

    def collected(self) -> CollectorRegistry:
        """What is to be shown: these metrics, or where several workers serve, all of theirs together."""
        if not ValueClass._multiprocess:  # noqa: SLF001 - the package tells it in no other way
            return self.registry
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return together


def mask_secrets(text: str) -> str:
    """The text with bearer tokens, `sk-` keys and URL passwords replaced by `***`."""
    return _SECRET.sub(lambda match: match.group(1) + "***", text)


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
