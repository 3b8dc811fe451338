import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from app.clients.embedding_text import cut_text, prepare_text


@pytest.mark.parametrize("text", ["", " \n\t", "\0", "\u200b\u200d", "\u3000", "\ufeff\0 "])
def test_what_cannot_be_seen_is_blank(text: str) -> None:
    assert prepare_text(text, max_chars=100) == ""


def test_text_after_a_nul_is_kept() -> None:
    assert prepare_text("早\0安", max_chars=100) == "早安"


def test_an_unpaired_surrogate_can_be_encoded() -> None:
    assert prepare_text("a\ud83db", max_chars=100) == "a\ufffdb"


def test_a_family_is_not_cut_into_its_members() -> None:
    assert cut_text("ab👨‍👩‍👧", 4) == "ab"


def test_a_grapheme_longer_than_the_limit_is_cut() -> None:
    assert cut_text("e" + "\u0301" * 500, 100) == "e" + "\u0301" * 99


@given(st.text(max_size=300), st.integers(min_value=1, max_value=300))
def test_a_cut_is_a_beginning_of_whole_graphemes_and_as_long_as_fits(text: str, max_chars: int) -> None:
    cut = cut_text(text, max_chars)
    assert text.startswith(cut)
    assert len(cut) <= max_chars
    graphemes: list[str] = regex.findall(r"\X", text)
    if max(map(len, graphemes), default=0) < 32 and len(text) > max_chars:
        assert cut + next_grapheme(graphemes, cut) == text[: len(cut) + len(next_grapheme(graphemes, cut))]
        assert len(cut) + len(next_grapheme(graphemes, cut)) > max_chars


def next_grapheme(graphemes: list[str], cut: str) -> str:
    length = 0
    for grapheme in graphemes:
        if length == len(cut):
            return grapheme
        length += len(grapheme)
    raise AssertionError("the cut does not end between two graphemes")
