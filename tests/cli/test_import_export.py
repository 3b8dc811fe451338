"""`temporal-memory import`, `export` and `search`, as they are called."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import asyncpg
import pytest

from app.cli import _exit_code
from app.database.embedded import EmbeddedPostgres
from app.settings import Settings

_REPOSITORY = Path(__file__).parents[2]

LINES = [
    {
        "user_id": 1,
        "role": "user",
        "content": "我的订单号是ORD123456",
        "created_at": "2024-01-16T10:30:15+08:00",
    },
    {"user_id": 1, "role": "assistant", "content": "好的", "created_at": 1705372220, "message_id": -5},
    {"user_id": 1, "role": "assistant", "content": "好的", "created_at": 1705372220.5},
    {
        "user_id": 2,
        "group_id": -100,
        "role": "user",
        "content": "第一行\n第二行",
        "sender_name": "小明",
        "message_uuid": "mine",
        "created_at": "2024-01-16 10:30:15.000007",
        "score": 85,
        "expires_at": "2999-01-01T00:00:00Z",
        "pinned": True,
        "kind": "fact",
        "outdated": True,
    },
]


@pytest.fixture
def database(
    make_settings: Callable[..., Settings],
    postgres: EmbeddedPostgres,
    database_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """The database that commands work on, by its DSN; the working directory is the test's own."""
    make_settings()
    monkeypatch.setenv("DATABASE_URL", postgres.url_for(database_name))
    return postgres.dsn_for(database_name)


def write(name: str, *values: object) -> str:
    Path(name).write_text("".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values))
    return name


def count(dsn: str) -> int:
    async def ask() -> int:
        connection = await asyncpg.connect(dsn)
        try:
            found: int = await connection.fetchval("SELECT count(*) FROM dialogues")
        finally:
            await connection.close()
        return found

    return asyncio.run(ask())


def test_a_second_run_stores_nothing_again(database: str, capfd: pytest.CaptureFixture[str]) -> None:
    name = write("a.jsonl", *LINES, LINES[0])
    assert _exit_code(["import", name]) == 0
    assert "5 stored, 0 duplicates, 0 bad" in capfd.readouterr().out
    assert _exit_code(["import", name]) == 0
    assert "0 stored, 5 duplicates, 0 bad" in capfd.readouterr().out
    assert count(database) == 5


def test_a_round_trip_changes_nothing(database: str) -> None:
    assert _exit_code(["import", write("a.jsonl", *LINES)]) == 0
    assert _exit_code(["export", "first.jsonl"]) == 0
    assert _exit_code(["import", "--namespace", "copy", "first.jsonl"]) == 0
    assert _exit_code(["export", "--namespace", "copy", "second.jsonl"]) == 0
    first = Path("first.jsonl").read_bytes()
    assert first == Path("second.jsonl").read_bytes()
    exported = [json.loads(line) for line in first.splitlines()]
    assert [one["created_at"] for one in exported] == [
        "2024-01-16T10:30:15.000007+08:00",
        "2024-01-16T10:30:15.000000+08:00",
        "2024-01-16T10:30:20.000000+08:00",
        "2024-01-16T10:30:20.500000+08:00",
    ]
    assert {key: exported[0][key] for key in ("kind", "outdated", "pinned", "score", "group_id")} == {
        "kind": "fact",
        "outdated": True,
        "pinned": True,
        "score": 85,
        "group_id": -100,
    }
    assert _exit_code(["export", "--user-id", "2", "third.jsonl"]) == 0
    assert Path("third.jsonl").read_bytes() == first.splitlines(keepends=True)[0]


def test_bad_lines_are_named_and_the_others_stored(database: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("a.jsonl").write_text(
        '{"user_id": 1, "role": "user", "content": "一", "created_at": "2024-01-16"}\n'
        "{oops\n"
        '{"user_id": 1, "role": "system", "content": "二"}\n'
        '{"user_id": 1, "role": "user", "content": "三", "created_at": "2999-01-01"}\n'
        '{"user_id": 1, "role": "user", "content": "四", "message_uuid": "x"}\n'
        '{"user_id": 1, "role": "user", "content": "五", "message_uuid": "x"}\n'
        '{"user_id": 1, "role": "user", "content": "六", "mood": "good"}\n'
    )
    assert _exit_code(["import", "a.jsonl"]) == 1
    told = capfd.readouterr()
    assert [line.partition(":")[0] for line in told.err.splitlines() if line.startswith("line")] == [
        "line 2",
        "line 3",
        "line 4",
        "line 7",
        "line 6",
    ]
    assert "2 stored, 0 duplicates, 5 bad" in told.out
    assert count(database) == 2


def test_onebot_arrays_and_chat_logs(database: str, capfd: pytest.CaptureFixture[str]) -> None:
    events = [
        {
            "post_type": "message",
            "message_type": "private",
            "time": 1705372215,
            "self_id": 9,
            "user_id": 1,
            "message_id": 5,
            "message": "我对花生过敏[CQ:face,id=1]",
            "sender": {"nickname": "小明"},
        },
        {"post_type": "meta_event", "meta_event_type": "heartbeat"},
    ]
    Path("events.json").write_text(json.dumps(events, indent=2))
    assert _exit_code(["import", "events.json"]) == 0
    log = write("log.jsonl", {"role": "user", "content": "我喜欢蓝色", "ts": 1705372216000})
    assert _exit_code(["import", log, "--user-id", "1", "--sender-name", "小明"]) == 0
    assert "1 stored" in capfd.readouterr().out
    assert _exit_code(["search", "--user-id", "1", "我对什么过敏？"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.partition(") ")[2] for line in lines] == [
        "user(小明): 我对花生过敏[表情]",
        "user(小明): 我喜欢蓝色",
    ]


def test_waiting_makes_the_vectors(database: str) -> None:
    assert _exit_code(["import", "--wait", write("a.jsonl", *LINES)]) == 0

    async def pending() -> int:
        connection = await asyncpg.connect(database)
        try:
            found: int = await connection.fetchval("SELECT count(*) FROM embedding_jobs")
        finally:
            await connection.close()
        return found

    assert asyncio.run(pending()) == 0


def test_a_killed_import_is_taken_up_again(database: str) -> None:
    rows = [
        {"user_id": 1 + n % 7, "role": "user", "content": f"消息{n % 500}", "created_at": 1705372215 + n // 3}
        for n in range(20_000)
    ]
    name = write("a.jsonl", *rows)
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "import", name],
        env=os.environ | {"PYTHONPATH": str(_REPOSITORY)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not count(database):
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert 0 < count(database) < len(rows)
    assert _exit_code(["import", name]) == 0
    assert count(database) == len(rows)


def test_wrong_calls_end_with_2_and_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIMEZONE", "Mars/Olympus")
    assert _exit_code(["export"]) == 2
    assert capfd.readouterr().err.splitlines() == [
        "Wrong setting: TIMEZONE is not an IANA time zone such as Asia/Shanghai"
    ]
    assert _exit_code(["import", "no-such-file"]) == 2
    assert _exit_code(["search", "--user-id", "0", "x"]) == 2
    assert _exit_code(["search", "--user-id", "1", "--scope", "group", "x"]) == 2
    assert "Traceback" not in capfd.readouterr().err
