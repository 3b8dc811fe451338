import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.brute_force import nearest
from benchmarks.corpus import Corpus, sentence, zipf_sizes
from benchmarks.provider import Provider
from benchmarks.topic_vectors import TopicVectors, code

NOW = datetime(2024, 6, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus(messages=2000, sessions=20, now=NOW)


@given(st.integers(1, 300), st.integers(0, 20_000))
def test_zipf_sizes_add_up_and_never_grow(parts: int, beyond: int) -> None:
    sizes = zipf_sizes(parts + beyond, parts)
    assert sizes.sum() == parts + beyond
    assert len(sizes) == parts
    assert sizes.min() >= 1
    assert (np.diff(sizes) <= 1).all()


def test_messages_are_in_order_of_time_and_none_is_live(corpus: Corpus) -> None:
    times = [corpus.created_at(number) for number in range(corpus.messages)]
    assert times == sorted(times)
    assert NOW - times[-1] > timedelta(hours=1)


def test_a_twentieth_has_expired_and_as_the_numbers_say(corpus: Corpus) -> None:
    expired = {
        number
        for number in range(corpus.messages)
        if (until := corpus.expires_at(number)) is not None and until <= NOW
    }
    assert len(expired) == pytest.approx(corpus.messages * 0.05, rel=0.3)
    live = [int(number) for session in range(20) for number in corpus.live_numbers(session)]
    assert set(live) == set(range(corpus.messages)) - expired
    assert [len(corpus.live_numbers(session)) for session in range(20)] == corpus.live_sizes
    assert all(corpus.created_at(number) <= corpus.expires_at(number) for number in expired)  # type: ignore[operator]


def test_the_file_holds_every_message_and_is_the_same_each_time(corpus: Corpus, tmp_path: Path) -> None:
    corpus.write(tmp_path / "a")
    Corpus(messages=2000, sessions=20, now=NOW).write(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    lines = [json.loads(line) for line in (tmp_path / "a").read_text(encoding="utf-8").splitlines()]
    assert [line["message_id"] for line in lines] == list(range(2000))
    assert {len(line["content"]) // 10 for line in lines} <= set(range(2, 12))


def test_large_sessions_are_asked_most(corpus: Corpus) -> None:
    asked = [query.session for query in corpus.queries(400)]
    assert asked.count(0) > asked.count(10)


def test_a_vector_is_a_function_of_the_last_code_in_the_text() -> None:
    model = TopicVectors(64)
    text = sentence(7, 123)
    expected = model.of_code("message", topic=7, number=123)
    assert np.array_equal(model.of_text(f"小明: {text}"), expected)
    assert np.array_equal(model.of_text(code("message", topic=1, number=1) + text), expected)
    assert not np.array_equal(model.of_text(sentence(7, 124)), expected)
    assert np.linalg.norm(model.of_text("没有编号")) == pytest.approx(1, abs=1e-5)


def test_vectors_of_a_topic_are_near_each_other() -> None:
    model = TopicVectors(256)
    topics = [
        np.array([model.of_code("message", topic=topic, number=number) for number in range(30)])
        for topic in range(8)
    ]
    same = np.mean([(topic @ topic.T).mean() for topic in topics])
    other = np.mean([(topics[0] @ topic.T).mean() for topic in topics[1:]])
    assert same > 0.4
    assert abs(other) < 0.25


def test_the_provider_answers_with_the_vector_of_each_text() -> None:
    texts = [sentence(3, 5), sentence(4, 6)]
    reply = orjson.loads(Provider(dimensions=32).reply({"model": "m", "input": texts, "dimensions": 64}))
    model = TopicVectors(64)
    assert [item["index"] for item in reply["data"]] == [0, 1]
    for item, text in zip(reply["data"], texts, strict=True):
        assert np.array_equal(np.array(item["embedding"], dtype=np.float32), model.of_text(text))


def test_nearest_is_the_exact_order() -> None:
    vectors = np.eye(4, dtype=np.float32)
    wanted = np.array([0.1, 0.4, 0.3, 0.2], dtype=np.float32)
    assert nearest(vectors, wanted, 3) == [1, 2, 3]
    assert nearest(vectors[:2], wanted, 3) == [1, 0]
