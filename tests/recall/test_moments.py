"""Whatever `now`, zone and language are asked for, and wherever the process stands."""

import asyncio
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from app.database.embedded import EmbeddedPostgres
from tests.conftest import LiveService
from tests.recall.planting import NOW, Planted, World

LINES = {
    ("zh", "Asia/Shanghai"): "[2026-11-29 12:00:00] (1天前) user(小明): 我的猫叫团子",
    ("zh", "America/New_York"): "[2026-11-28 23:00:00] (1天前) user(小明): 我的猫叫团子",
    ("en", "Asia/Kathmandu"): "[2026-11-29 09:45:00] (1 day ago) user(小明): 我的猫叫团子",
    ("en", "UTC"): "[2026-11-29 04:00:00] (1 day ago) user(小明): 我的猫叫团子",
}


@pytest.mark.parametrize(("language", "zone"), LINES)
async def test_a_line_is_in_the_language_and_zone_that_are_asked_for(
    world: World, language: str, zone: str
) -> None:
    await world.plant([Planted("我的猫叫团子", sender_name="小明")])
    result = await world.search("猫", language=language, zone=ZoneInfo(zone))
    memory = result.memories[0]
    assert memory.line == LINES[language, zone]
    assert memory.line == (
        f"[{memory.absolute_time}] ({memory.relative_time}) user(小明): {memory.dialogue.content}"
    )


@pytest.mark.parametrize(
    ("zone", "since"),
    [
        ("Asia/Shanghai", "2026-11-28T16:00Z"),
        ("America/New_York", "2026-11-28T05:00Z"),
        ("UTC", "2026-11-29T00:00Z"),
    ],
)
async def test_yesterday_is_a_day_of_the_zone_that_is_asked_for(world: World, zone: str, since: str) -> None:
    result = await world.search("昨天说了什么", zone=ZoneInfo(zone))
    assert result.time_range is not None
    assert result.time_range.since == datetime.fromisoformat(since)
    assert result.time_range.until - result.time_range.since == timedelta(days=1)


async def test_over_http_times_are_given_and_read_in_every_form(live_service: LiveService) -> None:
    said = datetime(2024, 1, 16, 2, 30, 15, tzinfo=UTC)
    message: dict[str, Any] = {
        "user_id": 1,
        "role": "user",
        "content": "我的订单号是ORD123456",
        "sender_name": "小明",
    }
    await live_service.client.post(
        "/dialogues", json=message | {"sender_name": "小明", "created_at": said.timestamp(), "wait": True}
    )
    asked: dict[str, Any] = {"user_id": 1, "query": "今天的订单号"}
    forms = [
        "2024-01-16T08:00:00Z",
        "2024-01-16T16:00:00",
        "2024-01-16 16:00:00+08:00",
        1705392000,
        1705392000000,
    ]
    for now in forms:
        answer = (await live_service.client.post("/memory/search", json=asked | {"now": now})).json()
        assert answer["now"] == "2024-01-16T16:00:00+08:00"
        line = "[2024-01-16 10:30:15] (5小时前) user(小明): 我的订单号是ORD123456"
        assert [one["line"] for one in answer["memories"]] == [line]
        assert answer["prompt"].startswith("当前时间：2024-01-16 16:00:00")
        assert answer["prompt"].endswith(f"\n\n--- 相关记忆 ---\n{line}")
        assert answer["time_range"] == {
            "text": "今天",
            "since": "2024-01-16T00:00:00+08:00",
            "until": "2024-01-17T00:00:00+08:00",
        }
    before = (
        await live_service.client.post("/memory/search", json=asked | {"now": "2020-01-01T00:00:00Z"})
    ).json()
    assert "刚刚" in before["memories"][0]["line"]


_ASK = """
import asyncio, json, sys
from datetime import datetime
from app.dialogues.records import Session
from app.recall.records import SearchQuery
from app.services import open_services
from app.settings import load_settings

async def main():
    settings = load_settings({"database_url": sys.argv[1], "log_level": "ERROR"})
    async with open_services(settings, background=False) as services:
        now, zone = datetime.fromisoformat(sys.argv[2]), settings.recall.zone
        query = SearchQuery(session=Session(1), query="上周六晚上的猫", now=now, zone=zone, language="zh",
            top_n=5, window_size=1)
        found = await services.recall.search("default", query)
        print(json.dumps([found.prompt, str(found.time_range), [one.relevance for one in found.memories]]))

asyncio.run(main())
"""


async def test_the_zone_of_the_process_changes_nothing(
    world: World, postgres: EmbeddedPostgres, database_name: str
) -> None:
    await world.plant(
        Planted(f"猫的第{place}个故事", NOW - timedelta(hours=7 * place)) for place in range(40)
    )

    async def ask(zone: str) -> Any:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _ASK, postgres.url_for(database_name), NOW.isoformat(),
            env=os.environ | {"TZ": zone}, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, _ = await process.communicate()
        assert process.returncode == 0
        return json.loads(output.splitlines()[-1])

    here, there = [await ask(zone) for zone in ("Asia/Shanghai", "America/New_York")]
    assert here == there
    assert len(here[2]) >= 5
