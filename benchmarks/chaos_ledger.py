"""What the clients of the chaos run were promised: the ledger that the memory is held against at the end."""

import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import Any

TOKEN = re.compile(r"T\d{7}X")
# The embedding provider refuses each text that contains it, so such a message must be seen to have failed.
POISON = "毒蘑菇"

_NUMBERS = count(1)


def new_token() -> str:
    """A word that stands in one message only, whoever quotes it."""
    return f"T{next(_NUMBERS):07}X"


@dataclass
class Message:
    """A message that a service said it has stored.

    Attributes:
        content: as it was written or changed last.
        name: its uuid or message_id, as it was written with; empty once it was changed.
    """

    id: int
    token: str
    content: str
    name: dict[str, str | int]


@dataclass
class Turn:
    """A turn of chat: answered, or given up by its client after the model had failed."""

    turn_id: str | None
    token: str
    content: str
    message_uuid: str
    reply: str | None


@dataclass
class Session:
    """What a session holds by the answers that its one owner was given, in order."""

    namespace: str
    user_id: int
    group_id: int | None
    messages: dict[str, Message] = field(default_factory=dict)
    turns: dict[str, Turn] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return str(self.user_id) if self.group_id is None else f"{self.group_id}:{self.user_id}"

    @property
    def address(self) -> dict[str, Any]:
        """The fields that name the session in a request."""
        group = {} if self.group_id is None else {"group_id": self.group_id}
        return {"user_id": self.user_id, **group}


@dataclass
class Ledger:
    """All that was acknowledged, and all that was seen to be wrong on the way.

    Attributes:
        erased: tokens of sessions and users whose erasure was acknowledged; they may stand nowhere.
        deleted: contents of single messages whose deletion, or change, was acknowledged: no message is one.
        violations: evidence of promises broken, by kind.
        tally: operations, answers and faults, by name.
    """

    sessions: list[Session] = field(default_factory=list)
    erased: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    violations: dict[str, list[str]] = field(default_factory=dict)
    tally: Counter[str] = field(default_factory=Counter)

    def accuse(self, kind: str, evidence: str) -> None:
        """Note a broken promise."""
        self.violations.setdefault(kind, []).append(evidence)

    def erase(self, sessions: list[Session]) -> None:
        """Note that all of these sessions is gone for good."""
        for session in sessions:
            self.erased |= session.messages.keys() | session.turns.keys()
            session.messages.clear()
            session.turns.clear()

    def delete(self, session: Session, token: str) -> None:
        """Note that one message is gone for good."""
        self.deleted.add(session.messages.pop(token).content)


def check_listed(ledger: Ledger, session: Session, listed: list[dict[str, Any]]) -> None:
    """Hold a session's pages against the ledger: each message once, in order, and nothing that is gone."""
    ids = [one["id"] for one in listed]
    if len(set(ids)) != len(ids):
        ledger.accuse("pages that repeat a message", f"{session.key}: {ids}")
    places = [(one["created_at"], one["id"]) for one in listed]
    if places != sorted(places):
        ledger.accuse("pages out of order", session.key)
    contents = {one["id"]: one["content"] for one in listed}
    expected = [message.id for message in session.messages.values()]
    for message in session.messages.values():
        if contents.get(message.id) != message.content:
            ledger.accuse(
                "acknowledged messages lost or changed",
                f"{session.key} {message}: {contents.get(message.id)!r}",
            )
    wanted = set(expected)
    if [key for key in ids if key in wanted] != [key for key in expected if key in contents]:
        ledger.accuse("messages in another order than written", f"{session.key}: {expected} is {ids}")
    ours = {message.content for message in session.messages.values()} | {
        turn.content for turn in session.turns.values()
    }
    for one in listed:
        if one["role"] == "user" and one["content"] not in ours:
            ledger.accuse("messages that nobody wrote, or that are gone", f"{session.key}: {one}")
