"""Settings: environment, then `.env`, then the JSON file named by `CONFIG_FILE`; frozen, typed, in sections.

The names are the HTTP contract's section 6. Whatever is wrong becomes one line that names the setting
and never shows its value: it may be a secret.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import time
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import unquote, urlsplit
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from app.errors import SettingsError
from app.settings_file import read_config_file
from app.settings_values import (
    ApiKey,
    read_keys,
    read_origins,
    read_rate,
    read_time_of_day,
    read_url,
    read_zone,
)

_MAX_TOKENS = 131_072

Language = Literal["zh", "en"]
ScrubMode = Literal["off", "mask", "refuse"]

_Zone = Annotated[str, AfterValidator(read_zone)]
_Url = Annotated[str, AfterValidator(read_url)]
_Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]


class _ConfigFileSource(PydanticBaseSettingsSource):
    """The JSON file named by CONFIG_FILE, flat or in the structure of the specification's section 7.6."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:  # noqa: ARG002 - abstract
        raise AssertionError("the file is read whole, by __call__")

    def __call__(self) -> dict[str, Any]:
        path = self.current_state.get("config_file")
        return read_config_file(Path(path), _Variables.model_fields.keys()) if path else {}


class _Variables(BaseSettings):
    """Every setting, flat, as it is named outside."""

    model_config = SettingsConfigDict(
        env_file=".env", env_file_encoding="utf-8", extra="ignore", frozen=True, env_ignore_empty=True
    )

    config_file: Path | None = None
    database_url: SecretStr | None = None
    database_transaction_pooler: bool = False
    database_pool_size: int = Field(default=10, ge=1, le=200)
    data_dir: Path = Path("data")
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    api_keys: Annotated[tuple[ApiKey, ...], NoDecode, BeforeValidator(read_keys)] = ()
    allow_anonymous: bool = False
    rate_limit: Annotated[tuple[int, int] | None, NoDecode, BeforeValidator(read_rate)] = None
    scrub: ScrubMode = "off"
    cors_origins: Annotated[tuple[str, ...], NoDecode, BeforeValidator(read_origins)] = ()
    timezone: _Zone = "Asia/Shanghai"
    prompt_language: Language = "zh"
    ids_as_strings: bool = False
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["auto", "json", "console"] = "auto"

    top_n: int = Field(default=3, ge=0, le=100)
    window_size: int = Field(default=2, ge=0, le=10)
    max_memory_tokens: int = Field(default=1000, ge=0, le=_MAX_TOKENS)
    rag_enabled: bool = True
    decay_grace_days: float = Field(default=7, ge=0, allow_inf_nan=False)
    decay_horizon_days: float = Field(default=90, gt=0, allow_inf_nan=False)
    decay_floor: float = Field(default=0.985, ge=0, le=1)

    embedding_base_url: _Url | None = None
    embedding_api_key: SecretStr | None = None
    embedding_model: str = Field(default="Qwen/Qwen3-Embedding-0.6B", min_length=1)
    embedding_dimensions: int = Field(default=1024, ge=8, le=4096)
    embedding_batch_size: int = Field(default=32, ge=1, le=2048)
    embedding_timeout_s: _Seconds = 30
    embedding_cache_size: int = Field(default=10_000, ge=0)
    embedding_concurrency: int = Field(default=4, ge=1, le=64)

    rerank_model: str | None = None
    rerank_base_url: _Url | None = None
    rerank_api_key: SecretStr | None = None
    rerank_timeout_s: _Seconds = 2

    chat_base_url: _Url | None = None
    chat_api_key: SecretStr | None = None
    chat_model: str | None = None
    chat_timeout_s: _Seconds = 60
    evaluation_enabled: bool = True
    evaluation_base_url: _Url | None = None
    evaluation_api_key: SecretStr | None = None
    evaluation_model: str = "Qwen/Qwen3-VL-8B-Instruct"
    evaluation_prompt: str | None = None
    evaluation_timeout_s: _Seconds = 30
    evaluation_concurrency: int = Field(default=4, ge=1, le=64)
    evaluation_batch_size: int = Field(default=8, ge=1, le=50)
    hot_window_tokens: int = Field(default=2000, ge=0, le=_MAX_TOKENS)
    summary_model: str | None = None
    summary_max_chars: int = Field(default=200, ge=20, le=2000)
    forget_unretrieved_days: int = Field(default=90, ge=0)
    forget_at: Annotated[time, BeforeValidator(read_time_of_day)] = time(3, 30)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - part of the signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, dotenv_settings, _ConfigFileSource(settings_cls)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.decay_horizon_days < self.decay_grace_days:
            raise ValueError("DECAY_HORIZON_DAYS must not be less than DECAY_GRACE_DAYS")
        services = (
            self.rerank_base_url,
            self.rerank_api_key,
            self.embedding_base_url,
            self.embedding_api_key,
        )
        if self.rerank_model and not any(services):
            raise ValueError(
                "RERANK_MODEL needs a service: RERANK_API_KEY or RERANK_BASE_URL, or EMBEDDING_…"
            )
        return self


