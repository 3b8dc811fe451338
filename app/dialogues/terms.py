"""The terms by which a text is found word for word, and their signature. Pure.

Chinese, Japanese, Korean and the scripts of South-East Asia are written without blanks between words, or
with endings that stick to them; their runs give overlapping pairs of characters, which name most words
exactly, and single characters, which find a word of one. Words of other scripts are folded and, in English,
stemmed. Numbers, versions, addresses and codes (`ord123456`, `192.168.1.1`, `c++`) stay whole and also give
their parts.
"""

import re
import threading
import unicodedata
import zlib
from collections.abc import Iterable
from functools import lru_cache
from operator import add
from typing import Final, NamedTuple

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
_TEXT_PIECES: Final = re.compile(rf"([{_UNSPACED}]+)|({_WORD}(?:[._@+\-&'’]{_WORD}){{0,8}}(?:\+\+|#)?)")
# The same for ASCII, where it is matched several times as fast.
_ASCII_PIECES: Final = re.compile(r"[a-z0-9]{1,64}(?:[._@+\-&'][a-z0-9]{1,64}){0,8}(?:\+\+|#)?")
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


class Outline(NamedTuple):
    """A text as its terms are looked up in it, without the many terms of its unspaced runs being made.

    Attributes:
        folded: the text as its runs stand in it: a term of a run occurs wherever it stands in here.
        word_terms: the terms of its words, repeats included.
        length: how many terms it has in all, those of runs included.
    """

    folded: str
    word_terms: list[str]
    length: int


def outline(text: str) -> Outline:
    """The same terms as `document_terms` gives, for looking up a few of them."""
    terms: list[str] = []
    if text.isascii():
        folded = text.lower()
        for word in _ASCII_PIECES.findall(folded):
            terms += word_terms(word)
        return Outline(folded, terms, len(terms))
    folded = _fold(text)
    length = 0
    for run, word in _TEXT_PIECES.findall(folded):
        if run:
            length += 2 * len(run) - 1
        else:
            terms += word_terms(word)
    return Outline(folded, terms, length + len(terms))


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
