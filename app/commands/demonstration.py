"""`temporal-memory demo`: conversations one can read, and what the memory finds in them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

from app.commands.importing import ImportOptions, ImportReport, import_stream, progress_bar
from app.dialogues.records import Session
from app.errors import StartupError
from app.recall.records import Language, Scope, SearchQuery
from app.services import Services, open_services
from app.settings import Settings

NAMESPACE: Final = "demo"
_BATCH_SIZE: Final = 32


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and a piece of text that an answer has to stand on."""

    text: str
    evidence: str


@dataclass(frozen=True, slots=True)
class Example:
    """A conversation of `examples/`, and what is asked of it at the moment `now`."""

    title: str
    path: Path
    session: Session
    scope: Scope
    language: Language
    zone: ZoneInfo
    now: datetime
    questions: tuple[Question, ...]


def examples_folder() -> Path:
    """The folder `examples`, beside `app`.

    Raises:
        StartupError: it is not there.
    """
    folder = Path(__file__).resolve().parents[2] / "examples"
    if not (folder / "questions.json").is_file():
        raise StartupError(
            "The folder examples/ is not beside app/: run the demo from a checkout or an image."
        )
    return folder


def load_examples(folder: Path) -> list[Example]:
    """What `questions.json` in that folder describes."""
    described: list[dict[str, Any]] = json.loads((folder / "questions.json").read_text(encoding="utf-8"))
    return [
        Example(
            title=one["title"],
            path=folder / one["file"],
            session=Session(one["user_id"], one.get("group_id")),
            scope=one.get("scope", "member"),
            language=one["language"],
            zone=ZoneInfo(one["timezone"]),
            now=datetime.fromisoformat(one["now"]),
            questions=tuple(Question(**question) for question in one["questions"]),
        )
        for one in described
    ]


async def demonstrate(settings: Settings, *, quiet: bool, tell: Callable[[str], object]) -> int:
    """Import the examples into the namespace `demo`, ask their questions, show the lines; the exit code."""
    examples = load_examples(examples_folder())
    async with open_services(settings, background=False) as services:
        report = await import_examples(services, examples, quiet=quiet, tell=tell)
        tell(f"{report.stored} messages imported into namespace {NAMESPACE}, {report.duplicates} were there")
        for example in examples:
            tell(f"\n=== {example.title} ({example.path.name}, asked at {example.now:%Y-%m-%d %H:%M})")
            for question in example.questions:
                tell(f"\n? {question.text}")
                for line in await ask(services, example, question):
                    tell(f"  {line}")
    return 1 if report.bad else 0


async def import_examples(
    services: Services, examples: list[Example], *, quiet: bool, tell: Callable[[str], object]
) -> ImportReport:
    """Import the conversations, each message with its vector."""
    report = ImportReport()
    options = ImportOptions(
        NAMESPACE, services.settings.recall.zone, None, tell=tell, wait=True, batch_size=_BATCH_SIZE
    )
    for example in examples:
        size = example.path.stat().st_size
        with (
            example.path.open("rb") as stream,
            progress_bar(total=size, unit="B", label=example.path.name, quiet=quiet) as bar,
        ):
            await import_stream(services, stream, options=options, report=report, progress=bar)
    return report


async def ask(services: Services, example: Example, question: Question) -> list[str]:
    """The memory lines for a question, asked at the example's time."""
    result = await services.recall.search(
        NAMESPACE,
        SearchQuery(
            session=example.session,
            query=question.text,
            now=example.now,
            zone=example.zone,
            language=example.language,
            top_n=3,
            window_size=1,
            scope=example.scope,
        ),
    )
    return [memory.line for memory in result.memories]
