"""A turn that was answered before, told again to who asks again. Pure."""

from collections.abc import Sequence
from dataclasses import replace

from app.chat.events import ChatEvent, Delta, Done, Recalled, Usage
from app.evaluation.turns import Turn
from app.recall.records import Memory
from app.tiers.records import Summary


def retell(turn: Turn, recited: Sequence[Memory], summaries: list[Summary]) -> list[ChatEvent]:
    """The events of the stored turn.

    Args:
        turn: that has its reply.
        recited: those of its memories that are still there, without the scores they had.
        summaries: those of its summaries that are still there.
    """
    recalled = {one.dialogue_id: one for one in turn.memories}
    memories = [
        replace(
            memory,
            is_anchor=recalled[memory.dialogue.id].is_anchor,
            similarity=recalled[memory.dialogue.id].similarity,
            match=recalled[memory.dialogue.id].match,
            decay=recalled[memory.dialogue.id].decay,
            relevance=recalled[memory.dialogue.id].relevance,
        )
        for memory in recited
    ]
    reply = turn.reply or ""
    usage = Usage(turn.prompt_tokens or 0, turn.completion_tokens or 0, turn.memory_tokens or 0)
    return [
        Recalled(memories, summaries, turn.no_match),
        Delta(reply),
        Done(turn.turn_id, turn.session, reply, memories, summaries, turn.no_match, turn.degraded, usage),
    ]
