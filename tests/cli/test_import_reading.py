"""A large file is read by a process of its own: the same messages, and nothing is lost with it."""

import asyncio
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from app.commands import import_reading
from app.commands.import_reading import Batch, ReadingOptions, open_batches, read_batches
from app.errors import UnavailableError

NOW = datetime(2024, 1, 16, 8, 0, tzinfo=UTC)
OPTIONS = ReadingOptions("default", ZoneInfo("Asia/Shanghai"), None, batch_size=3)
LINES = [
    '{"user_id": 1, "role": "user", "content": "我的订单号是ORD123456", "sender_name": "小明", "score": 80}',
    '{"user_id": 1, "role": "assistant", "content": "好的", "message_id": 5, "group_id": -7}',
    "not JSON",
    '{"user_id": 2, "role": "user", "content": "hi", "created_at": "2024-01-16 10:30:15", "pinned": true}',
    '{"post_type": "meta_event", "meta_event_type": "heartbeat", "self_id": 1, "time": 1705372215}',
    '{"user_id": 2, "role": "user", "content": "第二", "message_uuid": "mine", "expires_at": 1805372215}',
    '{"user_id": 0, "role": "user", "content": "nobody"}',
    '{"user_id": 3, "role": "user", "content": "最后", "kind": "fact", "outdated": true}',
]


@pytest.fixture
def large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(LINES), encoding="utf-8")
    monkeypatch.setattr(import_reading, "APART_FROM_BYTES", 0)
    return path


def children() -> set[int]:
    return {
        int(name.name)
        for name in Path("/proc").iterdir()
        if name.name.isdigit() and f"\nPPid:\t{os.getpid()}\n" in _status(name)
    }


def _status(folder: Path) -> str:
    try:
        return (folder / "status").read_text()
    except OSError:
        return ""


def test_a_process_of_its_own_reads_the_same(large_file: Path) -> None:
    with large_file.open("rb") as stream:
        here = list(read_batches(stream, OPTIONS, now=NOW))
    with large_file.open("rb") as stream, open_batches(stream, OPTIONS, now=NOW) as batches:
        there = list(batches)
    assert there == here
    assert sum(len(batch.messages) for batch in there) == 5
    assert sum(len(batch.faults) for batch in there) == 2
    assert sum(batch.skipped for batch in there) == 1


def test_messages_without_a_time_keep_their_order_from_batch_to_batch(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"user_id": 1, "role": "user", "content": "又一条"}\n' * 8)
    with path.open("rb") as stream:
        times = [
            item.created_at for batch in read_batches(stream, OPTIONS, now=NOW) for item in batch.messages
        ]
    assert times == [NOW + timedelta(microseconds=place) for place in range(8)]


def test_the_end_of_that_process_is_told(large_file: Path) -> None:
    # More than a pipe holds, so that it is still there when it is killed.
    large_file.write_text((LINES[0] + "\n") * 30_000)
    before = children()
    with large_file.open("rb") as stream, open_batches(stream, OPTIONS, now=NOW) as batches:
        next(batches)
        for reader in children() - before:
            os.kill(reader, signal.SIGKILL)
        with pytest.raises(UnavailableError, match="run the import again"):
            read_all(batches)


def test_who_stops_early_leaves_no_process_behind(large_file: Path) -> None:
    large_file.write_text((LINES[0] + "\n") * 30_000)
    before = children()
    with large_file.open("rb") as stream, open_batches(stream, OPTIONS, now=NOW) as batches:
        asyncio.run(asyncio.to_thread(next, batches))
    assert len(children() - before) <= 1, "at most the tracker that Python keeps for such processes"


def read_all(batches: Iterator[Batch]) -> None:
    for _ in batches:
        pass
