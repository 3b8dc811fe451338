"""What tells turns apart, and what makes them the same. Pure."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dialogues.records import Session
from app.evaluation.turns import Turn, turn_hash


def turn(user: str, reply: str = "好") -> Turn:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Turn(
        turn_id="t",
        namespace="default",
        session=Session(1),
        message_uuid="u",
        message_id=None,
        written_hash=1,
        sender_name=None,
        assistant_name=None,
        user_content=user,
        reply=reply,
        status="pending",
        outcome=None,
        score=None,
        retention=None,
        expires_at=None,
        user_dialogue_id=None,
        assistant_dialogue_id=None,
        memories=(),
        summary_ids=(),
        no_match=False,
        degraded=False,
        prompt_tokens=1,
        completion_tokens=1,
        memory_tokens=0,
        attempts=0,
        kept_early=False,
        created_at=now,
        replied_at=now,
    )


def hash_of(user: str, reply: str = "好", *, judge: str = "a judge") -> int:
    return turn_hash(turn(user, reply), judge=judge)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("明天天气？", "明天 天气!"),
        ("Hello, World", "hello world"),
        ("ＡＢＣ１２３", "abc123"),
        ("好。", "好"),
    ],
)
def test_nearly_the_same(one: str, other: str) -> None:
    assert hash_of(one) == hash_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("明天天气", "后天天气"), ("👍", "🆘"), ("?", "!!"), ("C", "C++"), ("有100元", "有$100"), ("", "?")],
)
def test_not_the_same(one: str, other: str) -> None:
    assert hash_of(one) != hash_of(other)


@given(st.text(max_size=50), st.text(max_size=50))
def test_who_said_it_matters_and_it_fits_a_bigint(user: str, reply: str) -> None:
    there, back = hash_of(user, reply), hash_of(reply, user)
    assert -(2**63) <= there < 2**63
    assert (there == back) is (hash_of(user, user) == hash_of(reply, reply))


def test_another_judge_has_scores_of_its_own() -> None:
    assert hash_of("你好") == hash_of("你好！")
    assert hash_of("你好") != hash_of("你好", judge="another")