@dataclass(frozen=True)
class ServerSettings:
    """`rate_limit`: (requests, seconds) for each key; None: no limit."""

    host: str
    port: int
    api_keys: tuple[ApiKey, ...]
    allow_anonymous: bool
    rate_limit: tuple[int, int] | None
    cors_origins: tuple[str, ...]
    ids_as_strings: bool


@dataclass(frozen=True)
class DatabaseSettings:
    """`url` None: an embedded PostgreSQL under `data_dir`."""

    url: SecretStr | None
    data_dir: Path
    transaction_pooler: bool
    pool_size: int


@dataclass(frozen=True)
class EmbeddingSettings:
    """Neither `base_url` nor `api_key`: the bundled offline model, with its own width."""

    base_url: str | None
    api_key: SecretStr | None
    model: str
    dimensions: int
    batch_size: int
    timeout_s: float
    cache_size: int
    concurrency: int

    @property
    def offline(self) -> bool:
        return self.base_url is None and self.api_key is None


@dataclass(frozen=True)
class RerankSettings:
    """`model` None: no reranker. Neither `base_url` nor `api_key`: those of embedding."""

    model: str | None
    base_url: str | None
    api_key: SecretStr | None
    timeout_s: float


@dataclass(frozen=True)
class RecordSettings:
    """`scrub`: what is done with secrets and personal data in what is written."""

    scrub: ScrubMode


@dataclass(frozen=True)
class RecallSettings:
    zone: ZoneInfo
    language: Language
    top_n: int
    window_size: int
    max_memory_tokens: int
    enabled: bool
    decay_grace_days: float
    decay_horizon_days: float
    decay_floor: float


@dataclass(frozen=True)
class ChatSettings:
    base_url: str | None
    api_key: SecretStr | None
    model: str | None
    timeout_s: float


@dataclass(frozen=True)
class EvaluationSettings:
    enabled: bool
    base_url: str | None
    api_key: SecretStr | None
    model: str
    is_model_given: bool
    prompt: str | None
    timeout_s: float
    concurrency: int
    batch_size: int


@dataclass(frozen=True)
class TierSettings:
    hot_window_tokens: int
    summary_model: str | None
    summary_max_chars: int


@dataclass(frozen=True)
class ForgettingSettings:
    unretrieved_days: int
    at: time


@dataclass(frozen=True)
class LogSettings:
    level: str
    json_lines: bool | None


