"""What a provider is quoted with says nothing of what was sent to it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.clients.redaction import without_what_was_sent

SAID = "我叫王小明，银行卡号是6222020200112233445，密码是hunter2"


def sent(*texts: str) -> dict[str, object]:
    return {"model": "test/model", "messages": [{"role": "user", "content": text} for text in texts]}


@pytest.mark.parametrize(
    ("message", "left"),
    [
        ("model test/model not found", "model test/model not found"),
        ("messages[0].role: user is not allowed", "messages[0].role: user is not allowed"),
        (f"bad content: '{SAID}'", "bad content: '…'"),
        ("blocked by policy: 银行卡号是6222020200112233445，密", "blocked by policy: …"),
        (f"{SAID[:12]} and more", "… and more"),
        ("max_tokens must be under 100", "max_tokens must be under 100"),
    ],
)
def test_what_was_said_is_left_out_and_the_reason_stays(message: str, left: str) -> None:
    assert without_what_was_sent(message, sent("You are a helpful assistant.", SAID)) == left


def test_a_short_text_is_left_out_where_it_is_quoted_whole() -> None:
    assert without_what_was_sent("invalid input: hunter2", sent("hunter2")) == "invalid input: …"
    assert without_what_was_sent("invalid input: hunter2", {"input": ["a", "hunter2"]}) == "invalid input: …"
    assert without_what_was_sent("an internal error", sent("a")) == "an internal error"


def test_what_stands_on_several_lines_is_known_on_one() -> None:
    said = "first line of the text\n\nsecond line of it"
    assert without_what_was_sent(f"refused: {said}", sent(said)) == "refused: …"


@given(st.lists(st.sampled_from("银行卡密码甲乙丙丁戊己庚辛"), min_size=6).map("".join), st.integers(0, 50))
def test_no_six_signs_of_what_was_said_are_left(said: str, place: int) -> None:
    part = said[place % max(1, len(said) - 5) :]
    found = without_what_was_sent(f"refused: {part} (code 1)", sent(said))
    assert not any(said[start : start + 6] in found for start in range(len(said) - 5))
    assert found.startswith("refused: ")
    assert found.endswith(" (code 1)")
