"""Measures the rules that need no model: `benchmarks/rules.py [--similarities]`.

Reads `turns.jsonl` (value filter and kinds) and `corrections.jsonl` in `benchmarks/labelled` and prints
precision and recall of each class for each split. `docs/judgement.md` says how they were labelled.
With `--similarities` the bundled model embeds the pairs, as the service would.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, the root is not on the path

from app.clients.embedding_offline import OfflineEmbeddingModel
from app.dialogues.kinds import classify
from app.evaluation.value_filter import judge
from app.forgetting.corrections import find_corrected
from app.telemetry import Metrics
from benchmarks.metrics import markdown_table

DATA: Final = Path(__file__).parent / "labelled"
Split = Literal["dev", "held", "blind", "unseen"]


@dataclass(frozen=True)
class Turn:
    """A labelled turn: what the value filter should say of it, and the kind of the user's message."""

    split: Split
    reason: str | None
    kind: str
    user: str
    assistant: str


@dataclass(frozen=True)
class Pair:
    """A labelled message with what its user said before; `corrected` is the place of what it corrects."""

    split: Split
    message: str
    earlier: tuple[str, ...]
    corrected: int | None
    similarities: tuple[float | None, ...]


@dataclass(frozen=True)
class Figures:
    """How one class was found: `right` of `named` were right, of `labelled` there are."""

    right: int
    named: int
    labelled: int

    @property
    def precision(self) -> float:
        return self.right / self.named if self.named else 1.0

    @property
    def recall(self) -> float:
        return self.right / self.labelled if self.labelled else 1.0


def read_turns(split: Split) -> list[Turn]:
    return [Turn(**row) for row in _rows("turns.jsonl") if row["split"] == split]


def read_pairs(split: Split) -> list[Pair]:
    return [
        Pair(split, row["message"], tuple(row["earlier"]), row["corrected"], (None,) * len(row["earlier"]))
        for row in _rows("corrections.jsonl")
        if row["split"] == split
    ]


def measure_filter(turns: Sequence[Turn]) -> dict[str, Figures]:
    """Figures of what is scored low, of what is kept for good, and of each reason."""
    judged = [
        (turn.reason, found.reason if (found := judge(turn.user, turn.assistant)) else None) for turn in turns
    ]
    grouped = [tuple(_worth(reason) for reason in pair) for pair in judged]
    return _by_class(grouped) | _by_class([pair for pair in judged if "wish_to_remember" not in pair])


def measure_kinds(turns: Sequence[Turn]) -> dict[str, Figures]:
    """Figures of each kind but `chat`, and of them all."""
    pairs = [
        tuple(None if kind == "chat" else kind for kind in (turn.kind, classify(turn.user, role="user")))
        for turn in turns
    ]
    return _by_class(pairs) | {"all kinds": _overall(pairs)}


def measure_corrections(pairs: Sequence[Pair]) -> Figures:
    """Figures of marking: a wrong message marked counts against precision and recall."""
    return _overall(
        [(pair.corrected, find_corrected(pair.message, pair.earlier, pair.similarities)) for pair in pairs]
    )


async def with_similarities(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs with the cosine similarities that the bundled model gives them."""
    model = OfflineEmbeddingModel(metrics=Metrics())
    try:
        found = []
        for pair in pairs:
            vectors = [np.asarray(v) for v in await model.embed_documents([pair.message, *pair.earlier])]
            unit = [vector / np.linalg.norm(vector) for vector in vectors]
            found.append(replace(pair, similarities=tuple(float(unit[0] @ other) for other in unit[1:])))
        return found
    finally:
        await model.aclose()


def _worth(reason: str | None) -> str | None:
    if reason is None or reason == "wish_to_remember":
        return reason
    return "low score"


def _by_class(pairs: Iterable[tuple[Any, ...]]) -> dict[str, Figures]:
    counted = Counter(pairs)
    classes = sorted({name for pair in counted for name in pair if name is not None})
    return {
        name: Figures(
            right=counted[name, name],
            named=sum(count for (_, found), count in counted.items() if found == name),
            labelled=sum(count for (label, _), count in counted.items() if label == name),
        )
        for name in classes
    }


def _overall(pairs: Sequence[tuple[Any, ...]]) -> Figures:
    return Figures(
        right=sum(label is not None and label == found for label, found in pairs),
        named=sum(found is not None for _, found in pairs),
        labelled=sum(label is not None for label, _ in pairs),
    )


def _rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def _print_table(
    title: str, measured: Callable[[Split], dict[str, Figures]], *, splits: Sequence[Split] = ("dev", "held")
) -> None:
    rows = [
        [split, name, f"{got.precision:.3f}", f"{got.recall:.3f}", f"{got.right}/{got.named}/{got.labelled}"]
        for split in splits
        for name, got in measured(split).items()
    ]
    print(f"\n{title}\n")
    print(markdown_table(["split", "class", "precision", "recall", "right/named/labelled"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--similarities", action="store_true", help="embed the pairs with the bundled model")
    embeds = parser.parse_args().similarities

    def corrections(split: Split) -> dict[str, Figures]:
        pairs = read_pairs(split)
        return {"corrected": measure_corrections(asyncio.run(with_similarities(pairs)) if embeds else pairs)}

    _print_table("Value filter", lambda split: measure_filter(read_turns(split)))
    _print_table("Kinds", lambda split: measure_kinds(read_turns(split)))
    _print_table("Corrections", corrections, splits=("dev", "held", "blind", "unseen"))


if __name__ == "__main__":
    main()
