"""Measures whether the service knows that it has no answer: `benchmarks/no_match.py --data DIR`.

Each conversation is asked its own questions, and as many of the other conversations of its language, with
the names of their speakers replaced by its own: these have no answer there. This is done with the offline
model and with the same model in other geometries, behind HTTP. `docs/retrieval.md` has the form of the data
and the figures.
"""

import argparse
import asyncio
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, the root is not on the path

from benchmarks.client import Client
from benchmarks.conversations import Conversation, Question, find_sets, read_conversations
from benchmarks.metrics import area_under_roc, markdown_table, percentile
from benchmarks.moved_vectors import GEOMETRIES, Geometry
from benchmarks.provider import run_provider
from benchmarks.service import machine_facts, run_service

_DIMENSIONS = 1024
_CALIBRATION_LIMIT_S = 120
_CHINESE = re.compile(r"[\u3400-\u9fff]")
_LEAST_MATCHES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class _Answer:
    """What the service said to one question.

    Attributes:
        similarity: best cosine of the anchors; 0 where there is none.
        match: the same on the calibrated scale.
    """

    set_name: str
    has_answer: bool
    similarity: float
    match: float
    confidence: float
    no_match: bool


def unanswerable(conversation: Conversation, others: Sequence[Conversation]) -> list[Question]:
    """Questions of other conversations in the words of this one's speakers, as many as it has itself.

    Args:
        conversation: that they are to be asked of.
        others: of the same language; the conversation itself may be among them.
    """
    own = _speakers(conversation)
    found: list[Question] = []
    for other in others:
        if other.name == conversation.name:
            continue
        names = _speakers(other)
        for question in other.questions:
            text = question.text
            for place, name in enumerate(names):
                text = re.sub(rf"\b{re.escape(name)}\b", own[place % len(own)], text)
            found.append(
                Question(conversation.name, text, conversation.questions[0].now, question.category, ())
            )
    step = max(1, len(found) // max(1, len(conversation.questions)))
    return found[::step][: len(conversation.questions)]


def _speakers(conversation: Conversation) -> list[str]:
    """Who says most first."""
    return [name for name, _ in Counter(one["sender_name"] for one in conversation.dialogues).most_common()]


def _is_chinese(conversation: Conversation) -> bool:
    return bool(_CHINESE.search(conversation.questions[0].text))


async def _ask(client: Client, conversation: Conversation, question: Question, set_name: str) -> _Answer:
    body = {**conversation.asked_as, "query": question.text, "now": question.now, "window_size": 0}
    found, _ = await client.post("/memory/search", body)
    anchors = [memory for memory in found["memories"] if memory["similarity"] is not None]
    return _Answer(
        set_name,
        bool(question.evidence),
        max((memory["similarity"] for memory in anchors), default=0.0),
        max((memory["match"] for memory in anchors), default=0.0),
        found["confidence"],
        found["no_match"],
    )


async def _wait_for_calibration(client: Client, conversation: Conversation) -> None:
    """The first search has a model measured; on a busy machine it is answered before that is done."""
    for _second in range(_CALIBRATION_LIMIT_S):
        found, _ = await client.post("/memory/search", {**conversation.asked_as, "query": "hello"})
        if all(one["match"] is not None for one in found["memories"] if one["is_anchor"]):
            return
        await asyncio.sleep(1)
    raise SystemExit("the model was not calibrated")


async def _measure(url: str, data: Path) -> list[_Answer]:
    sets = {folder.name: read_conversations(folder) for folder in find_sets(data)}
    everyone = [one for conversations in sets.values() for one in conversations if one.questions]
    answers: list[_Answer] = []
    async with httpx.AsyncClient(base_url=url, timeout=300) as http:
        client = Client(http)
        for set_name, conversations in sets.items():
            for conversation in conversations:
                if not conversation.questions:
                    continue
                await client.import_conversation(conversation)
                await _wait_for_calibration(client, conversation)
                others = [one for one in everyone if _is_chinese(one) == _is_chinese(conversation)]
                questions = [*conversation.questions, *unanswerable(conversation, others)]
                shown = tqdm(questions, desc=conversation.name, file=sys.stderr, disable=None)
                answers += [await _ask(client, conversation, question, set_name) for question in shown]
    return answers


def _run(data: Path, geometry: Geometry | None) -> list[_Answer]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="memory-no-match-"))
        settings = {}
        if geometry is not None:
            settings = {
                "EMBEDDING_BASE_URL": stack.enter_context(
                    run_provider(dimensions=_DIMENSIONS, geometry=geometry)
                ),
                "EMBEDDING_DIMENSIONS": str(_DIMENSIONS),
            }
        service = stack.enter_context(run_service(Path(folder), settings=settings))
        return asyncio.run(_measure(service.url, data))


def _row(model: str, name: str, answers: Sequence[_Answer]) -> tuple[object, ...]:
    with_one = [one for one in answers if one.has_answer]
    without = [one for one in answers if not one.has_answer]

    def area(score: str) -> str:
        positive, negative = ([getattr(one, score) for one in of] for of in (with_one, without))
        return f"{area_under_roc(positive, negative):.3f}"

    return (
        model,
        name,
        len(with_one),
        len(without),
        area("similarity"),
        area("match"),
        area("confidence"),
        100 * sum(one.no_match for one in with_one) / len(with_one),
        100 * sum(one.no_match for one in without) / len(without),
    )


def _scale_row(model: str, answers: Sequence[_Answer]) -> tuple[object, ...]:
    cells: list[object] = [model]
    for has_answer in (True, False):
        of = [one for one in answers if one.has_answer is has_answer]
        cells.append(f"{percentile([one.similarity for one in of], 0.5):.2f}")
        cells += [100 * sum(one.match >= least for one in of) / len(of) for least in _LEAST_MATCHES]
    return tuple(cells)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Does the service know that it has no answer?")
    parser.add_argument("--data", type=Path, required=True, help="a folder of sets")
    data = parser.parse_args().data
    facts = machine_facts()
    rows, scale_rows = [], []
    for geometry in (None, *GEOMETRIES):
        model = geometry or "offline"
        answers = _run(data, geometry)
        names = dict.fromkeys(one.set_name for one in answers)
        rows += [_row(model, name, [one for one in answers if one.set_name == name]) for name in names]
        rows.append(_row(model, "**all**", answers))
        scale_rows.append(_scale_row(model, answers))
    header = ("geometry", "set", "with answer", "without", "AUC cosine", "AUC match", "AUC confidence")
    print(f"{facts}\n")
    print(markdown_table((*header, "no_match with %", "no_match without %"), rows), end="\n\n")
    least = [f"≥ {one}" for one in _LEAST_MATCHES]
    print(
        markdown_table(
            ("geometry", "with: median cosine", *least, "without: median cosine", *least), scale_rows
        )
    )


if __name__ == "__main__":
    main()
