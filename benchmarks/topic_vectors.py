"""Clustered vectors that are a pure function of a code inside the text.

A text carries `ORD` (a message) or `ASK` (a query), three digits of topic and seven digits of number. Whoever
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
_CODE = re.compile(r"(ORD|ASK)(\d{3})(\d{7})")

Vector = NDArray[np.float32]
Kind = Literal["ORD", "ASK"]


def code(kind: Kind, *, topic: int, number: int) -> str:
    """The code of a message or query: topic below 1,000, number below 10 million."""
    return f"{kind}{topic:03d}{number:07d}"


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
            return self.of_code("ASK", topic=0, number=sum(text.encode()))
        kind, topic, number = codes[-1]
        return self.of_code(kind, topic=int(topic), number=int(number))

    def of_code(self, kind: Kind, *, topic: int, number: int) -> Vector:
        """The vector of a code, of length 1."""
        rng = np.random.default_rng((_SEED, kind == "ASK", topic, number))
        place = self._centres[topic % TOPICS] + _SPREAD * rng.standard_normal(_SUBSPACE, dtype=np.float32)
        noise = rng.standard_normal(self.dimensions, dtype=np.float32)
        vector: Vector = place @ self._basis + (_NOISE / np.sqrt(np.float32(self.dimensions))) * noise
        vector /= np.linalg.norm(vector)
        return vector
