"""The terms by which a text is found word for word, and their signature. Pure.

Chinese, Japanese, Korean and the scripts of South-East Asia are written without blanks between words, or
with endings that stick to them; their runs give overlapping pairs of characters, which name most words
exactly, and single characters, which find a word of one. Words of other scripts are folded and, in English,
stemmed. Numbers, versions, addresses and codes (`ord123456`, `192.168.1.1`, `c++`) stay whole and also give
their parts.
"""

import re
import sys
import threading
import unicodedata
import zlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from operator import add
from typing import Final, NamedTuple

import numpy as np
from snowballstemmer import stemmer

from app.dialogues.text import normalize_text

SIGNATURE_BITS: Final = 512

_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u1100-\u11ff\u3130-\u318f\uac00-\ud7ff"  # hangul
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"  # kana and signs of iteration
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # hanzi
)
# Accents that have no letter of their own, and the signs of Indic scripts.
_MARKS: Final = "\u0300-\u036f\u0900-\u0963\u0966-\u0dff"
# A wall of letters is cut in pieces, so that no term and no entry of a cache grows with the text.
_WORD: Final = rf"[^\W_{_UNSPACED}](?:[^\W_{_UNSPACED}]|[{_MARKS}]){{0,63}}"
_WORDS: Final = rf"{_WORD}(?:[._@+\-&'’]{_WORD}){{0,8}}(?:\+\+|#)?"
_TEXT_PIECES: Final = re.compile(rf"([{_UNSPACED}]+)|({_WORDS})")
# No text holds it, and no term.
_END: Final = "\0"
_TEXT_WORDS_AND_ENDS: Final = re.compile(rf"{_END}|{_WORDS}")
# The same for ASCII, where it is matched several times as fast.
_ASCII_WORDS: Final = r"[a-z0-9]{1,64}(?:[._@+\-&'][a-z0-9]{1,64}){0,8}(?:\+\+|#)?"
_ASCII_PIECES: Final = re.compile(_ASCII_WORDS)
_ASCII_PIECES_AND_ENDS: Final = re.compile(rf"{_END}|{_ASCII_WORDS}")
# All but what NFKC leaves alone or turns from one sign between words into another: most Chinese texts hold
# nothing else, and normalisation takes longer than all the rest.
_UNFOLDED: Final = re.compile(
    r"[^\x00-\x7f\u3001-\u3035\u4e00-\u9fff\u3041-\u3093\u30a1-\u30f6\u30fc，！？：；（）“”‘’…—]"
)
_UNSPACED_TERM: Final = re.compile(rf"[{_UNSPACED}]{{1,2}}")
_PARTS: Final = re.compile(rf"(?:[^\W\d_]|[{_MARKS}])+|\d+")
_ENGLISH: Final = re.compile(r"[a-z]+")
_CONTRACTION: Final = re.compile(r"([^\W\d_]+)['’](?:s|t|m|d|re|ve|ll)")
_ACCENTS: Final = re.compile("[\u0300-\u036f]")
# Joints that people write or leave out: e-mail, 138-0013-8000, GPT_4.
_JOINTS: Final = re.compile(r"[-_'’]")
_STEMMER: Final = stemmer("english")
_STEMMING: Final = threading.Lock()
_TERMS_CACHED: Final = 1 << 15
_PLACES_CACHED: Final = 1 << 16
_ONE: Final = ord("1")

# What a sign is, by its code point.
_IS_OF_RUN: Final = 1
_IS_BETWEEN: Final = 2
_IS_FOLDED: Final = 4


def _make_signs() -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    signs = np.zeros(sys.maxunicode + 1, np.uint8)
    for first, last in re.findall("(.)-(.)", _UNSPACED):
        signs[ord(first) : ord(last) + 1] |= _IS_OF_RUN | _IS_BETWEEN
    for sign in " ，。！？：；、（）“”…—":
        signs[ord(sign)] |= _IS_BETWEEN
    basic = "".join(map(chr, range(0x10000)))
    for sign in _UNFOLDED.sub("", basic):
        if sign.casefold() == sign:
            signs[ord(sign)] |= _IS_FOLDED
    return signs


_SIGNS: Final = _make_signs()


def document_terms(text: str) -> list[str]:
    """Returns the terms of a text, repeats included; their number is the length that BM25 goes by."""
    terms: list[str] = []
    if text.isascii():
        for word in _ASCII_PIECES.findall(text.lower()):
            terms += word_terms(word)
        return terms
    for run, word in split_pieces(text):
        if run:
            signs = list(run)
            terms += signs
            terms += map(add, signs, signs[1:])
        else:
            terms += word_terms(word)
    return terms


class Outlines(NamedTuple):
    """Texts as terms are looked up in them, without the many terms of their unspaced runs being made.

    Attributes:
        signs: code points of all texts that are not ASCII, folded; each text ends with a 0. Two signs of a
            run stand side by side here wherever they do in a text.
        text_of: the number of the text that each sign is of.
        word_terms: of each text the terms of its words, repeats included.
        lengths: how many terms each text has in all, those of runs included.
    """

    signs: np.ndarray[tuple[int], np.dtype[np.uint32]]
    text_of: np.ndarray[tuple[int], np.dtype[np.intp]]
    word_terms: list[list[str]]
    lengths: np.ndarray[tuple[int], np.dtype[np.int64]]


