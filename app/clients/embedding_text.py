"""What is done to a text before an embedding model sees it. Pure."""

import re
import unicodedata

import regex

_UNPAIRED_SURROGATE = re.compile("[\ud800-\udfff]")
_GRAPHEME = regex.compile(r"\X")
_LONGEST_GRAPHEME_CHARS = 64


def prepare_text(text: str, *, max_chars: int) -> str:
    """The text as a model can take it, or "" where nothing of it can be embedded.

    NUL goes (C libraries end the text there), an unpaired surrogate becomes U+FFFD (it has no UTF-8), and
    what is over the length is cut off between two graphemes.
    """
    text = cut_text(_UNPAIRED_SURROGATE.sub("\ufffd", text.replace("\0", "")), max_chars)
    return "" if all(character.isspace() or _is_invisible(character) for character in text) else text


def cut_text(text: str, max_chars: int) -> str:
    """The beginning of a text, at most `max_chars` code points, ending between two graphemes."""
    if len(text) <= max_chars:
        return text
    end = start = max(0, max_chars - _LONGEST_GRAPHEME_CHARS)
    for grapheme in _GRAPHEME.finditer(text, start, max_chars + _LONGEST_GRAPHEME_CHARS):
        if grapheme.end() > max_chars:
            break
        end = grapheme.end()
    return text[:end] if end > start else text[:max_chars]


def _is_invisible(character: str) -> bool:
    return unicodedata.category(character) in {"Cf", "Cc"}
