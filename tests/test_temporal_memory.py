"""The specification's Python class: its section 9 as it stands there, and what its callers may rely on."""

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from app.database.embedded import EmbeddedPostgres
from app.errors import StartupError
from app.temporal_memory import TemporalMemory, _database_settings, _embedding_settings

USER = 123456789
GROUP = 987654321


@pytest.fixture
def db_config(
    postgres: EmbeddedPostgres, database_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOG_LEVEL", "WARNING")
    return {"url": postgres.url_for(database_name)}


@pytest.fixture
def memory(db_config: dict[str, Any]) -> Iterator[TemporalMemory]:
    with TemporalMemory(db_config, {}) as opened:
        yield opened


async def test_the_signatures_are_the_specifications() -> None:
    wanted = {
        "__init__": "(self, db_config, embedding_config)",
        "_get_embedding": "(self, text)",
        "add_dialogue": "(self, user_id, role, content, group_id=None, sender_name=None, message_id=None)",
        "get_contextual_memory": "(self, user_id, query, group_id=None, top_n=3, window_size=2)",
        "chat_with_temporal_memory": (
            "(self, user_id, user_input, group_id=None, llm_callback=None, max_memory_tokens=1000)"
        ),
        "generate_session_key": "(user_id, group_id=None)",
    }
    for name, signature in wanted.items():
        parameters = inspect.signature(getattr(TemporalMemory, name)).parameters.values()
        bare = [one.replace(annotation=inspect.Parameter.empty) for one in parameters]
        assert str(inspect.Signature(bare)) == signature, name
    assert get_type_hints(TemporalMemory.add_dialogue)["return"] is type(None)


def test_the_private_chat_of_section_9_1(memory: TemporalMemory) -> None:
    memory.add_dialogue(user_id=USER, role="user", content="我的订单号是ORD123456", sender_name="小明")
    memory.add_dialogue(
        user_id=USER, role="assistant", content="好的，我已经记住了您的订单号ORD123456", sender_name="小诗"
    )

    user_id = USER
    user_input = "我昨天问的订单号是多少？"
    memory.add_dialogue(user_id=user_id, role="user", content=user_input, sender_name="小明")
    memories = memory.get_contextual_memory(user_id=user_id, query=user_input, top_n=3, window_size=2)

    def llm_callback(memories: list[dict[str, Any]], user_input: str) -> str:
        return f"{user_input} {memories[0]['content']}"

    response = llm_callback(memories, user_input)
    memory.add_dialogue(user_id=user_id, role="assistant", content=response, sender_name="小诗")

    assert [one["content"] for one in memories if one["is_anchor"]][:1] == ["我的订单号是ORD123456"]
    assert response.endswith("我的订单号是ORD123456")
    first = memories[0]
    assert first["line"] == f"[{first['absolute_time']}] (刚刚) user(小明): 我的订单号是ORD123456"
    assert 0 <= first["similarity"] <= 1
    assert str(first["created_at"].tzinfo) == "Asia/Shanghai"
    assert user_input not in [one["content"] for one in memories]


def test_the_group_chat_of_section_9_2(memory: TemporalMemory) -> None:
    shared = "分享一个链接 https://example.com/pgvector 讲向量检索的"
    memory.add_dialogue(USER, "user", shared, group_id=GROUP, sender_name="小明", message_id=1000)
    memory.add_dialogue(USER, "user", "私聊里说的另一个链接 https://example.com/private", sender_name="小明")
    memory.add_dialogue(42, "user", "别人在群里分享的链接 https://example.com/other", group_id=GROUP)

    user_input = "记得我上次分享的那个链接吗？"
    memory.add_dialogue(
        user_id=USER, group_id=GROUP, role="user", content=user_input, sender_name="小明", message_id=1001
    )
    memories = memory.get_contextual_memory(
        user_id=USER, group_id=GROUP, query=user_input, top_n=3, window_size=2
    )

    assert [one["content"] for one in memories] == [shared]
    assert memories[0]["session_key"] == f"{GROUP}:{USER}"
    assert memories[0]["message_id"] == 1000


def test_the_session_keys_of_section_9_3() -> None:
    assert TemporalMemory.generate_session_key(123456789) == "123456789"
    assert TemporalMemory.generate_session_key(123456789, 987654321) == "987654321:123456789"


def test_a_callback_with_one_parameter_is_given_the_prompt(memory: TemporalMemory) -> None:
    memory.add_dialogue(USER, "user", "我对花生过敏", sender_name="小明")
    seen: list[list[dict[str, str]]] = []

    def answer(messages: list[dict[str, str]]) -> str:
        seen.append(messages)
        return "那就别点宫保鸡丁了"

    assert (
        memory.chat_with_temporal_memory(USER, "我能吃宫保鸡丁吗？", llm_callback=answer)
        == "那就别点宫保鸡丁了"
    )
    messages = seen[0]
    assert messages[0]["role"] == "system"
    assert "当前时间" in messages[0]["content"]
    assert messages[-1] == {"role": "user", "content": "我能吃宫保鸡丁吗？"}
    assert sum("宫保鸡丁" in one["content"] for one in messages) == 1
    assert any("花生" in one["content"] for one in messages)
    stored = memory.get_contextual_memory(USER, "宫保鸡丁", window_size=0)
    assert {one["role"] for one in stored if "宫保鸡丁" in one["content"]} == {"user", "assistant"}


def test_a_callback_with_two_parameters_is_given_memories_and_input(memory: TemporalMemory) -> None:
    memory.add_dialogue(USER, "user", "我的车牌号是粤B12345")
    reply = memory.chat_with_temporal_memory(
        USER, "我的车牌号是什么？", llm_callback=lambda memories, user_input: f"{len(memories)} {user_input}"
    )
    assert reply == "1 我的车牌号是什么？"


def test_a_callback_that_raises_keeps_the_users_message_and_stores_no_reply(memory: TemporalMemory) -> None:
    def fail(messages: list[dict[str, str]]) -> str:
        raise LookupError("no model")

    with pytest.raises(LookupError):
        memory.chat_with_temporal_memory(USER, "今晚几点的火车？", llm_callback=fail)
    stored = memory.get_contextual_memory(USER, "火车时间")
    assert [(one["role"], one["content"]) for one in stored] == [("user", "今晚几点的火车？")]


def test_no_callback_and_a_callback_without_a_string_are_told(memory: TemporalMemory) -> None:
    with pytest.raises(ValueError, match="llm_callback"):
        memory.chat_with_temporal_memory(USER, "在吗？")
    with pytest.raises(TypeError, match="NoneType"):
        memory.chat_with_temporal_memory(USER, "在吗？", llm_callback=lambda _messages: None)  # type: ignore[arg-type,return-value]


def test_no_memory_tokens_bring_no_memory(memory: TemporalMemory) -> None:
    memory.add_dialogue(USER, "user", "我的生日是3月14日")
    reply = memory.chat_with_temporal_memory(
        USER, "我的生日是哪天？", llm_callback=lambda memories, _input: str(memories), max_memory_tokens=0
    )
    assert reply == "[]"


def test_values_out_of_range_are_named(memory: TemporalMemory) -> None:
    with pytest.raises(ValueError, match="user_id"):
        memory.add_dialogue(0, "user", "你好")
    with pytest.raises(ValueError, match="role"):
        memory.add_dialogue(USER, "system", "你好")
    with pytest.raises(ValueError, match="content"):
        memory.add_dialogue(USER, "user", " \u200b")
    with pytest.raises(ValueError, match="top_n"):
        memory.get_contextual_memory(USER, "你好", top_n=-1)
    with pytest.raises(ValueError, match="query"):
        memory.get_contextual_memory(USER, "")


def test_an_embedding_is_a_list_of_plain_floats(memory: TemporalMemory) -> None:
    vector = memory._get_embedding("今天天气怎么样")
    assert len(vector) == 384
    assert {type(number) for number in vector} == {float}


def test_several_threads_share_one(memory: TemporalMemory) -> None:
    def talk(user_id: int) -> list[str]:
        memory.add_dialogue(user_id, "user", f"我的工号是A{user_id}")
        return [one["content"] for one in memory.get_contextual_memory(user_id, "我的工号")]

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(talk, range(1, 9)))
    assert found == [[f"我的工号是A{user_id}"] for user_id in range(1, 9)]


