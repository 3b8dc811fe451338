"""How much of a conversation fits into its window. Pure but for the vocabulary that counts tokens."""

from collections.abc import Sequence
from dataclasses import replace

from app.dialogues.records import WindowMessage
from app.dialogues.tokens import count_tokens, cut_to_tokens


def within_budget(messages: Sequence[WindowMessage], budget_tokens: int) -> list[WindowMessage]:
    """The newest messages that fit into a budget together, without a gap.

    The newest is there whatever its length: one that is longer than the whole budget is cut to it.

    Args:
        messages: oldest first; so is the result.
        budget_tokens: 0 or more.
    """
    left = budget_tokens
    for place in reversed(range(len(messages))):
        left -= messages[place].token_count
        if left < 0:
            return list(messages[place + 1 :]) or _cut(messages[place], budget_tokens)
    return list(messages)


def _cut(message: WindowMessage, budget_tokens: int) -> list[WindowMessage]:
    content = cut_to_tokens(message.content, budget_tokens)
    return [replace(message, content=content, token_count=count_tokens(content))] if content else []
