import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.conversations import find_sets, read_conversations, with_zone


def _write_set(folder: Path, speakers: tuple[str, ...]) -> Path:
    folder.mkdir()
    messages = [
        {
            "conv_id": "c1",
            "msg_id": f"m{number}",
            "role": "assistant" if number % 2 else "user",
            "speaker": speaker,
            "content": f"第{number}句",
            "ts": f"2024-01-16T10:30:{number:02d}",
        }
        for number, speaker in enumerate(speakers)
    ]
    queries = [
        {"conv_id": "c1", "query": "谁？", "now": "2024-02-01T00:00:00", "category": "a", "evidence": ["m1"]}
    ]
    for name, lines in (("messages.jsonl", messages), ("queries.jsonl", queries)):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def _values(dialogues: tuple[dict[str, Any], ...], field: str) -> list[Any]:
    return [dialogue[field] for dialogue in dialogues]


def test_two_speakers_are_one_private_session(tmp_path: Path) -> None:
    (conversation,) = read_conversations(_write_set(tmp_path / "set", ("小明", "AI", "小明")))
    assert len(set(_values(conversation.dialogues, "user_id"))) == 1
    assert _values(conversation.dialogues, "group_id") == [None] * 3
    assert _values(conversation.dialogues, "role") == ["user", "assistant", "user"]
    assert _values(conversation.dialogues, "sender_name") == ["小明", "AI", "小明"]
    assert "scope" not in conversation.asked_as
    assert len(conversation.sessions) == 1
    assert conversation.message_ids == ("m0", "m1", "m2")


def test_more_speakers_are_a_group_of_users_asked_as_a_whole(tmp_path: Path) -> None:
    (conversation,) = read_conversations(_write_set(tmp_path / "set", ("甲", "乙", "丙", "甲")))
    users = _values(conversation.dialogues, "user_id")
    assert users[0] == users[3]
    assert len(set(users)) == 3
    assert len(set(_values(conversation.dialogues, "group_id"))) == 1
    assert _values(conversation.dialogues, "role") == ["user"] * 4
    assert conversation.asked_as["scope"] == "group"
    assert conversation.asked_as["group_id"] == conversation.dialogues[0]["group_id"]
    assert len(conversation.sessions) == 3


def test_ids_are_the_same_in_every_run_and_others_under_another_salt(tmp_path: Path) -> None:
    folder = _write_set(tmp_path / "set", ("小明", "AI"))
    first, again = read_conversations(folder)[0], read_conversations(folder)[0]
    salted = read_conversations(folder, salt="2")[0]
    assert first == again
    for field in ("user_id", "message_uuid"):
        assert not set(_values(first.dialogues, field)) & set(_values(salted.dialogues, field))
    assert all(0 < user < 2**53 for user in _values(first.dialogues, "user_id"))


def test_a_time_without_offset_is_read_in_shanghai_and_one_with_it_is_kept(tmp_path: Path) -> None:
    assert with_zone("2024-01-16T10:30:00") == "2024-01-16T10:30:00+08:00"
    assert with_zone("2024-01-16T10:30:00+02:00") == "2024-01-16T10:30:00+02:00"
    (conversation,) = read_conversations(_write_set(tmp_path / "set", ("小明", "AI")))
    assert conversation.questions[0].now == "2024-02-01T00:00:00+08:00"
    assert conversation.dialogues[0]["created_at"] == "2024-01-16T10:30:00+08:00"


@pytest.mark.parametrize(("name", "expected"), [(None, ["a", "b"]), ("b", ["b"]), ("c", [])])
def test_sets_are_found_by_folder(tmp_path: Path, name: str | None, expected: list[str]) -> None:
    for folder in ("a", "b"):
        _write_set(tmp_path / folder, ("小明", "AI"))
    (tmp_path / "no-set").mkdir()
    assert [folder.name for folder in find_sets(tmp_path, name)] == expected
    assert find_sets(tmp_path / "a") == [tmp_path / "a"]
