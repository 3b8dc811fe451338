"""Reads conversations with questions and evidence, and says them in the service's words.

A set is a folder with `messages.jsonl` (`conv_id`, `msg_id`, `role`, `speaker`, `content`, `ts`) and
`queries.jsonl` (`conv_id`, `query`, `now`, `category`, `evidence`: a list of `msg_id`). A conversation of one
or two speakers is one user's private session; one of more is a group in which each speaker is a user.
"""

import hashlib
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

ZONE = ZoneInfo("Asia/Shanghai")
"""Where a time without offset was written down."""

_GROUP_FROM_SPEAKERS = 3


@dataclass(frozen=True)
class Question:
    conversation: str
    text: str
    now: str
    category: str
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Conversation:
    """One conversation as the service takes it.

    Attributes:
        dialogues: bodies for `POST /dialogues/batch`, in the order of the file.
        message_ids: the set's id of each of them.
        asked_as: the body fields that name the session and scope a question is asked in.
        sessions: every (user, group) that holds a part of it.
    """

    name: str
    dialogues: tuple[dict[str, Any], ...]
    message_ids: tuple[str, ...]
    asked_as: dict[str, Any]
    sessions: tuple[tuple[int, int | None], ...]
    questions: tuple[Question, ...]


def find_sets(data: Path, name: str | None = None) -> list[Path]:
    """Every folder that holds a set, `data` itself or one in it; only that of the name where one is given."""
    folders = [folder for folder in (data, *sorted(data.iterdir())) if (folder / "messages.jsonl").is_file()]
    return [folder for folder in folders if name is None or folder.name == name]


def read_conversations(folder: Path, *, salt: str = "") -> list[Conversation]:
    """The conversations of one set.

    Args:
        folder: holds `messages.jsonl` and `queries.jsonl`.
        salt: another salt gives other ids, so that a set can be stored again beside itself.
    """
    messages: dict[str, list[dict[str, Any]]] = {}
    for message in _read_lines(folder / "messages.jsonl"):
        messages.setdefault(message["conv_id"], []).append(message)
    questions: dict[str, list[Question]] = {}
    for line in _read_lines(folder / "queries.jsonl"):
        questions.setdefault(line["conv_id"], []).append(
            Question(
                conversation=line["conv_id"],
                text=line["query"],
                now=with_zone(line["now"]),
                category=str(line["category"]),
                evidence=tuple(line["evidence"]),
            )
        )
    return [
        _conversation(f"{salt}{folder.name}/{name}", lines, questions.get(name, []))
        for name, lines in messages.items()
    ]


def with_zone(time: str) -> str:
    """The ISO time with an offset; one that has none is read in `ZONE`."""
    moment = datetime.fromisoformat(time)
    return (moment if moment.tzinfo else moment.replace(tzinfo=ZONE)).isoformat()


def _conversation(name: str, lines: list[dict[str, Any]], questions: list[Question]) -> Conversation:
    speakers = list(dict.fromkeys(line["speaker"] for line in lines))
    is_group = len(speakers) >= _GROUP_FROM_SPEAKERS
    group_id = _number(name) if is_group else None
    users = {speaker: _number(f"{name}/{speaker}" if is_group else name) for speaker in speakers}
    dialogues = tuple(
        {
            "user_id": users[line["speaker"]],
            "group_id": group_id,
            "role": "user" if is_group else line["role"],
            "sender_name": line["speaker"],
            "content": line["content"],
            "created_at": with_zone(line["ts"]),
            "message_uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name}/{line['msg_id']}")),
        }
        for line in lines
    )
    asker = {"user_id": users[speakers[0]], "group_id": group_id}
    return Conversation(
        name=name,
        dialogues=dialogues,
        message_ids=tuple(line["msg_id"] for line in lines),
        asked_as=asker | ({"scope": "group"} if is_group else {}),
        sessions=tuple((user, group_id) for user in dict.fromkeys(users.values())),
        questions=tuple(questions),
    )


def _number(name: str) -> int:
    """A positive id below 2^52, so that it survives a client that keeps numbers as doubles."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) >> 12 | 1


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)