@dataclass(frozen=True)
class Settings:
    server: ServerSettings
    database: DatabaseSettings
    embedding: EmbeddingSettings
    rerank: RerankSettings
    record: RecordSettings
    recall: RecallSettings
    chat: ChatSettings
    evaluation: EvaluationSettings
    tiers: TierSettings
    forgetting: ForgettingSettings
    log: LogSettings

    def secrets(self) -> list[str]:
        """Every secret among them: keys of callers and of providers, the database's password."""
        found = [one for one in _secrets_in(self) if "://" not in one]
        url = self.database.url
        password = urlsplit(url.get_secret_value()).password if url else None
        return found + ([unquote(password)] if password else [])


def _secrets_in(value: object) -> Iterator[str]:
    """Every secret in a section, or below it."""
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, tuple):
        for item in value:
            yield from _secrets_in(item)
    elif is_dataclass(value):
        for one in fields(value):
            yield from _secrets_in(getattr(value, one.name))


def is_loopback(host: str) -> bool:
    """Whether what listens on this host is reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def load_settings(overrides: Mapping[str, object] | None = None) -> Settings:
    """Read the settings of this process.

    Args:
        overrides: settings by lower-case name that win over the environment (command-line options).

    Raises:
        SettingsError: one line that names what is wrong.
    """
    try:
        return _in_sections(_Variables(**(overrides or {})))  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        name = ".".join(str(part) for part in first["loc"]).upper()
        message = first["msg"].removeprefix("Value error, ")
        raise SettingsError(
            f"Wrong setting: {name} {message}" if name else f"Wrong setting: {message}"
        ) from None


def _in_sections(flat: _Variables) -> Settings:
    return Settings(
        server=ServerSettings(
            host=flat.host,
            port=flat.port,
            api_keys=flat.api_keys,
            allow_anonymous=flat.allow_anonymous,
            rate_limit=flat.rate_limit,
            cors_origins=flat.cors_origins,
            ids_as_strings=flat.ids_as_strings,
        ),
        database=DatabaseSettings(
            url=flat.database_url,
            data_dir=flat.data_dir,
            transaction_pooler=flat.database_transaction_pooler,
            pool_size=flat.database_pool_size,
        ),
        embedding=EmbeddingSettings(
            base_url=flat.embedding_base_url,
            api_key=flat.embedding_api_key,
            model=flat.embedding_model,
            dimensions=flat.embedding_dimensions,
            batch_size=flat.embedding_batch_size,
            timeout_s=flat.embedding_timeout_s,
            cache_size=flat.embedding_cache_size,
            concurrency=flat.embedding_concurrency,
        ),
        rerank=RerankSettings(
            flat.rerank_model, flat.rerank_base_url, flat.rerank_api_key, flat.rerank_timeout_s
        ),
        record=RecordSettings(flat.scrub),
        recall=RecallSettings(
            zone=ZoneInfo(flat.timezone),
            language=flat.prompt_language,
            top_n=flat.top_n,
            window_size=flat.window_size,
            max_memory_tokens=flat.max_memory_tokens,
            enabled=flat.rag_enabled,
            decay_grace_days=flat.decay_grace_days,
            decay_horizon_days=flat.decay_horizon_days,
            decay_floor=flat.decay_floor,
        ),
        chat=ChatSettings(flat.chat_base_url, flat.chat_api_key, flat.chat_model, flat.chat_timeout_s),
        evaluation=EvaluationSettings(
            enabled=flat.evaluation_enabled,
            base_url=flat.evaluation_base_url,
            api_key=flat.evaluation_api_key,
            model=flat.evaluation_model,
            is_model_given="evaluation_model" in flat.model_fields_set,
            prompt=flat.evaluation_prompt,
            timeout_s=flat.evaluation_timeout_s,
            concurrency=flat.evaluation_concurrency,
            batch_size=flat.evaluation_batch_size,
        ),
        tiers=TierSettings(flat.hot_window_tokens, flat.summary_model, flat.summary_max_chars),
        forgetting=ForgettingSettings(flat.forget_unretrieved_days, flat.forget_at),
        log=LogSettings(flat.log_level, {"auto": None, "json": True, "console": False}[flat.log_format]),
    )
