"""Messages in files: entries, shapes, names."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.dialogues.records import Session
from app.dialogues.transfer import Namer, read_entries
from app.dialogues.transfer_onebot import OneBotReader, UnreadableError, plain_text, read_segments, unescape
from app.dialogues.transfer_shapes import LogOwner, ShapeReader

BOT, GROUP = 10001, 555


def read(content: bytes) -> list[tuple[str, Any, str | None]]:
    return [(one.place, one.value, one.fault) for one in read_entries(io.BytesIO(content))]


def event(**fields: Any) -> dict[str, Any]:
    return {
        "post_type": "message",
        "message_type": "group",
        "time": 1705372215,
        "self_id": BOT,
        "user_id": 42,
        "group_id": GROUP,
        "message_id": -7,
        "message": [{"type": "text", "data": {"text": "你好"}}],
        "sender": {"user_id": 42, "nickname": "小明", "card": ""},
    } | fields


def test_lines_are_counted_with_blank_ones_and_bad_ones_do_not_stop_it() -> None:
    entries = read(b'\xef\xbb\xbf\n{"a": 1}\r\n\n{bad\n"\xff"\n{"b": "\\ud800"}')
    assert [(place, value) for place, value, fault in entries if fault is None] == [
        ("line 2", {"a": 1}),
        ("line 6", {"b": "\ud800"}),
    ]
    assert [place for place, _, fault in entries if fault is not None] == ["line 4", "line 5"]


@given(
    st.lists(
        st.dictionaries(st.text(max_size=5), st.text(max_size=30) | st.integers(), max_size=3), max_size=30
    )
)
def test_an_array_reads_like_lines(values: list[dict[str, Any]]) -> None:
    array = json.dumps(values, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")
    lines = "".join(json.dumps(value) + "\n" for value in values).encode()
    assert [value for _, value, _ in read(array)] == [value for _, value, _ in read(lines)] == values


def test_an_array_larger_than_a_chunk_is_read_whole_and_a_broken_one_up_to_its_fault() -> None:
    values = [{"n": number, "text": "长" * 500} for number in range(300)]
    array = json.dumps(values, ensure_ascii=False).encode()
    assert [value for _, value, _ in read(array)] == values
    broken = read(array[:-100])
    assert broken[-1][0] == "item 300"
    assert broken[-1][2] is not None
    assert len(broken) == 300


def test_a_file_without_anything_has_no_entries() -> None:
    assert read(b"") == read(b"\n \n") == read(b"[]") == []


@pytest.mark.parametrize(
    ("escaped", "text"), [("&#91;a&#93;&#44;", "[a],"), ("&amp;#91;", "&#91;"), ("&amp;amp;", "&amp;")]
)
def test_unescaping_takes_the_ampersand_last(escaped: str, text: str) -> None:
    assert unescape(escaped) == text


def test_a_cq_string_and_an_array_say_the_same() -> None:
    string = (
        "[CQ:reply,id=3][CQ:at,qq=42,name=小明] 看 &#91;这张&#93;"
        "[CQ:image,file=a&#44;b.jpg]&amp;[CQ:face,id=1]"
    )
    array = [
        {"type": "reply", "data": {"id": "3"}},
        {"type": "at", "data": {"qq": "42", "name": "小明"}},
        {"type": "text", "data": {"text": " 看 [这张]"}},
        {"type": "image", "data": {"file": "a,b.jpg"}},
        {"type": "text", "data": {"text": "&"}},
        {"type": "face", "data": {"id": "1"}},
    ]
    assert (
        plain_text(read_segments(string))
        == plain_text(read_segments(array))
        == "@小明 看 [这张][图片]&[表情]"
    )


def test_a_message_of_a_group() -> None:
    assert OneBotReader().read(event(sender={"card": "群名片", "nickname": "小明"})) == {
        "user_id": 42,
        "group_id": GROUP,
        "role": "user",
        "content": "你好",
        "sender_name": "群名片",
        "message_id": -7,
        "created_at": 1705372215,
    }


def test_what_the_bot_says_in_a_group_belongs_to_whom_it_speaks_to() -> None:
    reader = OneBotReader()

    def say(*segments: dict[str, Any]) -> Any:
        text = {"type": "text", "data": {"text": "好的"}}
        said = reader.read(
            event(post_type="message_sent", user_id=BOT, message_id=99, message=[*segments, text])
        )
        assert said is not None
        assert said["role"] == "assistant"
        return said["user_id"]

    with pytest.raises(UnreadableError, match="nobody is known"):
        say()
    reader.read(event(user_id=1, message_id=11))
    reader.read(event(user_id=2, message_id=12))
    assert say() == 2
    assert say({"type": "reply", "data": {"id": "11"}}) == 1
    assert say({"type": "at", "data": {"qq": "3"}}) == "3"


def test_what_the_bot_says_in_private_has_its_peer_in_target_id() -> None:
    own = event(message_type="private", user_id=BOT, target_id=42, group_id=None)
    said = OneBotReader().read(own)
    assert said is not None
    assert (said["user_id"], said["group_id"], said["role"]) == (42, None, "assistant")
    with pytest.raises(UnreadableError, match="target_id"):
        OneBotReader().read(event(message_type="private", user_id=BOT))


@pytest.mark.parametrize(
    "silent",
    [
        {"post_type": "meta_event", "meta_event_type": "heartbeat"},
        event(anonymous={"id": 1, "name": "x", "flag": "y"}),
        event(message=[]),
        event(message="[CQ:reply,id=1]"),
    ],
)
def test_what_is_no_message_is_passed_over(silent: dict[str, Any]) -> None:
    assert ShapeReader().read(silent) is None


def test_a_chat_log_takes_its_user_from_the_caller() -> None:
    log = {"role": "user", "content": "你好", "ts": 1705372215}
    read_log = ShapeReader(LogOwner(42, GROUP, "小明")).read(log)
    assert read_log is not None
    assert (read_log["user_id"], read_log["group_id"], read_log["sender_name"], read_log["created_at"]) == (
        42,
        GROUP,
        "小明",
        1705372215,
    )
    with pytest.raises(UnreadableError, match="--user-id"):
        ShapeReader().read(log)
    with pytest.raises(UnreadableError, match="mood"):
        ShapeReader(LogOwner(42)).read(log | {"mood": "good"})
    with pytest.raises(UnreadableError, match="object"):
        ShapeReader().read([log])


def test_names_repeat_with_the_file_and_tell_equal_messages_apart() -> None:
    at = datetime(2024, 1, 16, tzinfo=UTC)

    def names(namespace: str = "default") -> list[str]:
        namer = Namer(namespace)
        return [
            namer.name(Session(1), role="user", created_at=time, content=content)
            for time, content in [(at, "好的"), (at, "好的"), (None, "好的"), (at, "好")]
        ]

    assert names() == names()
    assert len(set(names() + names("other"))) == 8
