"""The lexical side of search: what a query looks for, and BM25. Pure."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import add
from typing import Final, NamedTuple

from app.dialogues.terms import is_of_run, outline, split_pieces, word_terms
from app.recall.stop_words import STOP_PAIRS, STOP_SIGNS, STOP_WORDS

QUERY_TERMS_LIMIT: Final = 48

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
    """Which of a query's terms a document has.

    Attributes:
        length: how many terms the document has in all.
        counts: how often it has each of the query's.
    """

    length: int
    counts: dict[str, int]


class HitFinder:
    """Finds a query's terms in documents, without making the documents' own."""

    def __init__(self, terms: Iterable[str]) -> None:
        """Take the query's terms apart by how they are looked up."""
        terms = list(terms)
        self._of_words = frozenset(term for term in terms if not is_of_run(term))
        # Of 哈哈 there are two in 哈哈哈, of which str.count sees one.
        self._doubled = {
            term: re.compile(f"(?={term})") for term in terms if is_of_run(term) and term[0] == term[1:]
        }
        self._of_runs = [term for term in terms if is_of_run(term)]

    def find(self, text: str) -> TermHits:
        """The hits in a document, the same as counting them among all its terms."""
        folded, word_terms, length = outline(text)
        found = [term for term in self._of_runs if term in folded]
        counts = {
            term: len(self._doubled[term].findall(folded)) if term in self._doubled else folded.count(term)
            for term in found
        }
        if not self._of_words.isdisjoint(word_terms):
            for term in word_terms:
                if term in self._of_words:
                    counts[term] = counts.get(term, 0) + 1
        return TermHits(length, counts)


class Bm25:
    """Scores documents against weighted query terms; 0 where none is shared.

    Source: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), with the
    idf ln(1 + (N - n + 0.5) / (n + 0.5)), which is never negative.
    """

    def __init__(
        self,
        query: Mapping[str, float],
        documents: Sequence[TermHits],
        *,
        total_documents: int | None = None,
        k1: float = 1.2,
        b: float = 0.4,
    ) -> None:
        """Learn how rare the terms are and how long documents are.

        Args:
            query: term to weight.
            documents: those that rarity and length are learnt from.
            total_documents: how many there are of which these are all that have any of the terms; at least
                their number.
            k1: how slowly repeats of a term stop counting, > 0.
            b: how much a document's length counts, 0 to 1; low for chat, where the longer message says more.
        """
        frequencies = Counter(term for document in documents for term in document.counts)
        self.frequencies: Mapping[str, int] = frequencies
        """In how many of the documents each term occurs."""
        total = max(total_documents or 0, len(documents))
        self._mean_length = sum(one.length for one in documents) / max(1, len(documents))
        self._k1 = k1
        self._b = b
        self._worth = {
            term: weight
            * math.log1p((total - frequencies[term] + 0.5) / (frequencies[term] + 0.5))
            * (k1 + 1)
            for term, weight in query.items()
        }

    def score(self, document: TermHits) -> float:
        """The document's score, 0 or more; it need not be one of those learnt from."""
        if not document.counts:
            return 0.0
        norm = self._k1 * (1 - self._b + self._b * document.length / self._mean_length)
        return sum(self._worth[term] * count / (count + norm) for term, count in document.counts.items())
