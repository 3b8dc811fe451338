"""Questions that have no answer where they are asked, and a model in another geometry."""

import numpy as np
import orjson
import pytest

from benchmarks.conversations import Conversation, Question
from benchmarks.moved_vectors import GEOMETRIES, Geometry, MovedVectors
from benchmarks.no_match import unanswerable
from benchmarks.provider import Provider

NOW = "2024-01-16T10:30:15+08:00"


def _conversation(name: str, speakers: tuple[str, ...], questions: tuple[str, ...]) -> Conversation:
    dialogues = tuple(
        {"sender_name": speaker, "content": "hm"} for speaker in speakers for _ in range(len(speaker))
    )
    asked = tuple(Question(name, text, NOW, "facts", ("m1",)) for text in questions)
    return Conversation(name, dialogues, (), {}, (), asked)


def test_questions_of_others_are_asked_in_ones_own_names() -> None:
    own = _conversation("a", ("Caroline", "Mel"), ("Who is Mel?", "Where is Caroline?"))
    other = _conversation("b", ("Jo", "Gina"), ("What does Gina like?", "Is Jo, or Joan, at home?", "When?"))
    found = unanswerable(own, [own, other])
    assert [question.text for question in found] == ["What does Caroline like?", "Is Mel, or Joan, at home?"]
    assert {(question.conversation, question.now, question.evidence) for question in found} == {
        ("a", NOW, ())
    }
    assert unanswerable(own, [own]) == []


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_moved_model_orders_texts_alike_with_other_cosines(geometry: Geometry) -> None:
    moved = MovedVectors(512, geometry=geometry)
    texts = ["我的猫叫团子", "明天下午三点开会", "The bike was stolen", "Instruct: find\nQuery:我的猫叫什么"]
    vectors = np.array([moved.of_text(text) for text in texts])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)
    cosines = vectors[:3] @ vectors[3]
    assert int(cosines.argmax()) == 0
    if geometry == "centred":
        assert abs(cosines[1]) < 0.3
    else:
        assert cosines.min() > 0.8
    body = orjson.dumps({"model": "m", "input": texts, "dimensions": 512})
    reply = orjson.loads(Provider(dimensions=512, geometry=geometry).reply(orjson.loads(body)))
    sent = np.array([item["embedding"] for item in reply["data"]])
    assert sent == pytest.approx(vectors, abs=1e-5)
