import base64
import json
import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.clients.embedding_wire import (
    NoVectorError,
    batch_limit,
    length_limit_tokens,
    read_vectors,
    takes_dimensions,
)
from app.errors import ProviderRejectedError


def answer(*embeddings: object) -> bytes:
    data = [{"index": index, "embedding": embedding} for index, embedding in enumerate(embeddings)]
    return json.dumps({"data": data}).encode()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=4, max_size=4).filter(any))
def test_any_finite_vector_but_zero_becomes_a_unit_vector(values: list[float]) -> None:
    [vector] = read_vectors(answer(values), count=1, dimensions=4)
    assert isinstance(vector, np.ndarray)
    assert vector.dtype == np.float32
    assert float(np.linalg.norm(vector)) == pytest.approx(1, abs=1e-5)
    largest = max(range(4), key=lambda place: abs(values[place]))
    assert math.copysign(1, vector[largest]) == math.copysign(1, values[largest])


@pytest.mark.parametrize(
    ("embedding", "reason"),
    [
        ([0.0, 0.0], "zero"),
        ([float("nan"), 1.0], "finite"),
        ([float("inf"), 1.0], "finite"),
        ([1.0], "1 dimensions where EMBEDDING_DIMENSIONS is 2"),
        ([1.0, 2.0, 3.0], "3 dimensions"),
        (None, "list of numbers"),
        (["0.1", "0.2"], "list of numbers"),
        ([True, False], "list of numbers"),
        ([[1.0, 2.0]], "list of numbers"),
        ([[1.0], [1.0, 2.0]], "list of numbers"),
        ([10**400, 1], "list of numbers"),
        ({"a": 1}, "list of numbers"),
        ("???", "list of numbers"),
        ("AAAA", "list of numbers"),
    ],
)
def test_a_spoilt_vector_spoils_no_other(embedding: object, reason: str) -> None:
    good, spoilt = read_vectors(answer([3, 4], embedding), count=2, dimensions=2)
    assert isinstance(good, np.ndarray)
    assert good.tolist() == pytest.approx([0.6, 0.8])
    assert isinstance(spoilt, ProviderRejectedError)
    assert reason in str(spoilt)


@pytest.mark.parametrize("embedding", [[0.0, 0.0], [float("nan"), 1.0], [1.0], [1.0, 2.0, 3.0], None])
@pytest.mark.parametrize("count", [1, 3])
def test_where_no_vector_is_good_no_text_is_blamed(embedding: object, count: int) -> None:
    with pytest.raises(NoVectorError, match="the model answered"):
        read_vectors(answer(*[embedding] * count), count=count, dimensions=2)


def test_base64_holds_little_endian_floats() -> None:
    content = base64.b64encode(struct.pack("<2f", 3.0, 4.0)).decode()
    [vector] = read_vectors(answer(content), count=1, dimensions=2)
    assert isinstance(vector, np.ndarray)
    assert vector.tolist() == pytest.approx([0.6, 0.8])


def test_vectors_stand_in_the_order_of_their_indexes() -> None:
    body = json.dumps(
        {"data": [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0]}]}
    ).encode()
    first, second = read_vectors(body, count=2, dimensions=2)
    assert isinstance(first, np.ndarray)
    assert isinstance(second, np.ndarray)
    assert first.tolist() == [1, 0]
    assert second.tolist() == [0, 1]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b'{"data": null}',
        b'{"data": [1, 2]}',
        b'{"data": [{"index": 0, "embedding": [1, 0]}]}',
        b'{"data": [{"index": 0, "embedding": [1, 0]}, {"index": 0, "embedding": [0, 1]}]}',
        b'{"data": [{"index": 1, "embedding": [1, 0]}, {"index": 2, "embedding": [0, 1]}]}',
        b'{"data": [{"index": 0, "embedding": [1, 0]}, {"embedding": [0, 1]}]}',
        b'{"data": [{"index": true, "embedding": [1, 0]}, {"index": 0, "embedding": [0, 1]}]}',
        b"[" * 100_000,
    ],
)
def test_an_answer_to_something_else_is_none(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"no JSON|no list|embeddings for|indexes"):
        read_vectors(body, count=2, dimensions=2)


@pytest.mark.parametrize(
    ("message", "sent", "limit"),
    [
        ("batch size 100 > maximum allowed batch size 32", 100, 32),
        ("input batch size limit is 64, got 100", 100, 64),
        ("Batch size too large", 40, 20),
        ("batch size 1 > maximum allowed batch size 0", 1, None),
        ("input must have less than 8192 tokens", 32, None),
        ("batch token limit is 512", 32, None),
        ("The parameter is invalid", 32, None),
    ],
)
def test_the_batch_limit_is_read_from_the_message(message: str, sent: int, limit: int | None) -> None:
    assert batch_limit(message, sent=sent) == limit


def test_the_length_limit_is_read_from_the_message() -> None:
    assert length_limit_tokens("input must have less than 512 tokens") == 512
    assert length_limit_tokens("The parameter is invalid, code 20015") is None


@pytest.mark.parametrize(
    ("model", "takes"),
    [
        ("Qwen/Qwen3-Embedding-0.6B", True),
        ("Pro/qwen/qwen3-embedding-8b", True),
        ("qwen3-embedding:0.6b", True),
        ("BAAI/bge-m3", False),
        ("Qwen/Qwen3-8B", False),
    ],
)
def test_dimensions_are_for_the_qwen3_embedding_models(model: str, *, takes: bool) -> None:
    assert takes_dimensions(model) is takes
