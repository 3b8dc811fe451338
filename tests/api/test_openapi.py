"""The documents about the HTTP say what the HTTP does."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from jsonschema import Draft202012Validator

from app import errors
from app.api.application import ROUTERS, build_api
from app.api.bodies import KeyedRoute
from app.api.context import ApiOptions
from app.api.openapi import main, render_openapi
from app.api.problem_types import BY_SLUG, PROBLEM_TYPES, render_problem_types

ROOT = Path(__file__).parents[2]
DOCUMENT = build_api(ApiOptions()).openapi()
PLACE = re.compile(r"ur[il]|host|endpoint|address|callback|webhook|proxy|path|file|(^|_)model|api_?key")
OPERATIONS = [
    (f"{method} {path}", operation)
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
]


def leaves(kind: type[errors.TemporalMemoryError]) -> Iterator[type[errors.TemporalMemoryError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from leaves(child)


def test_what_is_written_in_the_repository_is_true() -> None:
    assert (ROOT / "openapi/openapi.json").read_text("utf-8") == render_openapi()
    assert (ROOT / "docs/problems.md").read_text("utf-8") == render_problem_types()
    assert main(["--check", str(ROOT / "openapi/openapi.json")]) == 0


def test_a_check_finds_a_stale_file_and_leaves_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stale = tmp_path / "openapi.json"
    stale.write_text("{}")
    assert main(["--check", str(stale)]) == 1
    assert "make openapi" in capsys.readouterr().err
    assert stale.read_text() == "{}"
    assert main([str(stale)]) == 0
    assert stale.read_text("utf-8") == render_openapi()


def test_the_settings_do_not_change_the_document() -> None:
    other = build_api(ApiOptions(keys=(("a", "b"),), ids_as_strings=True, top_n=9)).openapi()
    assert other == DOCUMENT


def test_every_error_that_a_client_can_meet_is_explained() -> None:
    for kind in leaves(errors.TemporalMemoryError):
        if not issubclass(kind, errors.StartupError | errors.DumpError):
            explained = BY_SLUG[kind.slug]
            assert (explained.status, explained.title) == (kind.status, kind.title)
    assert len(BY_SLUG) == len(PROBLEM_TYPES)


@pytest.mark.parametrize(("name", "operation"), OPERATIONS, ids=[name for name, _ in OPERATIONS])
def test_every_operation_is_described_whole(name: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    assert operation["description"]
    assert "500" in operation["responses"]
    for status, response in operation["responses"].items():
        if int(status) >= 400:
            (media_type,) = response["content"]
            assert media_type == "application/problem+json"
    if "security" in operation:
        assert {"401", "503"} <= operation["responses"].keys()
    if "requestBody" in operation:
        assert {"400", "413", "415", "422"} <= operation["responses"].keys()


def test_only_what_the_contract_says_needs_no_key() -> None:
    open_paths = {
        route.path
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and not isinstance(route, KeyedRoute)
    }
    assert open_paths == {
        "/",
        "/docs",
        "/docs/{name}",
        "/openapi.json",
        "/problems/{slug}",
        "/health/live",
        "/health/ready",
        "/metrics",
    }


def test_no_request_names_a_place_to_call() -> None:
    """What a caller could have the service call would be called with its keys, from within its network."""
    asked: set[str] = set()
    for _, operation in OPERATIONS:
        asked |= {parameter["name"] for parameter in operation.get("parameters", [])}
        for content in operation.get("requestBody", {}).get("content", {}).values():
            asked |= names_within(content["schema"])
    assert {"user_id", "system_prompt", "dialogues", "content", "turn_id"} <= asked
    assert not [name for name in asked if PLACE.search(name)]


def names_within(schema: Any) -> set[str]:
    """Every field that a request can have, at any depth."""
    if isinstance(schema, list):
        return set().union(*map(names_within, schema))
    if not isinstance(schema, dict):
        return set()
    found = set(schema.get("properties", {})) if isinstance(schema.get("properties"), dict) else set()
    if "$ref" in schema:
        found |= names_within(DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    assert schema.get("format") not in {"uri", "url", "hostname", "ipv4", "ipv6"}
    return found.union(*map(names_within, schema.values()))


def test_every_schema_is_a_schema_and_its_examples_fit() -> None:
    for name, schema in DOCUMENT["components"]["schemas"].items():
        whole = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
        Draft202012Validator.check_schema(schema)
        for example in schema.get("examples", []):
            Draft202012Validator(whole).validate(example)
