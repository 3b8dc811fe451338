"""The peers' process: what it is told, what it answers, and that it looks no further than its own session."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.brute_force import nearest
from benchmarks.compare import _exact, _make_workload
from benchmarks.corpus import corpus_until_now
from benchmarks.peers.peer import read_workload, write_workload
from benchmarks.service import ROOT, clean_environment

_BRUTE = """
import sys
from pathlib import Path
import numpy as np
from benchmarks.peers.peer import run_peer

class Brute:
    def __init__(self, place):
        print("noise on standard output")
        self.place = Path(place)

    def load(self, messages, vectors):
        self.messages, self.vectors = messages, vectors
        self.place.write_bytes(vectors.tobytes())

    def search(self, question, depth):
        rows = [row for row, message in enumerate(self.messages) if message.session == question.session]
        order = np.argsort(-(self.vectors[rows] @ question.vector), kind="stable")[:depth]
        return [self.messages[rows[at]].number for at in order]

    def stored_bytes(self):
        return self.place.stat().st_size

run_peer(Brute)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    corpus = corpus_until_now(messages=300, sessions=7)
    write_workload(tmp_path, _make_workload(corpus, corpus.queries(12), 16))
    return tmp_path


def test_a_peer_gets_what_was_written_for_it(folder: Path) -> None:
    corpus = corpus_until_now(messages=300, sessions=7)
    workload = read_workload(folder)
    assert [len(workload.messages), len(workload.questions)] == [sum(corpus.live_sizes), 12]
    assert {message.session for message in workload.messages} == set(range(7))
    for message, vector in zip(workload.messages, workload.vectors, strict=True):
        assert message.content == corpus.message(message.number)["content"]
        assert np.linalg.norm(vector) == pytest.approx(1)


def test_a_peer_process_answers_each_command(folder: Path) -> None:
    commands = ["load", "ask 1 10", "ask 3 10", "size"]
    process = subprocess.run(
        [sys.executable, "-c", _BRUTE, str(folder), str(folder / "store")],
        input="\n".join(commands) + "\n",
        capture_output=True,
        text=True,
        env=clean_environment({}),
        cwd=ROOT,
        check=True,
    )
    loaded, alone, together, size = map(json.loads, process.stdout.splitlines())
    workload = read_workload(folder)
    exact = _exact(workload)
    assert loaded["seconds"] > 0
    assert alone["found"] == exact
    assert together["found"] == exact
    assert len(together["latencies_ms"]) == len(exact)
    assert size["bytes"] == workload.vectors.nbytes


def test_the_exact_answer_is_of_the_questions_own_session(folder: Path) -> None:
    workload = read_workload(folder)
    by_number = {message.number: message for message in workload.messages}
    for question, numbers in zip(workload.questions, _exact(workload), strict=True):
        assert {by_number[number].session for number in numbers} == {question.session}
        own = [row for row, item in enumerate(workload.messages) if item.session == question.session]
        best = nearest(workload.vectors[own], question.vector, 1)
        assert numbers[0] == workload.messages[own[best[0]]].number
