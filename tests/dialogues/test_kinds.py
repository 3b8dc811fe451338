"""Facts, preferences and decisions told from chat, and the labelled messages on which that is measured."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dialogues.kinds import classify
from benchmarks.rules import measure_kinds, read_turns


def kind(content: str) -> str:
    return classify(content, role="user")


@pytest.mark.parametrize("split", ["dev", "held"])
def test_what_is_called_knowledge_is(split: str) -> None:
    figures = measure_kinds(read_turns(split))  # type: ignore[arg-type]
    assert figures["all kinds"].precision >= 0.9
    assert figures["all kinds"].recall >= 0.75
    for name in ("fact", "preference", "decision"):
        assert figures[name].precision >= 0.9
        assert figures[name].recall >= 0.6


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("我女儿叫小美", "fact"),
        ("我不喜欢太啰嗦的风格", "preference"),
        ("好的，那就选周五的方案", "decision"),
        ("I prefer short answers", "preference"),
        ("we decided to use PostgreSQL", "decision"),
        ("my birthday is May 12", "fact"),
    ],
)
class TestAsserted:
    def test_it_is_told(self, statement: str, expected: str) -> None:
        assert kind(statement) == expected

    def test_case_width_and_what_opens_it_do_not_matter(self, statement: str, expected: str) -> None:
        assert kind(statement.upper()) == expected
        assert kind(("well, " if statement.isascii() else "对了，") + statement) == expected

    def test_among_chat_it_is_found(self, statement: str, expected: str) -> None:
        assert kind(f"哈哈哈。\n{statement}。今天天气真好！") == expected

    @pytest.mark.parametrize(
        "frame", ["如果{}呢", "{}，对吗？", "“{}”是什么意思", "他说，{}", "翻译：{}", "{}？"]
    )
    def test_asked_supposed_quoted_or_reported_it_is_chat(
        self, statement: str, expected: str, frame: str
    ) -> None:
        assert kind(frame.format(statement)) == "chat" != expected

    def test_the_assistant_states_nothing(self, statement: str, expected: str) -> None:
        assert classify(statement, role="assistant") == "chat" != expected


def test_a_question_behind_a_fact_leaves_the_fact() -> None:
    assert kind("我的订单号是ORD123456，什么时候发货？") == "fact"


def test_a_wish_to_remember_is_what_it_wishes() -> None:
    assert kind("帮我记一下：我们决定用PostgreSQL") == "decision"
    assert kind("remember that I don't like cilantro") == "preference"


def test_the_strongest_is_kept() -> None:
    assert kind("我叫小鱼，我喜欢蓝色") == "preference"
    assert kind("我喜欢蓝色，那就选蓝色的吧") == "decision"


@given(st.text())
def test_any_text_has_a_kind(content: str) -> None:
    assert kind(content) in {"fact", "preference", "decision", "chat"}


@pytest.mark.parametrize(
    "piece", ["我的", "我女儿", "就", "“", "决定", "i like ", "a" * 50, "别给我", "我,", "???"]
)
def test_a_message_of_any_length_is_read(piece: str) -> None:
    assert kind(piece * (100_000 // len(piece))) in {"chat", "preference"}