async def test_it_works_inside_a_running_loop(db_config: dict[str, Any]) -> None:
    memory = await asyncio.to_thread(TemporalMemory, db_config, {})
    try:
        # On the loop's own thread, on purpose: it blocks the loop, and must not wait for it.
        memory.add_dialogue(USER, "user", "明天下午三点开会")
        assert memory.get_contextual_memory(USER, "几点开会")[0]["content"] == "明天下午三点开会"
    finally:
        await asyncio.to_thread(memory.close)


def test_closing_ends_the_thread_and_may_be_repeated(db_config: dict[str, Any]) -> None:
    memory = TemporalMemory(db_config, {})
    memory.close()
    memory.close()
    assert "temporal-memory" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(RuntimeError, match="closed"):
        memory.add_dialogue(USER, "user", "你好")


def test_what_cannot_be_opened_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StartupError):
        TemporalMemory({"url": "mysql://localhost/x"}, {})


def test_a_program_that_never_closes_still_ends(tmp_path: Path) -> None:
    program = (
        "from app.temporal_memory import TemporalMemory\n"
        "memory = TemporalMemory({'data_dir': 'data'}, {})\n"
        "memory.add_dialogue(1, 'user', '你好，我叫小明')\n"
        "print(memory.get_contextual_memory(1, '我叫什么')[0]['content'])\n"
    )
    root = str(Path(__file__).resolve().parents[1])
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": root, "LOG_LEVEL": "WARNING", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "你好，我叫小明\n"), ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "data" / "pg" / "postmaster.pid").exists()


