"""The HTTP application, without the services that its routes call: those are opened by its lifespan."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import Any, Protocol

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware

from app.access.rate_limit import RateLimiter
from app.api import chat, dialogues, health, maintenance, memory, pages, sessions, stats
from app.api.auth import Authenticator
from app.api.bodies import KeyedRoute
from app.api.context import ApiOptions
from app.api.fields import INT64_MAX
from app.api.middleware import BodyLimitMiddleware, RequestContextMiddleware
from app.api.problems import FieldProblem, Problem, install_problem_handlers

_DESCRIPTION = """\
Persistent, time-aware conversation memory for LLM chat bots.

Ids are 64-bit: send them as numbers or as strings of digits. Times are ISO 8601, or Unix seconds or
milliseconds; a time without offset is read in the service's zone. Every error is `application/problem+json`,
and its `type` is an address of this service that explains it. Unknown body fields are refused.
`X-Request-ID` is taken, or made, and returned.

Without API keys configured, a service on a loopback address needs no key.
"""

_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}

ROUTERS: tuple[APIRouter, ...] = (
    dialogues.router,
    memory.router,
    chat.router,
    sessions.router,
    maintenance.router,
    stats.router,
    health.router,
    pages.router,
)


class Lifespan(Protocol):
    def __call__(self, app: FastAPI, /) -> AbstractAsyncContextManager[None]: ...


def build_api(
    options: ApiOptions, *, lifespan: Lifespan | None = None, routers: Sequence[APIRouter] = ROUTERS
) -> FastAPI:
    """The application; its lifespan has to set `app.state.services`."""
    app = FastAPI(
        title="Temporal Memory",
        description=_DESCRIPTION,
        version=version("temporal-memory"),
        lifespan=lifespan,
        openapi_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.options = options
    app.state.authenticator = Authenticator(keys=options.keys, allow_anonymous=options.allow_anonymous)
    app.state.limiter = RateLimiter(options.rate_limit) if options.rate_limit else None
    app.state.routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    for router in routers:
        app.include_router(router)
    install_problem_handlers(app)
    # The last one added stands outermost: what the limit refuses is logged and counted, too.
    app.add_middleware(BodyLimitMiddleware)
    if options.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=options.cors_origins,
            allow_methods=["GET", "POST", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "X-Request-ID"],
            expose_headers=["X-Request-ID", "Retry-After", "RateLimit", "RateLimit-Policy"],
        )
    app.add_middleware(RequestContextMiddleware)
    app.openapi = lambda: _describe(app)  # type: ignore[method-assign]
    return app


def _with_whole_bounds(node: Any) -> Any:
    """The document with whole bounds as integers; the framework makes floats, and so 2**63 of 2**63 - 1."""
    if isinstance(node, dict):
        return {
            key: min(int(value), INT64_MAX)
            if key in _BOUNDS and isinstance(value, float) and value.is_integer()
            else _with_whole_bounds(value)
            for key, value in node.items()
        }
    return [_with_whole_bounds(item) for item in node] if isinstance(node, list) else node


def _describe(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        components = document.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        for model in (Problem, FieldProblem):
            schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= schema.pop("$defs", {})
            schemas[model.__name__] = schema
        components["securitySchemes"] = {
            "ApiKey": {
                "type": "http",
                "scheme": "bearer",
                "description": "Made by `temporal-memory keys create`, or one of API_KEYS. `x-roles` of a"
                " route says whose keys open it. Not needed where there has never been a key.",
            }
        }
        for route in app.state.routes:
            if isinstance(route, KeyedRoute):
                for method in route.methods or ():
                    operation = document["paths"][route.path][method.lower()]
                    operation["security"] = [{"ApiKey": []}, {}]
                    operation["x-roles"] = list(route.roles)
        # Nothing refers to the framework's own shapes of errors any more.
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        app.openapi_schema = _with_whole_bounds(document)
    return app.openapi_schema
