"""mem0 with its pgvector store and `infer=False`: `python -m benchmarks.peers.mem0_pgvector FOLDER DSN`.

The environment has `MEM0_TELEMETRY=False` and a folder in `MEM0_DIR`; the library reads both when imported.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from mem0 import Memory

from benchmarks.peers.peer import Message, Question, Vectors, run_peer

_COLLECTION = "memories"


class _KnownVectors:
    """In the place of an embedder: vectors that are there already, so that no provider is measured."""

    def __init__(self) -> None:
        self.config = None
        self._vectors: dict[str, list[float]] = {}

    def learn(self, text: str, vector: Vectors) -> None:
        self._vectors[text] = vector.tolist()

    def embed(self, text: str, *_purpose: object, **_also: object) -> list[float]:
        return self._vectors[text]

    def embed_batch(self, texts: Sequence[str], *_purpose: object, **_also: object) -> list[list[float]]:
        return [self._vectors[text] for text in texts]


class Mem0:
    """mem0's `Memory` in this process, one user for each session."""

    def __init__(self, place: str) -> None:
        self._dsn = place
        self._history = Path(os.environ["MEM0_DIR"]) / "history.db"
        self._vectors = _KnownVectors()
        self._memory: Any = None

    def load(self, messages: Sequence[Message], vectors: Vectors) -> None:
        memory = self._open(vectors.shape[1])
        for message, vector in zip(messages, vectors, strict=True):
            self._vectors.learn(message.content, vector)
            memory.add(
                [{"role": message.role, "content": message.content}],
                user_id=str(message.session),
                metadata={"number": message.number, "created_at": message.created_at},
                infer=False,
            )

    def search(self, question: Question, depth: int) -> list[int]:
        self._vectors.learn(question.text, question.vector)
        found = self._memory.search(
            question.text, top_k=depth, filters={"user_id": str(question.session)}, threshold=0.0
        )
        return [int(item["metadata"]["number"]) for item in found["results"]]

    def stored_bytes(self) -> int:
        with psycopg.connect(self._dsn) as connection:
            row = connection.execute(f"SELECT pg_total_relation_size('{_COLLECTION}')").fetchone()
        return (int(row[0]) if row else 0) + self._history.stat().st_size

    def _open(self, dimensions: int) -> Any:
        nowhere = {"api_key": "none-needed", "openai_base_url": "http://127.0.0.1:9/v1"}
        self._memory = Memory.from_config(
            {
                "vector_store": {
                    "provider": "pgvector",
                    "config": {
                        "connection_string": self._dsn,
                        "collection_name": _COLLECTION,
                        "embedding_model_dims": dimensions,
                        "hnsw": True,
                        "maxconn": 10,
                    },
                },
                "embedder": {"provider": "openai", "config": nowhere},
                "llm": {"provider": "openai", "config": nowhere},
                "history_db_path": str(self._history),
            }
        )
        self._memory.embedding_model = self._vectors
        return self._memory


if __name__ == "__main__":
    run_peer(Mem0)
