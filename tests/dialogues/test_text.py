import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.dialogues.text import clean_text, is_blank, normalize_text

anything = st.text(
    st.one_of(
        st.characters(categories=None, exclude_categories=()),
        st.sampled_from("\0\ud83d\ude00\ud800\udfff\u200d👍"),
    )
)
# Runs of marks of different classes are what sorting is slow on.
marked = st.text(st.sampled_from("aﾞé가\u0301\u0316\u0323\u0308"), max_size=400)


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("早\0安", "早安"),
        ("\0", ""),
        ("\ud83d\ude00", "😀"),
        ("好\ud83d", "好\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83dx\ude00😀", "\ufffdx\ufffd😀"),
        ("普通 text 👨\u200d👩\u200d👧", "普通 text 👨\u200d👩\u200d👧"),
    ],
)
def test_what_cannot_be_stored_is_mended(raw: str, clean: str) -> None:
    assert clean_text(raw) == clean


@given(anything)
def test_clean_text_can_be_stored_and_stays_as_it_is(raw: str) -> None:
    clean = clean_text(raw)
    assert "\0" not in clean
    assert clean.encode("utf-8").decode("utf-8") == clean
    assert clean_text(clean) == clean


@given(st.text())
def test_text_that_was_clean_is_not_touched(text: str) -> None:
    assert clean_text(text) == text.replace("\0", "")


@pytest.mark.parametrize("code", [
    0x20, 0x09, 0x0A, 0x0B, 0x1C, 0x85, 0xA0, 0xAD, 0x034F, 0x061C, 0x115F, 0x1160, 0x1680, 0x17B4, 0x180B,
    0x180E, 0x2000, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2028, 0x2029, 0x202E, 0x205F, 0x2060, 0x2064,
    0x2800, 0x3000, 0x3164, 0xFE0F, 0xFEFF, 0xFFA0, 0xFFF9, 0xE0020, 0xE0100,
])  # fmt: skip
def test_what_shows_no_ink_is_blank(code: int) -> None:
    assert is_blank(chr(code))
    assert is_blank(f" {chr(code)}\u200b\n")
    assert not is_blank(f"{chr(code)}好{chr(code)}")


def test_nothing_is_blank() -> None:
    assert is_blank("")


@pytest.mark.parametrize("text", ["。", "0", "👍", "\u0301", "\ufffd", "-", "\u0600"])
def test_what_shows_is_not_blank(text: str) -> None:
    assert not is_blank(text)


@given(st.text())
def test_white_space_of_python_is_blank_here(text: str) -> None:
    if text.isspace():
        assert is_blank(text)


def longest_mark_run(text: str) -> int:
    longest = run = 0
    for character in text:
        run = run + 1 if unicodedata.category(character).startswith("M") or character in "ﾞﾟ" else 0
        longest = max(longest, run)
    return longest


@given(st.one_of(st.text(), marked))
@example("a" + "\u0301\u0316" * 500 + "b")
def test_normal_form_is_that_of_unicode_for_real_text(text: str) -> None:
    assert unicodedata.normalize("NFC", normalize_text("NFC", text)) == unicodedata.normalize("NFC", text)
    if longest_mark_run(text) <= 30:
        assert normalize_text("NFKC", text) == unicodedata.normalize("NFKC", text)


def test_a_wall_of_marks_is_normalised_piece_by_piece() -> None:
    wall = "a" + "\u0301\u0316" * 60
    normal = normalize_text("NFC", wall)
    assert normal != unicodedata.normalize("NFC", wall)
    assert sorted(unicodedata.normalize("NFD", normal)) == sorted(wall)
