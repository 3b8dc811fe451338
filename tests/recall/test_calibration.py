"""What a cosine means is the same for every model: the scale, the known one measured again, the service."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.clients.embedding_offline import OfflineEmbeddingModel
from app.errors import ProviderRejectedError
from app.recall.calibration import (
    KNOWN,
    Calibration,
    Scale,
    Vectors,
    calibrate,
    read_calibration,
    reference_answers,
    reference_questions,
)
from app.recall.reference_texts import CHINESE, ENGLISH
from app.telemetry import Metrics

COSINES = st.floats(-1, 1)


@st.composite
def scales(draw: st.DrawFn) -> Scale:
    unrelated, first, second = draw(st.floats(-0.5, 0.9)), draw(st.floats(0.02, 1)), draw(st.floats(0.02, 1))
    return Scale(unrelated, unrelated + first, unrelated + first + second)


@given(scales(), COSINES, COSINES)
def test_a_match_rises_with_the_cosine_from_0_to_1(scale: Scale, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 <= scale.match(low) <= scale.match(high) <= 1


@given(scales())
def test_the_three_places_are_at_0_a_half_and_1(scale: Scale) -> None:
    places = [scale.match(cosine) for cosine in (scale.unrelated, scale.related, scale.same)]
    assert places == pytest.approx([0, 0.5, 1])
    assert scale.match(-1) == 0
    assert scale.match(scale.same + 1) == 1


@given(scales(), COSINES, st.floats(0.1, 2), st.floats(-0.5, 0.5))
def test_a_model_whose_cosines_are_stretched_and_shifted_has_the_same_matches(
    scale: Scale, cosine: float, stretch: float, shift: float
) -> None:
    moved = Scale(*(stretch * place + shift for place in (scale.unrelated, scale.related, scale.same)))
    assert moved.match(stretch * cosine + shift) == pytest.approx(scale.match(cosine), abs=1e-6)


def test_the_scale_is_that_of_the_signs_of_both_texts() -> None:
    of = Calibration(chinese=Scale(0, 0.1, 1), other=Scale(0, 0.2, 1), across=Scale(0, 0.4, 1))
    assert of.match("猫叫什么？", "团子", 0.1) == pytest.approx(0.5)
    assert of.match("What is it?", "Тузик", 0.2) == pytest.approx(0.5)
    assert of.match("猫叫什么？", "Biscuit", 0.4) == pytest.approx(0.5)
    assert of.match("What is it?", "团子", 0.4) == pytest.approx(0.5)


def test_what_was_written_is_read_and_what_was_not_is_refused() -> None:
    known = next(iter(KNOWN.values()))
    assert read_calibration(known.written()) == known
    written = known.written()
    wrong: object
    for wrong in (
        None,
        [],
        {},
        written | {"version": written["version"] + 1},
        {"version": written["version"]},
        written | {"scales": written["scales"][:2]},
        written | {"scales": [[0.1, 0.2]] * 3},
        written | {"scales": [["a", 0.2, 0.3]] * 3},
        written | {"scales": [[0.3, 0.2, 0.1]] * 3},
        written | {"scales": [[float("nan"), 0.2, 0.3]] * 3},
    ):
        assert read_calibration(wrong) is None, wrong


def test_the_reference_texts_are_pairs_of_which_none_is_like_another() -> None:
    assert len(ENGLISH) == len(CHINESE)
    assert len({*reference_questions()}) == len(reference_questions()) == 2 * len(reference_answers())


async def _embed(model: OfflineEmbeddingModel) -> tuple[Vectors, Vectors]:
    made = []
    for texts, embed in (
        (reference_questions(), model.embed_queries),
        (reference_answers(), model.embed_documents),
    ):
        vectors = [one for one in await embed(texts) if not isinstance(one, ProviderRejectedError)]
        assert len(vectors) == len(texts)
        made.append(np.array(vectors))
    return made[0], made[1]


async def test_the_known_scales_are_those_of_the_model_and_geometry_moves_no_match() -> None:
    model = OfflineEmbeddingModel(metrics=Metrics())
    try:
        queries, answers = await _embed(model)
    finally:
        await model.aclose()
    measured, known = calibrate(queries, answers), KNOWN[model.name]
    assert np.array(measured.written()["scales"]) == pytest.approx(
        np.array(known.written()["scales"]), abs=0.002
    )
    # Another basis, more dimensions, and a direction that all vectors share, as in many models.
    random = np.random.default_rng(1)
    basis, (common, *_) = np.split(np.linalg.qr(random.standard_normal((512, 512)))[0], [384])

    def moved(vectors: Vectors) -> Vectors:
        shifted = vectors @ basis + 1.5 * common
        unit: Vectors = (shifted / np.linalg.norm(shifted, axis=1, keepdims=True)).astype(np.float32)
        return unit

    other = calibrate(moved(queries), moved(answers))
    texts, asked = reference_answers(), reference_questions()
    before = [measured.match(q, a, float(v @ w)) for q, v in zip(asked, queries, strict=True)
              for a, w in zip(texts, answers, strict=True)]  # fmt: skip
    after = [other.match(q, a, float(v @ w)) for q, v in zip(asked, moved(queries), strict=True)
             for a, w in zip(texts, moved(answers), strict=True)]  # fmt: skip
    assert np.abs(np.array(before) - np.array(after)).max() < 0.001
    raw = np.abs(queries @ answers.T - moved(queries) @ moved(answers).T)
    assert raw.max() > 0.1, "the cosines themselves would have moved"


@pytest.mark.parametrize("degenerate", [np.ones_like, np.zeros_like])
def test_a_model_that_cannot_tell_texts_apart_still_has_scales(
    degenerate: Callable[[Vectors], Vectors],
) -> None:
    shape = np.zeros((2 * len(reference_answers()), 8), dtype=np.float32)
    found = calibrate(degenerate(shape), degenerate(shape)[: len(reference_answers())])
    assert read_calibration(found.written()) == found
