"""The lexical side of search: what a query looks for, BM25, and keywords. Pure."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import add
from typing import Final

from app.dialogues.terms import split_pieces, word_terms
from app.dialogues.text import normalize_text
from app.recall.stop_words import STOP_PAIRS, STOP_SIGNS, STOP_WORDS

QUERY_TERMS_LIMIT: Final = 48

_LONE_SIGN_WEIGHT: Final = 0.15
_HALF_STOP_WEIGHT: Final = 0.5
_PART_WEIGHT: Final = 0.5
_STOP_WEIGHT: Final = 0.1


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
    best = sorted(kept, key=lambda term: (-kept[term], -repeats[term]))[:QUERY_TERMS_LIMIT]
    return {term: kept[term] for term in best}


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


def bm25_scores(
    query: Mapping[str, float],
    documents: Sequence[Mapping[str, int]],
    *,
    total_documents: int | None = None,
    document_frequencies: Mapping[str, int] | None = None,
    k1: float = 1.2,
    b: float = 0.4,
) -> list[float]:
    """Scores documents against weighted query terms; 0 where none is shared.

    Args:
        query: term to weight.
        documents: how often each has each of its terms.
        total_documents: how many documents there are of which these are some; at least their number.
        document_frequencies: in how many of all documents a term is; counted in `documents` where None.
        k1: how slowly repeats of a term stop counting, > 0.
        b: how much a document's length counts, 0 to 1; low for chat, where the longer message says more.

    Source: Robertson and Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009), with the
    idf ln(1 + (N - n + 0.5) / (n + 0.5)), which is never negative.
    """
    hits = [{term: document[term] for term in query if term in document} for document in documents]
    lengths = [sum(document.values()) for document in documents]
    if document_frequencies is None:
        document_frequencies = Counter(term for hit in hits for term in hit)
    total = max(total_documents or 0, len(documents))
    mean_length = sum(lengths) / len(lengths) if lengths else 0.0
    worth: dict[str, float] = {}
    for term, weight in query.items():
        frequency = min(document_frequencies.get(term, 0), total)
        worth[term] = weight * math.log1p((total - frequency + 0.5) / (frequency + 0.5)) * (k1 + 1)
    scores: list[float] = []
    for hit, length in zip(hits, lengths, strict=True):
        norm = k1 * (1 - b + b * length / mean_length) if hit else 0.0
        scores.append(sum(worth[term] * count / (count + norm) for term, count in hit.items()))
    return scores


def contains_all(text: str, keywords: Sequence[str]) -> bool:
    """Tells whether each keyword occurs in `text`, whatever the case or the width of its characters.

    `%`, `_` and `*` are characters like any other.
    """
    folded = normalize_text("NFKC", text).casefold()
    return all(normalize_text("NFKC", keyword).casefold().strip() in folded for keyword in keywords)