def outline(texts: Sequence[str]) -> Outlines:
    """The same terms as `document_terms` gives, for looking up a few of them in many texts at once."""
    terms: list[list[str]] = [[]] * len(texts)
    numbers, others = [], []
    for number, text in enumerate(texts):
        if text.isascii():
            of_words = map(word_terms, _ASCII_PIECES.findall(text.lower()))
            terms[number] = list(chain.from_iterable(of_words))
        else:
            numbers.append(number)
            others.append(text.replace(_END, " "))
    signs = _join(others)
    kinds = _SIGNS.take(signs, mode="clip")
    unfolded = kinds & _IS_FOLDED == 0
    if unfolded.any():
        # Most texts stand as they are folded; of the others each is folded by itself.
        for place in set((np.cumsum(signs == 0)[unfolded]).tolist()):
            others[place] = _fold(others[place])
        signs = _join(others)
        kinds = _SIGNS.take(signs, mode="clip")
    text_of = np.repeat(np.array(numbers, np.intp), np.diff(np.flatnonzero(signs == 0), prepend=-1))
    between = kinds & _IS_BETWEEN != 0
    # Where no word can be, only one blank is left.
    rest = np.where(between, ord(" "), signs)[~_repeats(between)]
    words: str = rest.tobytes().decode("utf-32-le", "surrogatepass")
    find_pieces = (_ASCII_PIECES_AND_ENDS if words.isascii() else _TEXT_WORDS_AND_ENDS).findall
    left = iter(numbers)
    of_text: list[str] = []
    for piece in find_pieces(words):
        if piece == _END:
            terms[next(left)] = of_text
            of_text = []
        else:
            of_text += word_terms(piece)
    of_run = kinds & _IS_OF_RUN != 0
    # A run of n signs has n of them and n - 1 pairs.
    of_runs = np.bincount(text_of[of_run], minlength=len(texts))
    of_runs += np.bincount(text_of[_repeats(of_run)], minlength=len(texts))
    return Outlines(signs, text_of, terms, of_runs + np.array(list(map(len, terms)), np.int64))


def _join(texts: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    joined = _END.join([*texts, ""])
    return np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)


def _repeats(marked: np.ndarray[tuple[int], np.dtype[np.bool]]) -> np.ndarray[tuple[int], np.dtype[np.bool]]:
    """Which are marked, as is the one before."""
    repeats = marked.copy()
    repeats[:1] = False
    repeats[1:] &= marked[:-1]
    return repeats


def is_of_run(term: str) -> bool:
    """Whether a term is a sign, or a pair of signs, of a script that is written without blanks."""
    return _UNSPACED_TERM.fullmatch(term) is not None


def split_pieces(text: str) -> list[tuple[str, str]]:
    """Returns the pieces of a text in order, folded: each a run of unspaced script, or a word."""
    return _TEXT_PIECES.findall(_fold(text))


def _fold(text: str) -> str:
    if _UNFOLDED.search(text):
        text = normalize_text("NFKC", text)
    return text.casefold()


@lru_cache(maxsize=_TERMS_CACHED)
def word_terms(word: str) -> tuple[str, ...]:
    """Returns the terms of a word that `split_pieces` gave: the whole first, then the parts of a code."""
    if _ENGLISH.fullmatch(word):
        return (_stem(word),)
    contraction = _CONTRACTION.fullmatch(word)
    if contraction:
        return word_terms(contraction[1])
    word = _without_accents(word)
    parts = _PARTS.findall(word)
    if parts == [word]:
        return (_stem(word),)
    whole = _JOINTS.sub("", word)
    return (whole, *(_stem(part) for part in parts if len(part) > 1))


def _without_accents(word: str) -> str:
    if word.isascii():
        return word
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", word)))


@lru_cache(maxsize=_TERMS_CACHED)
def _stem(word: str) -> str:
    if not _ENGLISH.fullmatch(word):
        return word
    with _STEMMING:  # a stemmer keeps the word it works on
        stem: str = _STEMMER.stemWord(word)
    return stem


class _Places(dict[str, int]):
    """The bits of terms: a dict answers faster than an LRU cache, and is emptied when it is full."""

    def __missing__(self, term: str) -> int:
        if len(self) >= _PLACES_CACHED:
            self.clear()
        # A plain CRC is linear in its input; the multiplication spreads terms that differ in one place only.
        place = (zlib.crc32(term.encode("utf-8", "surrogatepass")) * 0x9E3779B1 & 0xFFFFFFFF) >> 23
        self[term] = place
        return place


_PLACES: Final = _Places()


def signature_bit(term: str) -> int:
    """Returns the place of a term in a signature, the same in every process and version."""
    return _PLACES[term]


def signature(terms: Iterable[str]) -> bytes:
    """Returns `SIGNATURE_BITS` bits with the bit of each term set: texts that share terms share bits.

    Bit 0 is the highest of the first byte, as in PostgreSQL's `bit` strings.
    """
    signs = bytearray(b"0" * SIGNATURE_BITS)
    for place in map(_PLACES.__getitem__, terms):
        signs[place] = _ONE
    return int(signs, 2).to_bytes(SIGNATURE_BITS // 8, "big")
