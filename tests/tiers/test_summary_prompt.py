import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from app.clients.chat_model import ChatModel
from app.dialogues.records import Role, WindowMessage
from app.tiers.summary_prompt import conversation_language, fit_summary, summary_messages
from tests.doubles.chat_fixtures import ChatProvider

SHANGHAI = ZoneInfo("Asia/Shanghai")


def said(content: str, *, role: Role = "user", sender_name: str | None = "小明") -> WindowMessage:
    return WindowMessage(
        role=role,
        content=content,
        sender_name=sender_name,
        created_at=datetime(2024, 1, 15, 18, 30, tzinfo=UTC),
        token_count=1,
        dialogue_id=None,
    )


TALK = [
    said("我下周三要去上海出差"),
    said("好的", role="assistant", sender_name=None),
    said("我不吃辣，订餐的时候记得"),
]


@pytest.fixture
async def model(chat_provider: ChatProvider) -> AsyncIterator[ChatModel]:
    model = ChatModel(
        base_url=chat_provider.base_url, api_key=chat_provider.key, model=chat_provider.model, timeout_s=20
    )
    yield model
    await model.aclose()


def data_lines(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    return [json.loads(line) for line in messages[-1]["content"].splitlines() if line.startswith("{")]


def test_messages_are_data_with_time_and_speaker() -> None:
    messages = summary_messages(TALK, max_chars=200, zone=SHANGHAI)
    assert [message["role"] for message in messages] == ["system", "user"]
    assert data_lines(messages)[:2] == [
        {"time": "2024-01-16 02:30", "speaker": "user(小明)", "content": "我下周三要去上海出差"},
        {"time": "2024-01-16 02:30", "speaker": "assistant", "content": "好的"},
    ]
    assert "200" in messages[1]["content"]


@given(st.text(), st.text(min_size=1))
def test_no_message_leaves_its_quotes(content: str, sender_name: str) -> None:
    messages = summary_messages([said(content, sender_name=sender_name)] * 2, max_chars=200, zone=SHANGHAI)
    lines = data_lines(messages)
    assert [line["content"] for line in lines] == [content.replace("<|", "< |")] * 2
    assert "<|" not in messages[1]["content"]


def test_a_long_message_is_quoted_in_part() -> None:
    messages = summary_messages([said("中" * 100_000)], max_chars=200, zone=SHANGHAI)
    assert len(messages[1]["content"]) < 5_000


@pytest.mark.parametrize(
    ("texts", "language"),
    [
        (["我用 Docker 部署 nginx"], "zh"),
        (["好的", "the quick brown fox jumps over the lazy dog"], "en"),
        (["See you on Friday!"], "en"),
        (["Rendez-vous à Orléans"], "en"),
        (["👍", "123"], "zh"),
        ([], "zh"),
    ],
)
def test_the_language_is_that_of_most_words(texts: list[str], language: str) -> None:
    assert conversation_language(texts) == language


def test_english_talk_is_asked_for_in_english() -> None:
    messages = summary_messages([said("I moved to Berlin last week.")], max_chars=200, zone=SHANGHAI)
    assert not regex.search(r"\p{Han}", messages[0]["content"])


async def test_a_model_is_asked_and_its_answer_fits(chat_provider: ChatProvider, model: ChatModel) -> None:
    answer = await model.complete(summary_messages(TALK, max_chars=200, zone=SHANGHAI))
    assert chat_provider.requests()["kinds"] == ["summary"]
    summary = fit_summary(answer.text, 200)
    assert "上海" in summary
    assert "不吃辣" in summary
    assert len(summary) <= 200


@pytest.mark.parametrize(
    ("answer", "summary"),
    [
        ("小明下周三去上海。", "小明下周三去上海。"),
        ("摘要：小明下周三去上海。", "小明下周三去上海。"),
        ("**摘要**：\n小明下周三去上海。", "小明下周三去上海。"),
        ("以下是对话摘要：\n\n小明下周三去上海。", "小明下周三去上海。"),
        ("对话摘要如下: 小明下周三去上海。", "小明下周三去上海。"),
        ("Here is a short summary:\nMing flies.", "Ming flies."),
        ("Summary: Ming flies.", "Ming flies."),
        ("<think>他说了什么</think>\n小明下周三去上海。", "小明下周三去上海。"),
        ("```\n小明下周三去上海。\n```", "小明下周三去上海。"),
        ("```text\n摘要：小明下周三去上海。\n```", "小明下周三去上海。"),
        ("“小明下周三去上海。”", "小明下周三去上海。"),
        ("“小明”去“上海”", "“小明”去“上海”"),
        ("- 去上海\n\n\n- 不吃辣\n", "- 去上海\n- 不吃辣"),
        ("摘要的格式：一段话", "摘要的格式：一段话"),
        ("", ""),
        ("<think>没有说完", ""),
        ("摘要：", ""),
        ("\u200b\n", ""),
    ],
)
def test_only_the_summary_is_kept(answer: str, summary: str) -> None:
    assert fit_summary(answer, 200) == summary


@pytest.mark.parametrize(
    ("answer", "max_chars", "summary"),
    [
        ("去上海出差。不吃辣，不吃香菜。", 10, "去上海出差。"),
        ("He flies on Friday. He likes tea and cake.", 30, "He flies on Friday."),
        ("版本是3.14159的那个程序", 9, "版本是3.141…"),
        ("去。上海出差不吃辣不吃香菜", 10, "去。上海出差不吃辣…"),
        ("家人👨‍👩‍👧‍👦都好", 8, "家人…"),
        ("家人👨‍👩‍👧‍👦都好", 10, "家人👨‍👩‍👧‍👦…"),
        ("上海", 2, "上海"),
    ],
)
def test_what_is_too_long_ends_with_a_sentence_or_a_grapheme(
    answer: str, max_chars: int, summary: str
) -> None:
    assert fit_summary(answer, max_chars) == summary


@given(answer=st.text(), max_chars=st.integers(1, 50))
def test_no_summary_is_too_long(answer: str, max_chars: int) -> None:
    assert len(fit_summary(answer, max_chars)) <= max_chars


@pytest.mark.parametrize(
    "part", ["<think>", "```\n", "以下是", "here is ", "。", "👨\u200d", "\u0301", "\n", "\n \t", "“"]
)
def test_long_answers_take_no_time(part: str) -> None:
    for answer in (part * 100_000, f"```\n{part * 100_000}x"):
        assert len(fit_summary(answer, 200)) <= 200
