"""The rerank protocol of SiliconFlow (Jina, Cohere, TEI behind gateways), as payload and back. Pure."""

import math
from collections.abc import Sequence
from typing import Any

import orjson


def rerank_payload(*, model: str, query: str, documents: Sequence[str]) -> dict[str, Any]:
    """The request: a score for every document, and no text back."""
    return {
        "model": model,
        "query": query,
        "documents": list(documents),
        "top_n": len(documents),
        "return_documents": False,
    }


def read_scores(body: bytes, *, count: int) -> list[float]:
    """The scores of an answer, in the order of the documents, 0 to 1.

    Logits (some score is outside of 0 to 1) are brought there by the logistic function.

    Raises:
        ValueError: it is not an answer to `count` documents; says why.
    """
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise ValueError("no JSON") from None
    results = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(results, list) or not all(isinstance(one, dict) for one in results):
        raise ValueError("no list of results")
    if len(results) != count:
        raise ValueError(f"{len(results)} results for {count} documents")
    scores: dict[int, float] = {}
    for one in results:
        index, score = one.get("index"), one.get("relevance_score")
        if type(index) is not int or not 0 <= index < count or index in scores:
            raise ValueError("results whose indexes are not those of the documents")
        if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
            raise ValueError("a relevance that is not a number")
        scores[index] = float(score)
    ordered = [scores[index] for index in range(count)]
    if all(0 <= score <= 1 for score in ordered):
        return ordered
    return [1 / (1 + math.exp(-max(-60.0, min(60.0, score)))) for score in ordered]
