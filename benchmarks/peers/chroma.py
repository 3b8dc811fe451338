"""Chroma, persistent and in this process: `python -m benchmarks.peers.chroma FOLDER DATA_FOLDER`."""

from collections.abc import Sequence
from pathlib import Path

import chromadb
from chromadb.config import Settings

from benchmarks.peers.peer import Message, Question, Vectors, run_peer

_BATCH = 1000


class Chroma:
    """One collection with the session as metadata, as its documentation filters by user."""

    def __init__(self, place: str) -> None:
        self._folder = Path(place)
        self._client = chromadb.PersistentClient(path=place, settings=Settings(anonymized_telemetry=False))
        self._collection = self._client.create_collection(
            "memories", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
        )

    def load(self, messages: Sequence[Message], vectors: Vectors) -> None:
        for start in range(0, len(messages), _BATCH):
            part = messages[start : start + _BATCH]
            self._collection.add(
                ids=[str(message.number) for message in part],
                embeddings=vectors[start : start + _BATCH],
                documents=[message.content for message in part],
                metadatas=[
                    {"session": message.session, "role": message.role, "created_at": message.created_at}
                    for message in part
                ],
            )

    def search(self, question: Question, depth: int) -> list[int]:
        found = self._collection.query(
            query_embeddings=[question.vector],
            n_results=depth,
            where={"session": question.session},
            include=["documents", "metadatas", "distances"],
        )
        return [int(number) for number in found["ids"][0]]

    def stored_bytes(self) -> int:
        return sum(file.stat().st_size for file in self._folder.rglob("*") if file.is_file())


if __name__ == "__main__":
    run_peer(Chroma)
