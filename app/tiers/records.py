"""What the tiers hold besides the window's messages. Pure."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Summary:
    """What an older stretch of a conversation was compressed to.

    Attributes:
        since: when its first message was said.
        until: when its last message was said.
        messages: how many it stands for.
    """

    id: int
    content: str
    since: datetime
    until: datetime
    messages: int
    created_at: datetime
