"""`temporal-memory evaluate --dry-run`: what the evaluator that is set would make of turns in a file."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, Final

from app.dialogues.transfer import read_entries
from app.errors import ProviderBusyError, ProviderError, StartupError
from app.evaluation.evaluator import Evaluator
from app.evaluation.retention import Retention, retention_of
from app.evaluation.turn_files import FiledTurn, read_turns
from app.evaluation.value_filter import judge
from app.models import open_models
from app.settings import Settings
from app.telemetry import Metrics

_EXCERPT_CHARS: Final = 40
_TRIES: Final = 4
_WAIT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Judged:
    filed: FiledTurn
    score: int | None
    outcome: str


async def evaluate_file(settings: Settings, stream: BinaryIO, *, tell: Callable[[str], object]) -> int:
    """Print score, retention and how the score came about, a line a turn, and the shares at the end.

    The value filter goes first, as in the service; each other turn is asked on its own. Nothing is stored.

    Returns:
        How many entries could not be read or judged.

    Raises:
        StartupError: no evaluator is set.
    """
    counts: Counter[str] = Counter()
    async with open_models(settings, Metrics()) as models:
        if models.evaluator is None:
            raise StartupError(
                "There is no evaluator: set EVALUATION_BASE_URL and EVALUATION_API_KEY, or CHAT_BASE_URL."
            )
        turns = read_turns(read_entries(stream))
        while some := await asyncio.to_thread(_take, turns, settings.evaluation.concurrency):
            for judged in await asyncio.gather(*(_judge(models.evaluator, filed) for filed in some)):
                tell(_line(judged))
                counts[_kept_for(judged)] += 1
    bad = counts.pop("", 0)
    total = counts.total()
    shares = ", ".join(f"{retention} {counts[retention]}" for retention in Retention)
    kept = total - counts[Retention.NONE]
    share = f", {kept / total:.0%} kept" if total else ""
    tell(f"{total} turns: {shares}{share}; {bad} not judged")
    return bad


def _take(turns: Iterator[FiledTurn], number: int) -> list[FiledTurn]:
    return list(islice(turns, number))


async def _judge(evaluator: Evaluator, filed: FiledTurn) -> _Judged:
    if filed.turn is None:
        return _Judged(filed, None, filed.fault or "is no turn")
    judgement = judge(filed.turn.user_message, filed.turn.assistant_message)
    if judgement is not None:
        return _Judged(filed, judgement.score, f"filtered: {judgement.reason}")
    for tries_left in reversed(range(_TRIES)):
        try:
            return _Judged(filed, await evaluator.evaluate(*filed.turn), "scored")
        except ProviderBusyError as error:
            if not tries_left:
                return _Judged(filed, None, f"failed: {error}")
            await asyncio.sleep(error.retry_after_s or _WAIT_S)
        except ProviderError as error:
            return _Judged(filed, None, f"failed: {error}")
    raise AssertionError("the last try returns")


def _kept_for(judged: _Judged) -> str:
    return "" if judged.score is None else retention_of(judged.score)


def _line(judged: _Judged) -> str:
    """Fields with tabs between: place, score, retention, how, and the beginning of what the user said."""
    score = "-" if judged.score is None else str(judged.score)
    said = " ".join(judged.filed.turn.user_message.split()) if judged.filed.turn else ""
    return "\t".join(
        (judged.filed.place, score, _kept_for(judged) or "-", judged.outcome, said[:_EXCERPT_CHARS])
    ).rstrip()
