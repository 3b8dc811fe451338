"""Requests that no client should send, over real sockets: no 500, no hang, bounded memory.

`benchmarks/fuzz.py --cases N` is the same for as long as one likes.
"""

import asyncio
import random
from collections import Counter
from pathlib import Path

import httpx
import pytest

from app.api.application import build_api
from app.api.context import ApiOptions
from benchmarks.fuzz import send_all, send_malformed
from benchmarks.malformed import Malformed, make_malformed
from benchmarks.processes import resident_bytes
from tests.conftest import LiveService
from tests.doubles.chat_fixtures import ChatProvider
from tests.processes import StartService
from tests.talk import chat_settings

_CASES = 1200
_MIB = 1024 * 1024


async def test_nothing_that_is_sent_breaks_the_service(
    run_service: StartService, chat_provider: ChatProvider, tmp_path: Path
) -> None:
    settings = chat_settings(chat_provider, data_dir=tmp_path / "data", log_level="ERROR")
    async with run_service(**settings) as live:
        port = int(live.url.rpartition(":")[2])
        before = resident_bytes(live.process.pid)
        outcomes = await send_all(port, live.process.pid, range(_CASES))
        assert not outcomes.faults, outcomes.faults[:20]
        assert outcomes.answers.total() == _CASES
        assert outcomes.most_bytes - before < 400 * _MIB
        assert (await live.client.get("/health/ready")).status_code == 200
        assert "Traceback" not in (tmp_path / "service0.log").read_text()


def test_the_requests_are_of_all_kinds_and_the_same_each_time() -> None:
    kinds = Counter(make_malformed(number).kind for number in range(400))
    assert min(kinds.values()) > 20
    assert len(kinds) == 7
    assert all(make_malformed(number) == make_malformed(number) for number in range(50))
    routes = {
        (path, method.upper())
        for path, of in build_api(ApiOptions()).openapi()["paths"].items()
        for method in of
    }
    posted = {
        raw.split(b" ")[1].decode("latin-1")
        for number in range(4000)
        if (raw := make_malformed(number).raw)[:5] == b"POST "
    }
    assert {path for path, method in routes if method == "POST"} <= posted


_PARTS = [
    *("text/plain", "application/openmetrics-text", "*/*", "version=", "escaping=allow-utf-8", "q="),
    *("1.0.0", "0.0.4", "1.0.0.0", "1.", "-1", ".", "9" * 5000, "x", "\xff", ";", ",", "=", " ", '"'),
]


async def test_metrics_are_shown_whatever_the_client_says_it_reads(live_service: LiveService) -> None:
    port = int(live_service.url.rpartition(":")[2])
    chance = random.Random(0)  # noqa: S311 - no secret
    for _ in range(300):
        accept = "application/openmetrics-text;version=" * chance.randint(0, 1)
        accept += "".join(chance.choices(_PARTS, k=chance.randint(1, 6)))
        raw = f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: {accept}\r\n\r\n".encode("latin-1")
        status, answer = await send_malformed(port, Malformed("accept", raw))
        assert status == 200, accept
        assert b"memory_build_info" in answer, accept


@pytest.mark.parametrize("size_mib", [8, 17])
async def test_many_large_bodies_at_once_are_not_held(
    run_service: StartService, tmp_path: Path, size_mib: int
) -> None:
    body = b'{"user_id": 1, "role": "user", "content": "' + b"a" * (size_mib * _MIB) + b'"}'
    async with run_service(data_dir=tmp_path / "data", log_level="ERROR") as live:
        before = resident_bytes(live.process.pid)
        async with httpx.AsyncClient(base_url=live.url, timeout=120, trust_env=False) as client:
            answers = await asyncio.gather(
                *(
                    client.post("/dialogues", content=body, headers={"Content-Type": "application/json"})
                    for _ in range(24)
                )
            )
        assert {answer.status_code for answer in answers} <= {413, 422, 503}
        assert resident_bytes(live.process.pid) - before < 400 * _MIB
