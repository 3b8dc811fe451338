"""`temporal-memory keys` and `audit`, as an operator runs them."""

import subprocess
from pathlib import Path

import pytest

from app.database.embedded import EmbeddedPostgres
from tests.processes import COMMAND, environment


class Command:
    """Runs the command on one database."""

    def __init__(self, cwd: Path, url: str) -> None:
        self._cwd = cwd
        self._environment = environment({"database_url": url})

    def __call__(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        done = subprocess.run(
            [COMMAND, *arguments],
            cwd=self._cwd,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr


@pytest.fixture
def command(tmp_path: Path, postgres: EmbeddedPostgres, database_name: str) -> Command:
    return Command(tmp_path, postgres.url_for(database_name).replace("+asyncpg", ""))


def test_a_key_is_shown_once_listed_by_its_prefix_and_revoked(command: Command) -> None:
    key, told = command("keys", "create", "--namespace", "mybot", "--label", "QQ 机器人")
    key = key.strip()
    prefix = key[:11]
    assert key not in told
    reader = command("keys", "create", "--namespace", "mybot", "--role", "reader")[0].strip()
    admin = command("keys", "create", "--role", "admin")[0].strip()

    listed, _ = command("keys", "list")
    assert not [one for one in (key, reader, admin) if one in listed]
    (line,) = [line for line in listed.splitlines() if prefix in line]
    assert line.split()[:3] == [prefix, "mybot", "bot"]
    assert "QQ 机器人" in line
    assert line.split()[-2:] == ["never", "open"]
    assert admin[:11] not in command("keys", "list", "--namespace", "mybot")[0]

    assert prefix in command("keys", "revoke", prefix)[0]
    assert "no such key" in command("keys", "revoke", prefix, code=1)[1]
    # A key that leaked stands in full somewhere: it may be given as it is, and is not repeated.
    assert command("keys", "revoke", reader)[0].strip() == f"{reader[:11]} is revoked."
    assert command("keys", "list", "--namespace", "mybot")[0].count("revoked ") == 2

    log, _ = command("audit")
    assert [line.split()[2] for line in log.splitlines()] == ["key_revoked"] * 2 + ["key_created"] * 3
    assert not [one for one in (key, reader, admin) if one in log]
    assert len(command("audit", "--namespace", "mybot", "--limit", "3")[0].splitlines()) == 3


def test_all_keys_of_a_namespace_go_at_once(command: Command) -> None:
    mine = [command("keys", "create", "--namespace", "a")[0].strip()[:11] for _ in range(2)]
    command("keys", "create", "--namespace", "aa")
    assert sorted(
        line.split()[0] for line in command("keys", "revoke", "--namespace", "a")[0].splitlines()
    ) == (sorted(mine))
    assert "open" in command("keys", "list", "--namespace", "aa")[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["create"],
        ["create", "--role", "reader"],
        ["create", "--role", "admin", "--namespace", "a"],
        ["create", "--namespace", "a b"],
        ["create", "--namespace", "a,b=c"],
        ["create", "--namespace", "a" * 65],
        ["revoke"],
        ["revoke", "tm_short"],
        ["revoke", "%"],
        ["revoke", "tm_Abcdefgh9"],
    ],
)
def test_what_is_not_said_clearly_is_refused(arguments: list[str], command: Command) -> None:
    command("keys", *arguments, code=2)
