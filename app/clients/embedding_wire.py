"""The embeddings protocol of OpenAI and SiliconFlow, as bytes and back. Pure."""

import base64
import binascii
import json
import re
from typing import Any, Final

import numpy as np
import orjson

from app.clients.embedding_model import Embedded
from app.errors import ProviderRejectedError

_FLOAT_KINDS: Final = "fiu"
_NUMBER = re.compile(r"\d+")
_BATCH = re.compile(r"(?i)batch|number of inputs|too many inputs|(array|list) (length|size)")


class NoVectorError(ValueError):
    """An answer in which no vector is good."""


def takes_dimensions(model: str) -> bool:
    """Whether the model is a Qwen3-Embedding: it wants `dimensions` in every request, a query an instruction.

    The bge models answer 400 to `dimensions`.
    """
    return "qwen3-embedding" in model.lower()


def instruct_query(text: str, instruction: str) -> str:
    """A query as Qwen3-Embedding was trained on it; documents get nothing.

    Source: README of QwenLM/Qwen3-Embedding: no blank after `Query:`.
    """
    return f"Instruct: {instruction}\nQuery:{text}"


def batch_limit(message: str, *, sent: int) -> int | None:
    """The most inputs a provider takes, if that is what its error message is about; less than were sent."""
    # What speaks of tokens is about one long text, and must not make all later batches small.
    if sent <= 1 or "token" in message.lower() or not _BATCH.search(message):
        return None
    named = [number for number in map(int, _NUMBER.findall(message)) if 1 <= number < sent]
    return max(named, default=sent // 2)


def length_limit_tokens(message: str) -> int | None:
    """The most tokens an input may have, if the error message names a number that can be that."""
    named = [number for number in map(int, _NUMBER.findall(message)) if 128 <= number <= 200_000]  # noqa: PLR2004
    return min(named, default=None) if "token" in message.lower() else None


def max_answer_bytes(*, count: int, dimensions: int) -> int:
    """Far over what an honest answer takes: 25 bytes write any float64."""
    return 1_000_000 + count * (dimensions * 32 + 1000)


def read_vectors(body: bytes, *, count: int, dimensions: int) -> list[Embedded]:
    """The vectors of an answer, in the order of the inputs.

    A vector that is none is its text's fault only beside one that is: a model that has become another, or a
    server that computes nothing but NaN, must not cost every text its vector.

    Raises:
        ValueError: it is not an answer to `count` inputs, or has no good vector; says why.
    """
    data = _parse(body)
    items = data.get("data") if isinstance(data, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError("no list of embeddings")
    if len(items) != count:
        raise ValueError(f"{len(items)} embeddings for {count} inputs")
    indexes = [item.get("index") for item in items]
    if any(index is not None for index in indexes):
        if sorted(index for index in indexes if type(index) is int) != list(range(count)):
            raise ValueError("embeddings whose indexes are not those of the inputs")
        items.sort(key=lambda item: item["index"])
    embedded = [_read_vector(item.get("embedding"), dimensions) for item in items]
    if embedded and all(isinstance(one, ProviderRejectedError) for one in embedded):
        raise NoVectorError(str(embedded[0]))
    return embedded


def _parse(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        try:
            # Python's reader takes NaN and Infinity: then one vector is bad, not the whole answer.
            return json.loads(body)
        except (ValueError, RecursionError):
            raise ValueError("no JSON") from None


def _read_vector(embedding: object, dimensions: int) -> Embedded:
    try:
        if isinstance(embedding, str):
            wide = np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4").astype(np.float64)
        else:
            raw = np.asarray(embedding)
            if raw.dtype.kind not in _FLOAT_KINDS or raw.ndim != 1:
                return ProviderRejectedError("the model answered something that is not a list of numbers")
            wide = raw.astype(np.float64)
    except (ValueError, OverflowError, binascii.Error):
        return ProviderRejectedError("the model answered something that is not a list of numbers")
    if wide.shape[0] != dimensions:
        return ProviderRejectedError(
            f"the model answered {wide.shape[0]} dimensions where EMBEDDING_DIMENSIONS is {dimensions}"
        )
    if not np.isfinite(wide).all():
        return ProviderRejectedError("the model answered numbers that are not finite")
    largest = np.abs(wide).max()
    if largest == 0:
        return ProviderRejectedError("the model answered a zero vector, which is similar to nothing")
    wide /= largest  # so that no square is too large or too small for a float
    return (wide / np.linalg.norm(wide)).astype(np.float32)
