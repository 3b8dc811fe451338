"""What is asked of the memory, and what it answers. Pure."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from app.dialogues.records import Dialogue, Kind, Role, Session
from app.recall.time_words import TimeRange

Mode = Literal["hybrid", "vector", "keyword"]
Scope = Literal["member", "group"]
Language = Literal["zh", "en"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """One search, every default already filled in.

    `now` is what relative times, expiry and decay are computed from. `budget_tokens` None: no budget.
    `exclude_ids` and `exclude_said` (time, text): messages that must not come back, since they stand in the
    hot window; a turn that is being judged has no id there yet. `min_similarity` is on the scale of
    `app.recall.calibration`, the same for every model.
    """

    session: Session
    query: str
    now: datetime
    zone: ZoneInfo
    language: Language
    top_n: int
    window_size: int
    mode: Mode = "hybrid"
    scope: Scope = "member"
    role: Role | None = None
    kind: Kind | None = None
    keywords: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    min_similarity: float | None = None
    decay: bool = True
    include_outdated: bool = False
    budget_tokens: int | None = None
    fill_budget: bool = False
    explain: bool = False
    exclude_ids: frozenset[int] = field(default_factory=frozenset)
    exclude_said: frozenset[tuple[datetime, str]] = field(default_factory=frozenset)

    def excludes(self, dialogue: Dialogue) -> bool:
        """Whether the message must not come back."""
        return dialogue.id in self.exclude_ids or (
            bool(self.exclude_said) and (dialogue.created_at, dialogue.content) in self.exclude_said
        )

    def __post_init__(self) -> None:
        # Private chats share one group key, so this would be everybody's.
        if self.scope == "group" and self.session.group_id is None:
            raise ValueError("the scope of a group needs a group")


class Candidate(NamedTuple):
    """A message that may matter.

    Attributes:
        similarity: cosine, -1 to 1; None where the message has no vector of the query's model.
        eligible: it passes the query's filters, so it may be an anchor.
    """

    dialogue: Dialogue
    similarity: float | None
    eligible: bool = True


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The messages around a hit, in order; the hit itself is among them."""

    dialogue_id: int
    around: list[Candidate]


@dataclass(frozen=True, slots=True)
class Explanation:
    """How the relevance of a hit came about; None where a side has no say."""

    vector: float | None
    lexical: float | None
    neighbour: float
    time_boost: float
    rerank: float | None


@dataclass(frozen=True, slots=True)
class Memory:
    """A recalled message. Scores are None for a neighbour that only stands beside an anchor.

    `match` is the similarity on a scale that is the same for every model; None where there is none.
    """

    dialogue: Dialogue
    absolute_time: str
    relative_time: str
    line: str
    is_anchor: bool
    similarity: float | None
    match: float | None
    decay: float | None
    relevance: float | None
    explanation: Explanation | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What was recalled, in order of time.

    Attributes:
        confidence: how sure it is that an answer is among it, 0 to 1.
        no_match: nothing of it is likely to be one.
    """

    session: Session
    now: datetime
    memories: list[Memory]
    confidence: float
    no_match: bool
    prompt: str
    token_count: int
    truncated: bool
    time_range: TimeRange | None
    degraded: bool
