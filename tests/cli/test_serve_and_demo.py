"""`temporal-memory serve` and `demo`, as processes and in process."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from app.commands.demonstration import ask, examples_folder, import_examples, load_examples
from app.commands.serving import bind, greeting
from app.database.embedded import EmbeddedPostgres
from app.errors import StartupError
from app.services import Services
from app.settings import Settings, load_settings

_REPOSITORY = Path(__file__).parents[2]


def command_of_make() -> list[str]:
    """What `make serve` does when everything is installed."""
    arguments = ["make", "--no-print-directory", "--dry-run", "serve", f"BIN={Path(sys.executable).parent}"]
    # `make test` hands its own options on to every make below it.
    alone = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    told = subprocess.run(arguments, cwd=_REPOSITORY, capture_output=True, text=True, check=True, env=alone)
    return ["sh", "-c", told.stdout.splitlines()[-1]]


@contextmanager
def serving(
    folder: Path, *options: str, command: Sequence[str] = (), **environment: str
) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [*(command or (sys.executable, "-m", "app.cli", "serve")), *options],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_REPOSITORY), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("number", "code", "by_make"),
    [(signal.SIGINT, 130, False), (signal.SIGTERM, 0, False), (signal.SIGINT, 0, True)],
)
def test_a_signal_stops_all_it_started(
    tmp_path: Path, number: signal.Signals, code: int, by_make: bool
) -> None:
    with serving(tmp_path, command=command_of_make() if by_make else (), PORT="0") as process:
        assert process.stdout is not None
        url = ""
        for line in process.stdout:
            url = url or "".join(re.findall(r"listens on (\S+)", line))
            if "Ctrl-C" in line:
                break
        assert httpx.get(f"{url}/health/ready").status_code == 200
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert "Traceback" not in errors
    assert list((tmp_path / "data").rglob("postmaster.pid")) == []


@pytest.mark.parametrize("by_make", [False, True])
def test_what_keeps_it_from_starting_is_one_line(
    tmp_path: Path, postgres: EmbeddedPostgres, by_make: bool
) -> None:
    command = command_of_make() if by_make else ()
    url = postgres.url_for("no_such_database").replace("+asyncpg", "")
    with serving(tmp_path, command=command, PORT="0", DATABASE_URL=url, LOG_LEVEL="ERROR") as process:
        _, errors = process.communicate(timeout=90)
    assert process.returncode == 2
    assert len(errors.splitlines()) == 1
    assert "no_such_database" in errors


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=f"port {port}"):
            bind("127.0.0.1", port)
    with pytest.raises(StartupError, match="no-such-host"):
        bind("no-such-host.invalid", 0)


def test_the_greeting_shows_how_a_key_is_given_and_not_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    keyed: Settings = load_settings({"api_keys": "bot=secret-secret", "host": "0.0.0.0"})  # noqa: S104
    text = greeting(keyed, host="0.0.0.0", port=8000, model="m")  # noqa: S104
    assert text.count("-H 'Authorization: Bearer <key>'") == 2
    assert "secret-secret" not in text
    assert "http://127.0.0.1:8000/docs" in text
    assert "Authorization" not in greeting(load_settings(), host="127.0.0.1", port=8000, model="m")


async def test_the_demo_finds_what_it_asks_for(services: Services) -> None:
    examples = load_examples(examples_folder())
    told: list[str] = []
    report = await import_examples(services, examples, quiet=True, tell=told.append)
    assert (report.bad, told) == (0, [])
    assert len(examples) >= 4
    assert report.stored == sum(len(example.path.read_bytes().splitlines()) for example in examples)
    for example in examples:
        assert len(example.questions) == 5
        found = [
            any(question.evidence in line for line in await ask(services, example, question))
            for question in example.questions
        ]
        assert sum(found) >= 4, (example.title, found)
