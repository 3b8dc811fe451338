"""How much of a conversation fits into its window. Pure."""

from collections.abc import Sequence

from app.dialogues.records import WindowMessage


def within_budget(messages: Sequence[WindowMessage], budget_tokens: int) -> list[WindowMessage]:
    """The newest messages that fit into a budget together, without a gap.

    Args:
        messages: oldest first; so is the result.
        budget_tokens: 0 or more.
    """
    left = budget_tokens
    for place in reversed(range(len(messages))):
        left -= messages[place].token_count
        if left < 0:
            return list(messages[place + 1 :])
    return list(messages)
