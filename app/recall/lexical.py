"""The lexical side of search: what a query looks for, and BM25. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import add
from typing import Any, Final, NamedTuple

import numpy as np

from app.dialogues.terms import is_of_run, outline, split_pieces, word_terms
from app.recall.stop_words import STOP_PAIRS, STOP_SIGNS, STOP_WORDS

QUERY_TERMS_LIMIT: Final = 48
Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]

_LONE_SIGN_WEIGHT: Final = 0.15
_HALF_STOP_WEIGHT: Final = 0.5
_PART_WEIGHT: Final = 0.5
_STOP_WEIGHT: Final = 0.1
_PAIR: Final = 2


def query_terms(text: str) -> dict[str, float]:
    """Returns the terms to look for and what each is worth, at most `QUERY_TERMS_LIMIT`.

    A word, a code, a pair of characters is worth 1; a part of a code, a single character of a longer run, a
    pair that is half a function word, less. Function words are left out unless the query is made of nothing
    else.
    """
    weights: dict[str, float] = {}
    repeats: Counter[str] = Counter()
    for run, word in split_pieces(text):
        found = _run_weights(run) if run else _word_weights(word)
        repeats.update(found.keys())
        for term, weight in found.items():
            weights[term] = max(weight, weights.get(term, 0.0))
    telling = {term: weight for term, weight in weights.items() if weight > _STOP_WEIGHT}
    kept = telling or weights
    best = sorted(kept, key=lambda term: (-kept[term], _commonness(term), -repeats[term]))[:QUERY_TERMS_LIMIT]
    return {term: kept[term] for term in best}


def is_telling(term: str) -> bool:
    """Whether a term is a code, a number or a word of a spaced script: rarer than a pair of Chinese signs."""
    return _commonness(term) < _PAIR


def _commonness(term: str) -> int:
    """What a query with too many terms keeps: codes and numbers first, then words, then pairs of signs."""
    if any(map(str.isdigit, term)):
        return 0
    return 1 if term.isascii() else _PAIR


def _run_weights(run: str) -> dict[str, float]:
    if len(run) == 1:
        return {run: _STOP_WEIGHT if run in STOP_SIGNS else 1.0}
    weights = {sign: _STOP_WEIGHT if sign in STOP_SIGNS else _LONE_SIGN_WEIGHT for sign in run}
    for pair in map(add, run, run[1:]):
        if pair in STOP_PAIRS or STOP_SIGNS.issuperset(pair):
            weights[pair] = _STOP_WEIGHT
        else:
            weights[pair] = 1.0 if STOP_SIGNS.isdisjoint(pair) else _HALF_STOP_WEIGHT
    return weights


def _word_weights(word: str) -> dict[str, float]:
    whole, *parts = word_terms(word)
    weights = dict.fromkeys(parts, _PART_WEIGHT)
    weights[whole] = _STOP_WEIGHT if whole in STOP_WORDS else 1.0
    return weights


class TermHits(NamedTuple):
    """Which of a query's terms documents have.

    Attributes:
        lengths: how many terms each document has in all, shape (documents,).
        counts: how often it has each of the query's, shape (documents, terms).
    """

    lengths: Numbers
    counts: np.ndarray[tuple[int, int], np.dtype[np.float64]]


class HitFinder:
    """Finds a query's terms in documents, without making the documents' own."""

    def __init__(self, terms: Iterable[str]) -> None:
        """Take the query's terms apart by how they are looked up; their order is that of the counts."""
        self._places = {term: place for place, term in enumerate(terms)}
        of_runs = [term for term in self._places if is_of_run(term)]
        self._of_words = self._places.keys() - of_runs
        self._pairs = {_pair(*map(ord, term)): self._places[term] for term in of_runs if len(term) == _PAIR}
        # By code point: 0 for a sign that is not asked for, 1 for a part of a pair, from 2 on a term's place.
        # The last stands for all that come after.
        codes = [ord(sign) for term in of_runs for sign in term]
        self._signs = np.zeros(max(codes, default=0) + 2, np.uint8)
        self._signs[codes] = 1
        for term in of_runs:
            if len(term) < _PAIR:
                self._signs[ord(term)] = self._places[term] + 2

    def find(self, texts: Sequence[str]) -> TermHits:
        """The hits in documents, the same as counting them among all their terms."""
        width = len(self._places)
        if not width or not texts:
            return TermHits(np.zeros(len(texts)), np.zeros((len(texts), width)))
        signs, text_of, word_terms, lengths = outline(texts)
        asked = self._signs.take(signs, mode="clip")
        alone = np.flatnonzero(asked > 1)
        paired = np.flatnonzero((asked[:-1] > 0) & (asked[1:] > 0))
        pairs = _pair(signs[paired].astype(np.int64), signs[paired + 1])
        hits = [
            number * width + self._pairs[pair]
            for pair, number in zip(pairs.tolist(), text_of[paired].tolist(), strict=True)
            if pair in self._pairs
        ]
        for number, of_text in enumerate(word_terms if self._of_words else ()):
            if not self._of_words.isdisjoint(of_text):
                hits += [number * width + self._places[term] for term in of_text if term in self._of_words]
        cells = len(texts) * width
        counts = np.bincount(np.array(hits, np.intp), minlength=cells)
        counts += np.bincount(text_of[alone] * width + asked[alone] - 2, minlength=cells)
        return TermHits(lengths.astype(np.float64), counts.reshape(len(texts), width).astype(np.float64))


def _pair(first: Any, second: Any) -> Any:
    """One number for two code points."""
    return (first << 21) | second


class Bm25:
    """Scores documents against weighted query terms; 0 where none is shared.

    Source: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), with the
    idf ln(1 + (N - n + 0.5) / (n + 0.5)), which is never negative.
    """

    def __init__(
        self,
        weights: Iterable[float],
        documents: TermHits,
        *,
        total_documents: int | None = None,
        k1: float = 1.2,
        b: float = 0.4,
    ) -> None:
        """Learn how rare the terms are and how long documents are.

        Args:
            weights: of the query's terms, in the order of the counts.
            documents: those that rarity and length are learnt from.
            total_documents: how many there are of which these are all that have any of the terms; at least
                their number.
            k1: how slowly repeats of a term stop counting, > 0.
            b: how much a document's length counts, 0 to 1; low for chat, where the longer message says more.
        """
        known = len(documents.lengths)
        frequencies = np.count_nonzero(documents.counts, axis=0)
        self.frequencies: list[int] = frequencies.tolist()
        """In how many of the documents each term occurs, in the order of the counts."""
        total = max(total_documents or 0, known)
        # Where no document has a term, there is nothing to be scored.
        self._mean_length = float(documents.lengths.sum()) / max(1, known) or 1.0
        self._k1 = k1
        self._b = b
        rarity = np.log1p((total - frequencies + 0.5) / (frequencies + 0.5))
        self._worth = np.fromiter(weights, np.float64) * rarity * (k1 + 1)

    def scores(self, documents: TermHits) -> list[float]:
        """The documents' scores, 0 or more; they need not be those learnt from."""
        norms = self._k1 * (1 - self._b + self._b * documents.lengths / self._mean_length)
        parts = documents.counts / (documents.counts + norms[:, None])
        scores: list[float] = (parts @ self._worth).tolist()
        return scores
