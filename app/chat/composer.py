"""Composes what a chat model is sent: rules, memory, the conversation that is going on, the query."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from app.chat.prompt import system_text
from app.dialogues.records import WindowMessage
from app.dialogues.tokens import count_tokens
from app.dialogues.writing_service import compute_apart
from app.recall.records import Language, Memory, SearchQuery, SearchResult
from app.recall.service import RecallService
from app.tiers.records import Summary
from app.tiers.service import SessionService
from app.tiers.summary_service import SummaryService

# Bots send the time of a chat server, whose clock may run ahead of ours.
_CLOCK_SKEW = timedelta(minutes=5)
# A search for a whole pasted document would find what resembles all of it, and take seconds.
_SEARCHED_CHARS = 4_000


@dataclass(frozen=True, slots=True)
class ComposedPrompt:
    """Messages ready for any OpenAI-compatible model.

    Attributes:
        messages: `{"role", "content"}` each: system, the hot window, the query.
        recalled: the search that the memory lines come from; None where memory is switched off.
        summaries: of earlier parts of the conversation, oldest first.
        token_count: of all messages' contents.
    """

    messages: list[dict[str, str]]
    recalled: SearchResult | None
    summaries: list[Summary]
    token_count: int

    @property
    def memories(self) -> list[Memory]:
        return self.recalled.memories if self.recalled else []

    @property
    def degraded(self) -> bool:
        return bool(self.recalled and self.recalled.degraded)

    @property
    def no_match(self) -> bool:
        """Nothing that was recalled is likely to be an answer, or nothing was."""
        return self.recalled is None or self.recalled.no_match


class PromptService:
    """Window, summaries and long-term memory, side by side, in one prompt."""

    def __init__(
        self,
        *,
        recall: RecallService,
        sessions: SessionService,
        summaries: SummaryService,
        memory_enabled: bool,
    ) -> None:
        """Open nothing.

        Args:
            recall: long-term memory.
            sessions: the hot windows.
            summaries: of what has left the windows.
            memory_enabled: False: the prompt holds the window alone.
        """
        self._recall = recall
        self._sessions = sessions
        self._summaries = summaries
        self._memory_enabled = memory_enabled

    async def compose(
        self, namespace: str, query: SearchQuery, *, persona: str | None, turn_id: str | None = None
    ) -> ComposedPrompt:
        """Compose the prompt for a query; what stands in the window is not repeated as memory.

        Args:
            namespace: the caller's.
            query: what was said last.
            persona: of the assistant.
            turn_id: whose user's message the query is; None: of no turn.
        """
        window = await self._sessions.read(namespace, query.session)
        asked, earlier = _split_query(window, query, turn_id=turn_id)
        shown = self._sessions.fit(earlier)
        recalled, summaries, last_at = await asyncio.gather(
            self._search(namespace, query, [*shown, *asked]),
            self._recent_summaries(namespace, query),
            self._recall.last_message_at(
                namespace, query, before=min((one.created_at for one in asked), default=query.now)
            ),
        )
        last_said = max(
            (one for one in (last_at, *(m.created_at for m in earlier[-1:])) if one), default=None
        )
        system = system_text(
            persona=persona,
            language=query.language,
            now=query.now,
            zone=query.zone,
            summaries=[summary.content for summary in summaries],
            memory_lines=[memory.line for memory in recalled.memories] if recalled else [],
            idle_s=(query.now - last_said).total_seconds() if last_said else None,
        )
        messages = [
            {"role": "system", "content": system},
            *({"role": message.role, "content": _spoken(message, query)} for message in shown),
            {"role": "user", "content": _asked_line(asked, query, turn_id)},
        ]
        tokens = await compute_apart(
            lambda: sum(count_tokens(one["content"]) for one in messages),
            chars=sum(len(one["content"]) for one in messages),
        )
        return ComposedPrompt(messages, recalled, summaries, tokens)

    async def recite(
        self,
        namespace: str,
        dialogue_ids: Sequence[int],
        *,
        now: datetime,
        zone: ZoneInfo,
        language: Language,
    ) -> list[Memory]:
        """Messages that were recalled once, as lines again; those that are gone meanwhile are left out."""
        return await self._recall.recite(namespace, dialogue_ids, now=now, zone=zone, language=language)

    async def _search(
        self, namespace: str, query: SearchQuery, present: Sequence[WindowMessage]
    ) -> SearchResult | None:
        if not self._memory_enabled:
            return None
        said = frozenset((message.created_at, message.content) for message in present)
        asked = replace(query, query=_gist(query.query), exclude_said=query.exclude_said | said)
        return await self._recall.search(namespace, asked)

    async def _recent_summaries(self, namespace: str, query: SearchQuery) -> list[Summary]:
        if not self._memory_enabled:
            return []
        return await self._summaries.recent(namespace, query.session)


def _gist(text: str) -> str:
    """What of a long text is searched for: how it begins, where a request stands, and how it ends."""
    if len(text) <= _SEARCHED_CHARS:
        return text
    half = _SEARCHED_CHARS // 2
    return f"{text[:half]}\n{text[-half:]}"


def _split_query(
    window: Sequence[WindowMessage], query: SearchQuery, *, turn_id: str | None
) -> tuple[list[WindowMessage], list[WindowMessage]]:
    """Where the query stands in the window already, and what was said before it."""
    asked, earlier = [], []
    for message in window:
        if message.turn_id is not None and message.turn_id == turn_id:
            asked.append(message)
        # Turns bear the time of our own clock: what is later than the query is another's.
        elif message.created_at <= query.now + (timedelta() if message.turn_id and turn_id else _CLOCK_SKEW):
            earlier.append(message)
    # A bot may have stored the message itself before it asks.
    for place in reversed(range(len(earlier))):
        message = earlier[place]
        if message.role != "user":
            break
        if message.content.strip() == query.query.strip() and not (asked and message.turn_id):
            asked.append(earlier.pop(place))
            break
    return asked, earlier


def _asked_line(asked: Sequence[WindowMessage], query: SearchQuery, turn_id: str | None) -> str:
    """The query as its speaker says it, whose name stands with the turn's message."""
    said = next((message for message in asked if turn_id and message.turn_id == turn_id), None)
    return _spoken(replace(said, content=query.query), query) if said else query.query


def _spoken(message: WindowMessage, query: SearchQuery) -> str:
    """In a group each line names its speaker, since several people share the role `user`."""
    if query.session.group_id is not None and message.role == "user" and message.sender_name:
        # On one line: a name must not pose as somebody's message.
        return f"{' '.join(message.sender_name.split())}: {message.content}"
    return message.content
