"""SCRUB holds on every way into the record: what it finds stands nowhere in the database afterwards."""

import io
import json
from pathlib import Path

import pytest
from tqdm import tqdm

from app.commands.importing import ImportOptions, ImportReport, import_stream
from app.database.dump import TABLES
from app.database.embedded import EmbeddedPostgres
from app.temporal_memory import TemporalMemory
from tests.conftest import LiveFactory, LiveService
from tests.doubles.chat_fixtures import ChatProvider
from tests.live import fetch, listed, message
from tests.talk import asked, chat_settings, judged, listen, prompts, say, spoken

PHONE = "13812345678"
SECRETS = (PHONE, "a.b@example.com", "4111111111111111", "11010119900307803X", "sk-abcdefghijklmnop1234")
SAID = "我的电话是13812345678，邮箱a.b@example.com，卡号4111111111111111，key sk-abcdefghijklmnop1234"
KEPT = "我的电话是[phone number]，邮箱[e-mail]，卡号[card number]，key [secret key]"
NAME = f"小明{PHONE}"


async def everything(postgres: EmbeddedPostgres, database: str) -> str:
    """All that stands in the tables, as text."""
    rows = [
        row["line"]
        for table in TABLES
        for row in await fetch(postgres, database, f"SELECT t::text AS line FROM {table} t")
    ]
    assert rows
    return "\n".join(rows)


async def import_lines(live: LiveService, lines: list[object]) -> tuple[ImportReport, list[str]]:
    stream = io.BytesIO("".join(json.dumps(line) + "\n" for line in lines).encode())
    told: list[str] = []
    report = ImportReport()
    options = ImportOptions("default", live.services.settings.recall.zone, None, tell=told.append)
    with tqdm(disable=True) as progress:
        await import_stream(live.services, stream, options=options, report=report, progress=progress)
    return report, told


async def test_what_is_masked_stands_nowhere(
    serve: LiveFactory,
    chat_provider: ChatProvider,
    postgres: EmbeddedPostgres,
    database_name: str,
) -> None:
    chat_provider.control({"only": "chat", "times": None, "reply": f"记下了：{SAID}"})
    async with serve(**chat_settings(chat_provider, scrub="mask")) as live:
        body = message(SAID, sender_name=NAME, message_id=7)
        stored = await live.client.post("/dialogues", json=body)
        assert (stored.json()["content"], stored.json()["sender_name"]) == (KEPT, "小明[phone number]")
        # Pushed again it is the same message, by what is kept of it.
        again = await live.client.post("/dialogues", json=body)
        assert (again.status_code, again.json()["id"]) == (200, stored.json()["id"])
        batch = [message(SAID, user_id=2), message("没有什么", user_id=2)]
        assert (await live.client.post("/dialogues/batch", json={"dialogues": batch})).status_code == 200
        assert [one["content"] for one in await listed(live, user_id=2)] == [KEPT, "没有什么"]
        changed = await live.client.patch(
            f"/dialogues/{stored.json()['id']}", json={"content": "改：" + SAID}
        )
        assert changed.json()["content"] == "改：" + KEPT
        report, told = await import_lines(
            live,
            [message(SAID, user_id=3, sender_name=NAME, created_at="2024-01-16T10:30:15")],
        )
        assert (report.stored, told) == (1, [])
        done = await say(live, SAID, user_id=4, sender_name=NAME, assistant_name=NAME, message_uuid="u-1")
        # The reply is told as the model gave it, and kept, and told again, with marks.
        assert done["reply"] == f"记下了：{SAID}"
        await judged(live, done["turn_id"])
        assert (await say(live, SAID, user_id=4, sender_name=NAME, message_uuid="u-1"))[
            "reply"
        ] == f"记下了：{KEPT}"
        await listen(live, SAID, user_id=5)
        assert await spoken(live, "5") == [("user", KEPT), ("assistant", f"记下了：{KEPT}")]
        sent = json.dumps(prompts(chat_provider), ensure_ascii=False)
        assert not [secret for secret in SECRETS if secret in sent]
    kept = await everything(postgres, database_name)
    assert KEPT in kept
    assert not [secret for secret in SECRETS if secret in kept]


async def test_what_is_refused_is_named_and_nothing_of_it_is_stored(
    serve: LiveFactory,
    chat_provider: ChatProvider,
    postgres: EmbeddedPostgres,
    database_name: str,
) -> None:
    async with serve(**chat_settings(chat_provider, scrub="refuse")) as live:
        good = await live.client.post("/dialogues", json=message("你好"))
        refused = [
            ("/content", await live.client.post("/dialogues", json=message(SAID))),
            ("/content", await live.client.post("/dialogues", json=message("你好", sender_name=NAME))),
            (
                "/dialogues/1/content",
                await live.client.post(
                    "/dialogues/batch", json={"dialogues": [message("早"), message(SAID), message("晚")]}
                ),
            ),
            (
                "/content",
                await live.client.patch(f"/dialogues/{good.json()['id']}", json={"content": SAID}),
            ),
            ("/user_input", await live.client.post("/chat", json=asked(SAID))),
            ("/user_input", await live.client.post("/chat", json=asked(SAID, stream=True))),
        ]
        for pointer, answer in refused:
            assert answer.status_code == 422, answer.text
            (fault,) = answer.json()["errors"]
            assert fault["pointer"] == pointer
            assert "a phone number" in fault["detail"]
            assert not [secret for secret in SECRETS if secret in answer.text]
        assert chat_provider.requests()["count"] == 0
        report, told = await import_lines(live, [message("一", user_id=3), message(SAID, user_id=3)])
        assert (report.stored, report.bad) == (1, 1)
        assert "a phone number" in told[0]
        assert PHONE not in told[0]
        assert [one["content"] for one in await listed(live)] == ["你好"]
    kept = await everything(postgres, database_name)
    assert not [secret for secret in SECRETS if secret in kept]


async def test_without_it_what_is_said_is_kept_as_it_is(live_service: LiveService) -> None:
    stored = await live_service.client.post("/dialogues", json=message(SAID, sender_name=NAME))
    assert (stored.json()["content"], stored.json()["sender_name"]) == (SAID, NAME)


def test_the_python_class_scrubs_too(
    postgres: EmbeddedPostgres, database_name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCRUB", "mask")
    url = postgres.url_for(database_name).replace("+asyncpg", "")
    with TemporalMemory(db_config={"url": url}, embedding_config={}) as memory:
        memory.add_dialogue(1, "user", SAID, sender_name=NAME)
        (line,) = memory.get_contextual_memory(1, "我的电话是多少")
    assert PHONE not in line["line"]
    assert KEPT in line["line"]
