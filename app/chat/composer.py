"""Composes what a chat model is sent: rules, memory, the conversation that is going on, the query."""

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta

from app.chat.prompt import system_text
from app.dialogues.records import WindowMessage
from app.dialogues.tokens import count_tokens
from app.recall.records import SearchQuery, SearchResult
from app.recall.service import RecallService
from app.tiers.service import SessionService

# Bots send the time of a chat server, whose clock may run ahead of ours.
_CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class ComposedPrompt:
    """Messages ready for any OpenAI-compatible model.

    Attributes:
        messages: `{"role", "content"}` each: system, the hot window, the query.
        recalled: the search that the memory lines come from.
        token_count: of all messages' contents.
    """

    messages: list[dict[str, str]]
    recalled: SearchResult
    token_count: int


class PromptService:
    """Recall and window, side by side, in one prompt."""

    def __init__(self, *, recall: RecallService, sessions: SessionService) -> None:
        self._recall = recall
        self._sessions = sessions

    async def compose(self, namespace: str, query: SearchQuery, *, persona: str | None) -> ComposedPrompt:
        """Compose the prompt for a query; what stands in the window is not repeated as memory."""
        window = [
            message
            for message in await self._sessions.window(namespace, query.session)
            if message.created_at <= query.now + _CLOCK_SKEW
        ]
        earlier = _without_the_query(window, query.query)
        # The silence that a recap bridges is the one before the query, stored already or not.
        query_at = window[-1].created_at if len(earlier) < len(window) else query.now
        in_window = frozenset(message.dialogue_id for message in window if message.dialogue_id is not None)
        recalled, last_at = await asyncio.gather(
            self._recall.search(namespace, replace(query, exclude_ids=query.exclude_ids | in_window)),
            self._recall.last_message_at(namespace, replace(query, now=query_at)),
        )
        system = system_text(
            persona=persona,
            language=query.language,
            now=query.now,
            zone=query.zone,
            summaries=(),
            memory_lines=[memory.line for memory in recalled.memories],
            idle_s=(query.now - last_at).total_seconds() if last_at else None,
        )
        messages = [
            {"role": "system", "content": system},
            *({"role": message.role, "content": _spoken(message, query)} for message in earlier),
            {"role": "user", "content": query.query},
        ]
        return ComposedPrompt(messages, recalled, sum(count_tokens(one["content"]) for one in messages))


def _without_the_query(window: list[WindowMessage], query: str) -> list[WindowMessage]:
    """The window before the query: a bot that has stored the message already must not see it twice."""
    if window and window[-1].role == "user" and is_query(window[-1].content, query):
        return window[:-1]
    return window


def is_query(content: str, query: str) -> bool:
    """Whether a window's message is the query; one longer than the window is held cut."""
    said, asked = content.strip(), query.strip()
    return said == asked or (said.endswith("…") and len(said) > 1 and asked.startswith(said[:-1].rstrip()))


def _spoken(message: WindowMessage, query: SearchQuery) -> str:
    """In a group each line names its speaker, since several people share the role `user`."""
    if query.session.group_id is not None and message.role == "user" and message.sender_name:
        # On one line: a name must not pose as somebody's message.
        return f"{' '.join(message.sender_name.split())}: {message.content}"
    return message.content
