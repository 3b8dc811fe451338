"""Upgrades with data in place: rows of each earlier revision are read by the service of this version.

What a step writes is what the service of that revision wrote, to the byte: ids, hashes and signatures are
literals, so that a change of how they are made is found here and not by whoever upgrades.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import asyncpg
import pytest

from app.database.embedded import EmbeddedPostgres
from app.database.migrations import MigrationOptions, migrate, revisions
from app.dialogues.indexed_text import indexed_text
from tests.conftest import LiveFactory, LiveService, execute
from tests.doubles.chat_fixtures import ChatProvider
from tests.doubles.embedding_provider import embed
from tests.doubles.fixtures import EmbeddingProvider
from tests.live import eventually, fetch, listed, search
from tests.talk import chat_settings, judged, say, spoken, turn_of

_DATABASE = "upgraded"
_DIMENSIONS = 64
_KEY = "key-of-the-environment"
_ORDER, _DINNER, _PLACE = "我的订单号是ORD123456", "大家好，周五聚餐在海底捞", "我住在杭州，对花生过敏"
_BIRTHDAY = "我的生日是五月三号"
_REPLY, _SUMMARY = "记住了，您对花生过敏。", "小明住在杭州。"
_TERMS = {
    _ORDER: "0000000000080000000000000080200000000208108000000000008000000000"
    "00000001200000080000000000200040008a0000000000000000080000000000",
    _DINNER: "0408500010004000040000040000000000000000400000000000800100800000"
    "0000200100000008200001000810000100020020001000000000000000000000",
    _PLACE: "0020000000000400000004000000200000000308400000009010000000000000"
    "0000200000000009000410000000000000020020000a00000000000008000000",
    _REPLY: "0020002000000400000044000000200000004100440000000000000000000000"
    "0000000000001001000010000000000000000000000a00000000000008000000",
    _SUMMARY: "0000000000000000000004000000000000000300000000009010000000000000"
    "0000200000000008000000000000000000020020000000000000020000000000",
}


def _vector(content: str, sender_name: str | None) -> str:
    return str(embed(indexed_text(content, sender_name), _DIMENSIONS))


def _dialogue(
    *,
    id_: int,
    uuid: str,
    content: str,
    written_hash: int,
    role: str = "user",
    sender_name: str | None = None,
    group_id: int | None = None,
    message_id: int | None = None,
    score: int | None = None,
    kind: str = "chat",
    minute: int = 0,
    ready: bool = True,
) -> str:
    """The statement that writes a message, with the columns of the first revision."""

    def literal(value: object) -> str:
        return "NULL" if value is None else f"'{value}'"

    values = {
        "id": id_,
        "user_id": 1,
        "group_id": group_id,
        "created_at": f"2026-11-20T10:{minute:02}:00Z",
        "stored_at": f"2026-11-20T10:{minute:02}:01Z",
        "qq_message_id": message_id,
        "written_hash": written_hash,
        "token_count": 11,
        "score": score,
        "embedding_model_id": 1 if ready else None,
        "namespace": "default",
        "message_uuid": uuid,
        "chat_type": "private" if group_id is None else "group",
        "role": role,
        "kind": kind,
        "embedding_status": "ready" if ready else "pending",
        "sender_name": sender_name,
        "content": content,
        "embedding": _vector(content, sender_name) if ready else None,
    }
    terms = f"x'{_TERMS[content]}'::bit(512)"
    return (
        f"INSERT INTO dialogues ({', '.join(values)}, terms) OVERRIDING SYSTEM VALUE"
        f" VALUES ({', '.join(map(literal, values.values()))}, {terms});"
    )


@dataclass(frozen=True)
class Step:
    """Attributes: `rows`: statements, from a revision on; `check`: what holds after the upgrade."""

    rows: str
    check: Callable[[LiveService], Awaitable[None]]


async def _check_messages(live: LiveService) -> None:
    order, *others = [one for one in await listed(live) if one["content"] == _ORDER]
    assert others == []
    assert (order["id"], order["message_id"], order["kind"]) == (1, 1001, "fact")
    assert order["created_at"] == "2026-11-20T18:00:00+08:00"
    again = await live.client.post(
        "/dialogues",
        json={"user_id": 1, "role": "user", "content": _ORDER, "sender_name": "小明", "message_id": 1001},
    )
    assert (again.status_code, again.json()["id"]) == (200, 1)
    for mode in ("vector", "keyword"):
        found = await search(live, "订单号ORD123456", mode=mode, top_n=1, window_size=0)
        assert [one["id"] for one in found["memories"]] == [1]

    async def is_embedded() -> bool:
        return {one["embedding_status"] for one in await listed(live, group_id=7)} == {"ready"}

    await eventually(is_embedded)
    found = await search(live, "海底捞", group_id=7, mode="vector", window_size=0)
    assert [one["id"] for one in found["memories"]] == [2]
    window = (await live.client.get("/sessions/7:1/window")).json()
    assert [one["content"] for one in window["messages"]] == [_DINNER]


async def _check_turns(live: LiveService) -> None:
    turn = await turn_of(live, "0193-scored")
    assert (turn["status"], turn["score"], turn["retention"]) == ("scored", 93, "forever")
    assert turn["dialogue_ids"] == [3, 4]
    told = await say(live, _PLACE, message_uuid="place-1", sender_name="小明")
    assert (told["turn_id"], told["reply"]) == ("0193-scored", _REPLY)
    assert [one["id"] for one in told["memories"]] == [1]
    waiting = await judged(live, "0193-waiting")
    assert (waiting["status"], len(waiting["dialogue_ids"])) == ("scored", 2)
    assert ("user", _BIRTHDAY) in await spoken(live)
    summaries = (await live.client.get("/sessions/1/summaries")).json()["summaries"]
    assert [one["content"] for one in summaries] == [_SUMMARY]


async def _check_key(live: LiveService) -> None:
    key = "tm_AbCd1234_0123456789012345678901234567890123456789012"
    answer = await live.client.get("/sessions", headers={"Authorization": f"Bearer {key}"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["sessions"] == []


_STEPS = {
    "0001": Step(
        f"""
        INSERT INTO embedding_models (name, dimensions) VALUES ('Qwen/Qwen3-Embedding-0.6B', {_DIMENSIONS});
        {
            _dialogue(
                id_=1,
                uuid="e48948f2-85e8-50b1-bf8b-c36440818997",
                content=_ORDER,
                sender_name="小明",
                written_hash=9099794896844660655,
                message_id=1001,
                kind="fact",
            )
        }
        {
            _dialogue(
                id_=2,
                uuid="dinner",
                content=_DINNER,
                sender_name="小红",
                group_id=7,
                ready=False,
                written_hash=-4433355914540612701,
                minute=1,
            )
        }
        INSERT INTO embedding_jobs (dialogue_id) VALUES (2);
        INSERT INTO window_messages
            (user_id, group_id, dialogue_id, role, content, sender_name, token_count, created_at)
            VALUES (1, 7, 2, 'user', '{_DINNER}', '小红', 11, '2026-11-20T10:01:00Z');
        SELECT setval('dialogues_id_seq', 1000);
        """,
        _check_messages,
    ),
    "0002": Step(
        f"""
        {
            _dialogue(
                id_=3,
                uuid="place-1",
                content=_PLACE,
                sender_name="小明",
                score=93,
                written_hash=7805709489812113029,
                minute=2,
            )
        }
        {
            _dialogue(
                id_=4,
                uuid="0193-scored:assistant",
                content=_REPLY,
                role="assistant",
                score=93,
                written_hash=-2374551194192437438,
                minute=3,
            )
        }
        {
            _dialogue(
                id_=5,
                uuid="0193-summary",
                content=_SUMMARY,
                role="assistant",
                kind="summary",
                written_hash=5806574555566161460,
                minute=3,
            )
        }
        INSERT INTO turns (turn_id, namespace, user_id, message_uuid, written_hash, sender_name, user_content,
                reply, status, outcome, score, retention, user_dialogue_id, assistant_dialogue_id, memories,
                prompt_tokens, completion_tokens, memory_tokens, available_at, created_at, replied_at,
                evaluated_at)
            VALUES ('0193-scored', 'default', 1, 'place-1', 7805709489812113029, '小明', '{_PLACE}',
                '{_REPLY}', 'scored', 'scored', 93, 'forever', 3, 4, '[[1, true, 0.5, 1.0, 0.5]]',
                50, 8, 20, now(), '2026-11-20T10:02:00Z', '2026-11-20T10:03:00Z', '2026-11-20T10:03:01Z');
        INSERT INTO turns (turn_id, namespace, user_id, message_uuid, written_hash, user_content, reply,
                status, available_at, created_at, replied_at)
            VALUES ('0193-waiting', 'default', 1, 'birthday-1', 5, '{_BIRTHDAY}', '记住了。',
                'pending', now(), now(), now());
        INSERT INTO window_messages (namespace, user_id, turn_id, role, content, token_count, created_at)
            VALUES ('default', 1, '0193-waiting', 'user', '{_BIRTHDAY}', 9, now());
        INSERT INTO summaries (namespace, user_id, dialogue_id, content, since, until, messages, created_at)
            VALUES ('default', 1, 5, '{_SUMMARY}', '2026-11-20T10:02:00Z', '2026-11-20T10:03:00Z', 2, now());
        INSERT INTO compressions (namespace, group_key, user_id, available_at)
            VALUES ('default', 7, 1, now());
        INSERT INTO retrievals (dialogue_id, retrieved_at) VALUES (1, '2026-11-20T10:02:00Z');
        INSERT INTO correction_jobs (dialogue_id) VALUES (3);
        INSERT INTO sweeps (day, started_at, available_at, finished_at)
            VALUES ('2026-11-20', '2026-11-20T03:30:00Z', '2026-11-20T03:35:00Z', '2026-11-20T03:30:01Z');
        """,
        _check_turns,
    ),
    "0004": Step(
        """
        INSERT INTO api_keys (namespace, role, prefix, digest, created_at) VALUES ('other', 'bot',
            'tm_AbCd1234', sha256('tm_AbCd1234_0123456789012345678901234567890123456789012'), now());
        INSERT INTO audit_log (at, actor, action, namespace, user_id, counts) VALUES
            ('2026-11-20T10:02:00Z', 'tm_AbCd1234', 'user_erased', 'other', 9, '{"dialogues": 2}');
        """,
        _check_key,
    ),
}


@pytest.fixture
async def empty(postgres: EmbeddedPostgres) -> AsyncIterator[str]:
    """The URL of a database with nothing in it."""
    await execute(postgres, f"CREATE DATABASE {_DATABASE}")
    yield postgres.url_for(_DATABASE)
    await execute(postgres, f"DROP DATABASE {_DATABASE} WITH (FORCE)")


@pytest.fixture
def providers(embedding_provider: EmbeddingProvider, chat_provider: ChatProvider) -> dict[str, object]:
    """Settings by which a service uses the doubles."""
    return chat_settings(
        chat_provider,
        embedding_base_url=embedding_provider.base_url,
        embedding_api_key=EmbeddingProvider.key,
        embedding_dimensions=_DIMENSIONS,
    )


@pytest.mark.parametrize("revision", revisions())
async def test_rows_of_each_revision_are_read_after_the_upgrade(
    postgres: EmbeddedPostgres, empty: str, serve: LiveFactory, providers: dict[str, object], revision: str
) -> None:
    await migrate(MigrationOptions(empty, dimensions=_DIMENSIONS, zone="Asia/Shanghai"), revision)
    known = revisions()
    # A revision without a step writes what the one before it wrote.
    steps = [_STEPS[one] for one in known[: known.index(revision) + 1] if one in _STEPS]
    connection = await asyncpg.connect(postgres.dsn_for(_DATABASE))
    for step in steps:
        await connection.execute(step.rows)
    for table in await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        assert await connection.fetchval(f"SELECT count(*) FROM {table['tablename']}"), (
            f"the upgrade from {revision} is tried without a row of {table['tablename']}"
        )
    await connection.close()
    async with serve(**providers, database_url=empty, api_keys=f"default={_KEY}") as live:
        live.client.headers["Authorization"] = f"Bearer {_KEY}"
        for step in steps:
            await step.check(live)
        stored = len(await fetch(postgres, _DATABASE, "SELECT 1 FROM dialogues WHERE kind <> 'summary'"))
        assert (await live.client.delete("/users/1")).json()["erased"]["dialogues"] == stored
