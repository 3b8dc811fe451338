"""The ASGI factory: `uvicorn app.main:create_app --factory`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from app.access.rate_limit import RateLimit
from app.api.application import build_api
from app.api.context import ApiOptions
from app.errors import SettingsError
from app.services import Services, open_services
from app.settings import Settings, is_loopback, load_settings
from app.telemetry import configure_logging


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application; starting it opens the services, stopping it closes them.

    Args:
        settings: None: those of the process, whose logs are then set up, too.

    Raises:
        SettingsError: a setting is wrong.
    """
    if settings is None:
        settings = load_settings()
        configure_logging(level=settings.log.level, json_lines=settings.log.json_lines)
    chosen = settings

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_services(chosen) as services:
            await _check_keyed(chosen, services)
            app.state.services = services
            yield

    return build_api(_read_options(settings), lifespan=lifespan)


async def _check_keyed(settings: Settings, services: Services) -> None:
    server = settings.server
    if is_loopback(server.host) or server.allow_anonymous or server.api_keys:
        return
    if not await services.keyring.is_keyed():
        raise SettingsError(
            "Wrong setting: HOST is not a loopback address and there are no keys: make one with"
            " temporal-memory keys create --namespace NAME, or give API_KEYS=namespace=key, or"
            " ALLOW_ANONYMOUS=true if everybody who reaches it may read and write"
        )


def _read_options(settings: Settings) -> ApiOptions:
    return ApiOptions(
        keys=tuple((key.namespace, key.secret.get_secret_value()) for key in settings.server.api_keys),
        allow_anonymous=settings.server.allow_anonymous,
        rate_limit=RateLimit(*settings.server.rate_limit) if settings.server.rate_limit else None,
        cors_origins=settings.server.cors_origins,
        ids_as_strings=settings.server.ids_as_strings,
        zone=settings.recall.zone,
        language=settings.recall.language,
        top_n=settings.recall.top_n,
        window_size=settings.recall.window_size,
        max_memory_tokens=settings.recall.max_memory_tokens,
    )
