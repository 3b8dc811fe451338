"""Measures what a service finds: `benchmarks/retrieval.py --data DIR [--url URL] [--set NAME]`.

Every conversation is imported over HTTP with its original times; then each question is asked of
`/memory/prompt` (is the evidence inside a 1,000-token budget?) and of `/memory/search` (at which rank?).
`docs/retrieval.md` has the form of the data and the figures.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import httpx
import orjson
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, the root is not on the path

from app.dialogues.tokens import count_tokens
from benchmarks.client import Client
from benchmarks.conversations import Conversation, Question, find_sets, read_conversations
from benchmarks.metrics import Outcome, Summary, markdown_table, summarise
from benchmarks.service import machine_facts, run_service

BUDGET_TOKENS = 1000


@dataclass(frozen=True)
class _Miss:
    question: Question
    evidence: list[str]
    returned: list[str]
    complete: bool


async def _ask(
    client: Client,
    *,
    conversation: Conversation,
    question: Question,
    ids: Mapping[str, str],
    options: Mapping[str, Any],
    set_name: str,
) -> tuple[Outcome, _Miss | None]:
    body = {**conversation.asked_as, "query": question.text, "now": question.now, **options}
    prompt, prompt_ms = await client.post("/memory/prompt", {**body, "max_memory_tokens": BUDGET_TOKENS})
    search, search_ms = await client.post("/memory/search", {**body, "top_n": 10, "window_size": 0})
    anchors = [memory for memory in search["memories"] if memory["is_anchor"]]
    anchors.sort(key=lambda memory: memory["relevance"], reverse=True)
    outcome = Outcome(
        set_name=set_name,
        category=question.category,
        evidence=frozenset(question.evidence),
        listed=frozenset(ids.get(str(memory["id"]), "") for memory in prompt["memories"]),
        ranked=tuple(ids.get(str(memory["id"]), "") for memory in anchors),
        tokens=count_tokens("\n".join(memory["line"] for memory in prompt["memories"])),
        prompt_ms=prompt_ms,
        search_ms=search_ms,
    )
    if outcome.has_all:
        return outcome, None
    lines = {
        message_id: f"[{dialogue['created_at']}] {dialogue['sender_name']}: {dialogue['content']}"
        for message_id, dialogue in zip(conversation.message_ids, conversation.dialogues, strict=True)
    }
    missed = [lines[name] for name in question.evidence if name not in outcome.listed]
    returned = [memory["line"] for memory in prompt["memories"]]
    return outcome, _Miss(question, missed, returned, complete=not outcome.has_any)


async def _measure(url: str, arguments: argparse.Namespace) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with contextlib.ExitStack() as stack:
        misses = (
            stack.enter_context(arguments.misses.open("w", encoding="utf-8")) if arguments.misses else None
        )
        async with httpx.AsyncClient(
            base_url=url, timeout=300, headers=_authorization(arguments.key)
        ) as http:
            client = Client(http)
            for folder in find_sets(arguments.data, arguments.set):
                for conversation in read_conversations(folder, salt=arguments.salt):
                    print(f"{conversation.name}: {len(conversation.dialogues)} messages", file=sys.stderr)
                    ids = await client.import_conversation(conversation)
                    for question in tqdm(
                        conversation.questions, unit="question", file=sys.stderr, disable=None
                    ):
                        outcome, miss = await _ask(
                            client,
                            conversation=conversation,
                            question=question,
                            ids=ids,
                            options=arguments.options,
                            set_name=folder.name,
                        )
                        outcomes.append(outcome)
                        if misses and miss:
                            _write_miss(misses, miss)
    return outcomes


def _authorization(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _write_miss(file: TextIO, miss: _Miss) -> None:
    question = miss.question
    what = "nothing found" if miss.complete else "a part found"
    file.write(f"## {question.conversation} · {question.category} · {what}\n\n")
    file.write(f"{question.text} (asked {question.now})\n\n")
    file.write("".join(f"- missed: {line}\n" for line in miss.evidence))
    file.write("\n" + "".join(f"    {line}\n" for line in miss.returned) + "\n")


def _table(summaries: Sequence[Summary]) -> str:
    header = ("set", "category", "questions", "any %", "all %", "any@1", "any@5", "any@10", "MRR")
    rows = [
        (
            row.set_name,
            f"**{row.category}**" if row.category == "all" else row.category,
            row.questions,
            *(
                100 * share
                for share in (row.any_share, row.all_share, row.any_at_1, row.any_at_5, row.any_at_10)
            ),
            f"{row.mean_reciprocal_rank:.3f}",
            row.mean_tokens,
            row.mean_prompt_ms,
            row.mean_search_ms,
        )
        for row in summaries
    ]
    return markdown_table((*header, "tokens", "prompt ms", "search ms"), rows)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="What does the service find? docs/retrieval.md says how to read it."
    )
    parser.add_argument("--data", type=Path, required=True, help="a set, or a folder of sets")
    parser.add_argument("--url", help="a running service; without it one is started with the offline model")
    parser.add_argument("--key", help="API key of the running service")
    parser.add_argument("--set", help="only the set of this name")
    parser.add_argument("--salt", default="", help="store the sets once more, under other ids")
    parser.add_argument("--options", type=json.loads, default={}, help='request fields, as {"decay": false}')
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="a setting of the started service"
    )
    parser.add_argument("--json", type=Path, help="write the table here, as JSON")
    parser.add_argument("--misses", type=Path, help="write here what was missed, for reading")
    return parser.parse_args()


def main() -> None:
    """Print the table for every set under `--data`."""
    arguments = _arguments()
    if not find_sets(arguments.data, arguments.set):
        raise SystemExit(
            f"no set in {arguments.data}: a folder with messages.jsonl and queries.jsonl is needed"
        )
    facts = machine_facts()
    if arguments.url:
        outcomes = asyncio.run(_measure(arguments.url, arguments))
    else:
        settings = dict(pair.split("=", 1) for pair in arguments.env)
        with (
            tempfile.TemporaryDirectory(prefix="memory-retrieval-") as folder,
            run_service(Path(folder), settings=settings) as service,
        ):
            outcomes = asyncio.run(_measure(service.url, arguments))
    summaries = summarise(outcomes)
    if arguments.json:
        arguments.json.write_bytes(
            orjson.dumps([asdict(row) for row in summaries], option=orjson.OPT_INDENT_2)
        )
    print(f"{facts}\n\n{_table(summaries)}")


if __name__ == "__main__":
    main()
