"""What routes are handed: the services, the caller's namespace, and the few settings that shape the wire."""

from dataclasses import dataclass, field
from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import Depends, Request

from app.access.callers import Actor, Caller
from app.access.rate_limit import RateLimit
from app.recall.records import Language
from app.services import Services


@dataclass(frozen=True)
class ApiOptions:
    """Settings that shape requests and replies.

    `keys` holds (namespace, key), those of the setting. `rate_limit` None: everybody may ask as often as they
    like. `cors_origins`: whose web pages may read answers. `zone` reads times without offset and writes all
    of them.
    """

    keys: tuple[tuple[str, str], ...] = ()
    allow_anonymous: bool = False
    rate_limit: RateLimit | None = None
    cors_origins: tuple[str, ...] = ()
    ids_as_strings: bool = False
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("Asia/Shanghai"))
    language: Language = "zh"
    top_n: int = 3
    window_size: int = 2
    max_memory_tokens: int = 1000


async def get_services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def get_options(request: Request) -> ApiOptions:
    options: ApiOptions = request.app.state.options
    return options


async def get_caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


async def get_namespace(request: Request) -> str:
    namespace = (await get_caller(request)).namespace
    if namespace is None:
        raise AssertionError("a route that is open to admins has to ask for the caller, not the namespace")
    return namespace


async def get_actor(request: Request) -> Actor:
    return Actor((await get_caller(request)).name, request.state.request_id)


Injected = Annotated[Services, Depends(get_services)]
Options = Annotated[ApiOptions, Depends(get_options)]
Identified = Annotated[Caller, Depends(get_caller)]
Namespace = Annotated[str, Depends(get_namespace)]
Deeds = Annotated[Actor, Depends(get_actor)]
