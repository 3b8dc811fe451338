"""Clustered vectors that are a pure function of a code inside the text.

A text carries a number of eleven digits: 1 (a message) or 2 (a query), three of topic, seven of its own. Who
knows the text knows the vector: a provider process serves it, a benchmark computes it again for brute force.
"""

import re
from typing import Literal

import numpy as np
from numpy.typing import NDArray

TOPICS = 300
_SUBSPACE = 32
_SPREAD = 0.6
_NOISE = 3.0
_SEED = 20_240_116
_CODE = re.compile(r"(?<!\d)([12])(\d{3})(\d{7})(?!\d)")

Vector = NDArray[np.float32]
Kind = Literal["message", "query"]

_KINDS: dict[str, Kind] = {"1": "message", "2": "query"}


def code(kind: Kind, *, topic: int, number: int) -> str:
    """The code of a message or query: topic below 1,000, number below 10 million."""
    return f"{'1' if kind == 'message' else '2'}{topic:03d}{number:07d}"


class TopicVectors:
    """A mixture of 300 Gaussians in a 32-dimensional subspace, with isotropic noise around it, normalised.

    Two texts of one topic have a cosine of about 0.6, two of different topics of about 0.
    """

    def __init__(self, dimensions: int) -> None:
        rng = np.random.default_rng(_SEED)
        self.dimensions = dimensions
        self._centres = rng.standard_normal((TOPICS, _SUBSPACE), dtype=np.float32)
        # Random directions are as good as orthogonal in a space this wide.
        basis = rng.standard_normal((_SUBSPACE, dimensions), dtype=np.float32)
        self._basis = basis / np.linalg.norm(basis, axis=1, keepdims=True)

    def of_text(self, text: str) -> Vector:
        """The vector of the last code in the text; a text without one counts as a number of topic 0."""
        codes = _CODE.findall(text)
        if not codes:
            return self.of_code("query", topic=0, number=sum(text.encode()))
        kind, topic, number = codes[-1]
        return self.of_code(_KINDS[kind], topic=int(topic), number=int(number))

    def of_code(self, kind: Kind, *, topic: int, number: int) -> Vector:
        """The vector of a code, of length 1."""
        rng = np.random.default_rng((_SEED, kind == "query", topic, number))
        place = self._centres[topic % TOPICS] + _SPREAD * rng.standard_normal(_SUBSPACE, dtype=np.float32)
        noise = rng.standard_normal(self.dimensions, dtype=np.float32)
        vector: Vector = place @ self._basis + (_NOISE / np.sqrt(np.float32(self.dimensions))) * noise
        vector /= np.linalg.norm(vector)
        return vector
