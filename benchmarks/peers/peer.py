"""What every memory that is compared with ours has to do, and the process that does it on command.

Runs in the virtual environment of the peers: the standard library, numpy and the peer's own library, nothing
of the service. Commands come as lines on standard input, answers go as lines of JSON to standard output.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Message:
    """One message of the corpus; times are ISO 8601."""

    number: int
    session: int
    role: str
    content: str
    created_at: str
    expires_at: str | None


@dataclass(frozen=True)
class Question:
    """A query to one session, with its vector of length 1."""

    session: int
    text: str
    vector: Vectors


@dataclass(frozen=True)
class Workload:
    """The messages, a row of vectors for each, and the questions."""

    messages: list[Message]
    vectors: Vectors
    questions: list[Question]


class Peer(Protocol):
    """A memory under comparison."""

    def load(self, messages: Sequence[Message], vectors: Vectors) -> None:
        """Store all messages, the fastest way that its documentation shows, indexes included."""

    def search(self, question: Question, depth: int) -> list[int]:
        """The numbers of the best messages of the question's session, best first; from several threads."""

    def stored_bytes(self) -> int:
        """What it takes on disk."""


def write_workload(folder: Path, workload: Workload) -> None:
    """Keep the workload in a folder, for the peers' processes."""
    np.save(folder / "vectors.npy", workload.vectors)
    np.save(folder / "question_vectors.npy", np.array([item.vector for item in workload.questions]))
    with (folder / "messages.jsonl").open("w", encoding="utf-8") as file:
        for message in workload.messages:
            file.write(json.dumps(vars(message), ensure_ascii=False) + "\n")
    questions = [{"session": item.session, "text": item.text} for item in workload.questions]
    (folder / "questions.json").write_text(json.dumps(questions, ensure_ascii=False), encoding="utf-8")


def read_workload(folder: Path) -> Workload:
    """The workload that `write_workload` has put there."""
    with (folder / "messages.jsonl").open(encoding="utf-8") as file:
        messages = [Message(**json.loads(line)) for line in file]
    questions = json.loads((folder / "questions.json").read_text(encoding="utf-8"))
    vectors = np.load(folder / "question_vectors.npy")
    return Workload(
        messages,
        np.load(folder / "vectors.npy"),
        [Question(**question, vector=vector) for question, vector in zip(questions, vectors, strict=True)],
    )


def run_peer(make: Callable[[str], Peer]) -> None:
    """Obey until standard input ends: `load`, `ask <at once> <depth>`, `size`.

    Args:
        make: makes the peer of where its data is to be, the second argument of the process.
    """
    folder, place = Path(sys.argv[1]), sys.argv[2]
    # Libraries print what they like; answers have the real standard output for themselves.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    workload = read_workload(folder)
    peer = make(place)
    for line in sys.stdin:
        command, *numbers = line.split()
        answer = _obey(peer, workload, command, [int(number) for number in numbers])
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _obey(peer: Peer, workload: Workload, command: str, numbers: list[int]) -> dict[str, Any]:
    if command == "load":
        begun = time.perf_counter()
        peer.load(workload.messages, workload.vectors)
        return {"seconds": time.perf_counter() - begun}
    if command == "ask":
        return _ask(peer, workload.questions, *numbers)
    if command == "size":
        return {"bytes": peer.stored_bytes()}
    raise ValueError(f"no such command: {command}")


def _ask(peer: Peer, questions: Sequence[Question], at_once: int, depth: int) -> dict[str, Any]:
    def timed(question: Question) -> tuple[float, list[int]]:
        begun = time.perf_counter()
        found = peer.search(question, depth)
        return (time.perf_counter() - begun) * 1000, found

    begun = time.perf_counter()
    if at_once == 1:
        outcomes = [timed(question) for question in questions]
    else:
        with ThreadPoolExecutor(at_once) as threads:
            outcomes = list(threads.map(timed, questions))
    wall_s = time.perf_counter() - begun
    return {
        "latencies_ms": [latency for latency, _ in outcomes],
        "found": [found for _, found in outcomes],
        "wall_s": wall_s,
    }
