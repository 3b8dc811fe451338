"""The container files, read: no Docker is needed here."""

import re
from pathlib import Path
from typing import Any

import yaml

from app.settings import _Variables

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE_TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_TEXT)
SERVICE = COMPOSE["services"]["memory"]
DATABASE = COMPOSE["services"]["database"]
SETTINGS = {name.upper() for name in _Variables.model_fields}


def instructions(keyword: str) -> list[str]:
    return re.findall(rf"^{keyword} (.+)$", DOCKERFILE.replace("\\\n", " "), re.MULTILINE)


def test_secrets_come_from_outside_and_have_no_default() -> None:
    assert SERVICE["environment"]["API_KEYS"].startswith("${API_KEYS:?")
    assert SERVICE["environment"]["PGPASSWORD"].startswith("${POSTGRES_PASSWORD:?")
    assert DATABASE["environment"]["POSTGRES_PASSWORD"].startswith("${POSTGRES_PASSWORD:?")
    for name, default in re.findall(r"\$\{(\w+):-([^}]*)\}", COMPOSE_TEXT):
        assert not default or name == "PORT"
    assert not re.search(r"^(ENV|ARG).*(KEY|PASSWORD|SECRET)", DOCKERFILE, re.MULTILINE)


def test_the_service_is_published_on_loopback_only_and_the_database_nowhere() -> None:
    assert SERVICE["ports"] == ["127.0.0.1:${PORT:-8000}:8000"]
    assert "ports" not in DATABASE


def test_the_service_waits_for_a_healthy_database_whose_data_is_in_a_volume() -> None:
    assert SERVICE["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert "pg_isready" in DATABASE["healthcheck"]["test"]
    volume, _, place = DATABASE["volumes"][0].partition(":")
    assert volume in COMPOSE["volumes"]
    # Where the images up to PostgreSQL 17 keep it; those of 18 keep it elsewhere.
    assert place == "/var/lib/postgresql/data"
    assert DATABASE["image"] == "pgvector/pgvector:pg17"


def test_what_can_be_set_is_passed_on() -> None:
    # What the image, the ports and the database beside it settle is not for the environment to change.
    settled = {"CONFIG_FILE", "DATA_DIR", "HOST", "PORT", "ALLOW_ANONYMOUS", "DATABASE_TRANSACTION_POOLER"}
    assert set(SERVICE["environment"]) - {"PGPASSWORD"} == SETTINGS - settled
    for name in SETTINGS - settled - {"API_KEYS", "DATABASE_URL"}:
        assert SERVICE["environment"][name] == f"${{{name}:-}}"


def test_what_is_set_are_settings() -> None:
    for assignments in instructions("ENV"):
        assert set(re.findall(r"(\w+)=", assignments)) - {"PATH"} <= SETTINGS


def test_the_image_installs_what_is_locked_and_runs_as_nobody_in_particular() -> None:
    assert any("--require-hashes -r requirements.lock" in step for step in instructions("RUN"))
    assert len(instructions("FROM")) == 2
    (user,) = instructions("USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    assert instructions("CMD")[-1] == '["temporal-memory", "serve"]'
    assert instructions("STOPSIGNAL") == ["SIGTERM"]
    assert "/health/live" in instructions("HEALTHCHECK")[0]


def test_what_the_image_copies_is_sent_to_it_and_nothing_else() -> None:
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line[1:] for line in ignore if line.startswith("!")}
    assert "*" in ignore
    copied = {
        name for step in instructions("COPY") if not step.startswith("--from") for name in step.split()[:-1]
    }
    assert copied == sent
    assert all((ROOT / name).exists() for name in sent)
