"""What routes are handed: the services, the caller's namespace, and the few settings that shape the wire."""

from dataclasses import dataclass, field
from typing import Annotated
from zoneinfo import ZoneInfo

from fastapi import Depends, Request

from app.recall.records import Language
from app.services import Services


@dataclass(frozen=True)
class ApiOptions:
    """Settings that shape requests and replies.

    `keys` holds (namespace, key). `zone` reads times without offset and writes all of them.
    """

    keys: tuple[tuple[str, str], ...] = ()
    allow_anonymous: bool = False
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


async def get_namespace(request: Request) -> str:
    namespace: str = request.state.namespace
    return namespace


Injected = Annotated[Services, Depends(get_services)]
Options = Annotated[ApiOptions, Depends(get_options)]
Namespace = Annotated[str, Depends(get_namespace)]
