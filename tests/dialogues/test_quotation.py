import json

from hypothesis import given
from hypothesis import strategies as st

from app.dialogues.quotation import excerpt, quote_as_json

TEXTS = st.text(st.characters(exclude_categories=[]) | st.sampled_from('\r\n\x0b\x85\u2028\u2029<|"\\{}'))


@given(TEXTS)
def test_a_quotation_is_one_line_and_says_the_same(text: str) -> None:
    line = quote_as_json({"content": text})
    assert len(line.splitlines()) == 1
    assert "<|" not in line
    assert json.loads(line) == {"content": text.replace("<|", "< |")}


@given(TEXTS, st.integers(3, 50))
def test_an_excerpt_is_the_text_or_its_ends(text: str, max_chars: int) -> None:
    part = excerpt(text, max_chars=max_chars)
    if len(text) <= max_chars:
        assert part == text
    else:
        assert text.startswith(part[: max_chars - max_chars // 3])
        assert text.endswith(part[-(max_chars // 3) :])
        assert len(part) <= max_chars + 20
        assert f"-{len(text) - max_chars}]" in part