@pytest.mark.parametrize(
    ("config", "url"),
    [
        ({"url": "postgresql://h/d"}, "postgresql://h/d"),
        (
            {"host": "db", "port": 5433, "user": "u", "password": "p@:/ß", "dbname": "chat"},
            "postgresql://u:p%40%3A%2F%C3%9F@db:5433/chat",
        ),
        ({"host": "::1", "database": "chat"}, "postgresql://postgres@[::1]:5432/chat"),
        ({"host": "/run/pg", "dbname": "chat"}, "postgresql://postgres@/chat?host=/run/pg&port=5432"),
        ({}, None),
        ({"url": None, "data_dir": "d"}, None),
    ],
)
def test_database_configs(config: dict[str, Any], url: str | None) -> None:
    assert _database_settings(config)["database_url"] == url


@pytest.mark.parametrize(
    "config",
    [
        {"pasword": "x"},
        {"url": "x", "host": "y"},
        {"url": "x", "data_dir": "y"},
        {"dbname": "a", "database": "b"},
    ],
)
def test_wrong_database_configs_name_the_key(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(config))):
        _database_settings(config)


def test_embedding_configs() -> None:
    full = "https://api.siliconflow.cn/v1/embeddings"
    settings = _embedding_settings({"api_key": "k", "api_url": full, "model": "m", "dimensions": 512})
    assert settings == {
        "embedding_base_url": "https://api.siliconflow.cn/v1",
        "embedding_api_key": "k",
        "embedding_model": "m",
        "embedding_dimensions": 512,
    }
    assert _embedding_settings({}) == {"embedding_base_url": None, "embedding_api_key": None}
    with pytest.raises(ValueError, match="apikey"):
        _embedding_settings({"apikey": "k"})
    with pytest.raises(ValueError, match="base_url"):
        _embedding_settings({"base_url": "https://a", "api_url": "https://b"})
