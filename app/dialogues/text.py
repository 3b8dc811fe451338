"""Text from outside made safe to store, to send and to compare. Pure."""

import re
import unicodedata
from itertools import pairwise
from typing import Final, Literal

import regex

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
# What shows no ink: white space, control characters, everything Unicode lets a renderer ignore (zero-width
# characters, variation selectors, fillers, tags), the blank braille cell, and interlinear annotation marks.
_VISIBLE: Final = regex.compile(r"[^\s\p{Z}\p{Cc}\p{Default_Ignorable_Code_Point}\u2800\uFFF9-\uFFFB]")
# The half-width voicing marks are letters that decompose into combining marks.
_LONG_MARK_RUN: Final = regex.compile(r"[\p{M}\uFF9E\uFF9F]{31,}+")
_MARKS_PER_PIECE: Final = 30

NormalForm = Literal["NFC", "NFKC"]


def clean_text(text: str) -> str:
    """Returns `text` without NUL, with each surrogate pair joined and each unpaired surrogate as U+FFFD."""
    if _SURROGATE.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", "")


def is_blank(text: str) -> bool:
    """Tells whether nothing of `text` would be seen: empty, white space, zero-width characters only."""
    return _VISIBLE.search(text) is None


def normalize_text(form: NormalForm, text: str) -> str:
    """Brings `text` into a Unicode normal form, in linear time whatever the text.

    The standard library sorts a run of combining marks by insertion: 100,000 of them take eight seconds.
    A run longer than 30, which no writing system has, is therefore sorted in pieces of 30, the length that
    Unicode's stream-safe text format allows (UAX #15, section 13).
    """
    if text.isascii():
        return text
    if _LONG_MARK_RUN.search(text) is None:
        return unicodedata.normalize(form, text)
    places = [0]
    for run in _LONG_MARK_RUN.finditer(text):
        places += range(run.start() + _MARKS_PER_PIECE, run.end(), _MARKS_PER_PIECE)
    places.append(len(text))
    return "".join(unicodedata.normalize(form, text[start:end]) for start, end in pairwise(places))
