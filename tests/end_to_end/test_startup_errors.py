"""What keeps the service from starting is one line that says what to do, and exit code 2."""

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.database.embedded import EmbeddedPostgres
from tests.live import fetch
from tests.processes import COMMAND, StartService, environment, run_service

__all__ = ["run_service"]


def start(cwd: Path, *arguments: str, **settings: object) -> str:
    """The one line that a start without success leaves."""
    outcome = subprocess.run(
        [COMMAND, *(arguments or ("serve", "--port", "0"))],
        cwd=cwd,
        env=environment({"log_level": "ERROR"} | settings),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert outcome.returncode == 2, outcome.stderr
    assert outcome.stdout == ""
    lines = outcome.stderr.strip().splitlines()
    assert len(lines) == 1, outcome.stderr
    assert "Traceback" not in lines[0]
    return lines[0]


def make_key(cwd: Path, **settings: object) -> str:
    """A key of a bot, by the command."""
    made = subprocess.run(
        [COMMAND, "keys", "create", "--namespace", "a"],
        cwd=cwd,
        env=environment(settings),
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    )
    return made.stdout.strip()


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_taken_port_is_named(tmp_path: Path, taken_port: int) -> None:
    assert str(taken_port) in start(tmp_path, "serve", "--port", str(taken_port), data_dir=tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_wrong_setting_is_named_and_no_secret_shown(tmp_path: Path) -> None:
    assert "TIMEZONE" in start(tmp_path, timezone="Asia/Nowhere")
    line = start(tmp_path, api_keys="bot=s3cret key")
    assert "API_KEYS" in line
    assert "s3cret" not in line


async def test_a_database_that_can_not_be_used_is_named(
    tmp_path: Path, postgres: EmbeddedPostgres, database_name: str
) -> None:
    nowhere = postgres.dsn_for("there_is_no_such_database")
    assert "there_is_no_such_database" in start(tmp_path, database_url=nowhere)
    dsn = postgres.dsn_for(database_name)
    assert "reembed" in start(
        tmp_path, database_url=dsn, embedding_base_url="http://127.0.0.1:9/v1", embedding_dimensions=64
    )


async def test_a_schema_of_a_later_version_is_left_alone(
    tmp_path: Path, postgres: EmbeddedPostgres, database_name: str
) -> None:
    await fetch(postgres, database_name, "UPDATE alembic_version SET version_num = 'later'")
    line = start(tmp_path, database_url=postgres.dsn_for(database_name))
    assert "later" in line


async def test_an_address_that_others_reach_needs_a_key(
    tmp_path: Path, postgres: EmbeddedPostgres, database_name: str, run_service: StartService
) -> None:
    dsn = postgres.dsn_for(database_name)
    line = start(tmp_path, "serve", "--host", "0.0.0.0", "--port", "0", database_url=dsn)  # noqa: S104
    assert "HOST" in line
    assert "keys create" in line
    key = make_key(tmp_path, database_url=dsn, host="0.0.0.0")  # noqa: S104
    async with run_service("--host", "0.0.0.0", database_url=dsn) as service:  # noqa: S104
        assert (await service.client.get("/sessions")).status_code == 401
        own = {"Authorization": f"Bearer {key}"}
        assert (await service.client.get("/sessions", headers=own)).status_code == 200
