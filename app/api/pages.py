"""What a person opens in a browser: /, /docs, /problems; no key is needed, and nothing comes from a CDN."""

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request
from fastapi.openapi.docs import get_swagger_ui_html
from pydantic import Field
from starlette.responses import FileResponse, Response

from app.api.problem_types import BY_SLUG
from app.api.wire import Reply, answer_json, problem_entry
from app.errors import NotFoundError

_VERSION: Final = version("temporal-memory")

router = APIRouter(tags=["operation"])

_FILES = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css", "favicon.png": "image/png"}


class ProblemTypeReply(Reply):
    """One kind of problem and what to do about it."""

    type: str = Field(examples=["/problems/invalid-input"])
    status: int
    title: str
    explanation: str


def _find_folder() -> Path:
    # The package's code is of no use to us, so it is found and not imported.
    spec = find_spec("fastapi_offline")
    if spec is None or spec.origin is None:
        raise NotFoundError(
            "The package fastapi-offline, which holds the files of this page, is not installed."
        )
    return Path(spec.origin).parent / "static"


@router.get("/", include_in_schema=False)
async def show_root() -> Response:
    return answer_json(
        {
            "service": "temporal-memory",
            "version": _VERSION,
            "docs": "/docs",
            "openapi": "/openapi.json",
            "health": "/health/ready",
        }
    )


@router.get("/openapi.json", include_in_schema=False)
async def show_openapi(request: Request) -> Response:
    return answer_json(request.app.openapi())


@router.get("/docs", include_in_schema=False)
async def show_docs() -> Response:
    return get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Temporal Memory",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url="docs/favicon.png",
    )


@router.get("/docs/{name}", include_in_schema=False)
async def show_docs_file(name: str) -> Response:
    if name not in _FILES:
        raise NotFoundError("There is no such file.")
    return FileResponse(
        _find_folder() / name, media_type=_FILES[name], headers={"Cache-Control": "public, max-age=86400"}
    )


@router.get("/problems/{slug}", response_model=ProblemTypeReply, responses=problem_entry(404, 422, 500))
async def explain_problem(slug: str) -> Response:
    """What a problem's `type` means, and what to do about it."""
    kind = BY_SLUG.get(slug)
    if kind is None:
        raise NotFoundError("There is no such kind of problem.")
    return answer_json(
        {
            "type": f"/problems/{kind.slug}",
            "status": kind.status,
            "title": kind.title,
            "explanation": kind.explanation,
        }
    )
