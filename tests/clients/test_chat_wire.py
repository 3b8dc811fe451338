import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.clients.chat_wire import (
    CompletionReader,
    ErrorInAnswerError,
    EventReader,
    ThinkFilter,
    read_completion,
    without_refused_fields,
)
from app.clients.http import ProviderFault

VISIBLE = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: text.strip(" \t\r\n\x0b\x0c\xa0\u200b\u3000\ufeff") == text and not text.startswith("<")
)


def fault(message: str, status: int = 400) -> ProviderFault:
    return ProviderFault(status=status, code="", message=message, retry_after_s=None, trace_id="")


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(places)]


def events_of(pieces: list[bytes]) -> list[dict[str, Any]]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)] + list(reader.finish())


@given(
    texts=st.lists(st.text(), max_size=5),
    cuts=st.lists(st.integers(0, 10_000), max_size=12),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    ending=st.sampled_from(["", "{end}", "{end}{end}", "{end}{end}data: [DONE]{end}{end}"]),
)
def test_events_are_the_same_wherever_the_bytes_are_cut(
    texts: list[str], cuts: list[int], line_end: str, ending: str
) -> None:
    events = [{"text": text} for text in texts]
    separator = f"{line_end}{line_end}: ping{line_end}{line_end}"
    data = separator.join("data: " + json.dumps(event, ensure_ascii=True) for event in events)
    data += ending.format(end=line_end)
    assert events_of(pieces_of(data.encode(), cuts)) == events


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b'data:{"a":1}\ndata:{"a":2}\n', [{"a": 1}, {"a": 2}]),
        (b'event: x\nid: 1\ndata: {"a":\ndata: 1}\n\n', [{"a": 1}]),
        (b'data: {"a":1}\n\ndata: [DONE]\n\ndata: {"a":2}\n\n', [{"a": 1}]),
        (b'{"a":\n1}\n', [{"a": 1}]),
        (b"", []),
        (b": ping\n\n", []),
        ('data: {"a":"é\u2028"}\n\n'.encode(), [{"a": "é\u2028"}]),
    ],
)
def test_streams_as_they_are_seen(stream: bytes, events: list[dict[str, Any]]) -> None:
    assert events_of([stream]) == events
    assert events_of([stream[place : place + 1] for place in range(len(stream))]) == events


@pytest.mark.parametrize("stream", [b"data: {oops\n\n", b"data: [1]\n\n", b"<html></html>", b"data: 5\n\n"])
def test_what_is_no_event_stream_is_said_so(stream: bytes) -> None:
    with pytest.raises(ValueError, match="JSON"):
        events_of([stream])


def shown(texts: list[str]) -> str:
    think_filter = ThinkFilter()
    return "".join([think_filter.feed(text) for text in texts] + [think_filter.finish()])


@given(text=VISIBLE, thoughts=st.lists(st.text(alphabet="ab<>/\n 思"), max_size=3), size=st.integers(1, 20))
def test_thoughts_before_the_text_are_taken_out_wherever_they_are_cut(
    text: str, thoughts: list[str], size: int
) -> None:
    whole = "\n".join(f"<think>{thought}</think>" for thought in thoughts) + f"\n \n{text}\n"
    assert shown([whole[place : place + size] for place in range(0, len(whole), size)]) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>only thoughts", ""),
        ("<think></think>", ""),
        ("  \n", ""),
        ("<thi", "<thi"),
        ("<thinker> is a tag", "<thinker> is a tag"),
        ("Write <think>x</think> so", "Write <think>x</think> so"),
        ("<THINKING>x</THINKING>y", "y"),
        ("a  b \n", "a  b"),
    ],
)
def test_tags(text: str, expected: str) -> None:
    assert shown([text]) == expected
    assert shown(list(text)) == expected


def test_half_an_emoji_waits_for_the_other_half() -> None:
    think_filter = ThinkFilter()
    assert [think_filter.feed("好\ud83d"), think_filter.feed("\ude00"), think_filter.feed("\ud83d")] == [
        "好",
        "😀",
        "",
    ]
    assert think_filter.finish() == "\ufffd"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "a"}, "a"),
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]},
            "ab",
        ),
        ({"content": "a\ud83d"}, "a\ufffd"),
    ],
)
def test_the_text_of_a_message(message: dict[str, Any], text: str) -> None:
    assert read_completion(json.dumps({"choices": [{"message": message}]}).encode()).text == text


@pytest.mark.parametrize(
    "message", [{"content": None}, {"content": ""}, {"content": 5}, {"content": "\u200b"}, {}, None, "x"]
)
def test_no_text_is_an_error(message: object) -> None:
    with pytest.raises(ValueError, match="empty answer"):
        read_completion(json.dumps({"choices": [{"message": message}]}).encode())


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{}", b'{"choices": null}', b"\xff", b"[" * 100_000])
def test_no_answer_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|choices"):
        read_completion(body)


@pytest.mark.parametrize(
    ("event", "status"),
    [
        ({"error": {"message": "x", "code": 429}}, 429),
        ({"error": {"message": "x", "code": "rate_limit", "status": 429}}, 429),
        ({"error": "x"}, None),
        ({"code": 50505, "message": "x", "data": None}, None),
        ({"code": 503, "message": "x"}, 503),
        ({"choices": [{"finish_reason": "error", "delta": {}}]}, None),
    ],
)
def test_an_error_in_an_answer_may_name_its_status(event: dict[str, Any], status: int | None) -> None:
    with pytest.raises(ErrorInAnswerError) as caught:
        CompletionReader().feed(event)
    assert caught.value.status == status


@given(text=st.text(st.characters(exclude_categories=["Cs"])), size=st.integers(1, 5))
def test_no_nul_comes_through_however_it_is_cut(text: str, size: int) -> None:
    reader = CompletionReader()
    whole = f"a\0{text}\0b"
    shown = "".join(
        reader.feed({"choices": [{"delta": {"content": whole[place : place + size]}}]})
        for place in range(0, len(whole), size)
    )
    assert shown + reader.finish() == whole.replace("\0", "") == reader.completion().text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("我在想 secret</think>答案是七", "答案是七"),
        ("so…\n</think>\n\nSeven.", "Seven."),
        ("嗯</thinking>七</think>八", "七</think>八"),
        ("Close it with `</think>`.", "Close it with `</think>`."),
        ("“</think>”是结束标记", "“</think>”是结束标记"),
        ("<b>Write <think>x</think> so", "<b>Write <think>x</think> so"),
    ],
)
def test_thoughts_that_nothing_had_opened_are_not_part_of_the_whole(text: str, kept: str) -> None:
    assert read_completion(json.dumps({"choices": [{"message": {"content": text}}]}).encode()).text == kept


def test_thoughts_alone_are_an_empty_answer() -> None:
    body = json.dumps({"choices": [{"message": {"content": "only thoughts</think>\n"}}]}).encode()
    with pytest.raises(ValueError, match="empty answer"):
        read_completion(body)


@pytest.mark.parametrize("size", [1_000, 99_999, 100_000, 250_000])
def test_no_more_text_is_taken_than_one_message_may_have(size: int) -> None:
    reader = CompletionReader()
    shown = 0
    for _ in range(3):
        shown += len(reader.feed({"choices": [{"delta": {"content": "七" * size}}]}))
    shown += len(reader.finish())
    answer = reader.completion()
    assert shown == len(answer.text) == min(3 * size, 100_000)
    assert (reader.is_full, answer.finish_reason) == (
        (True, "length") if 3 * size >= 100_000 else (False, None)
    )


@pytest.mark.parametrize(
    "usage",
    [
        None,
        5,
        [],
        {"prompt_tokens": "5"},
        {"prompt_tokens": -1},
        {"prompt_tokens": True},
        {"prompt_tokens": 2**31},
    ],
)
def test_usage_that_makes_no_sense_is_none(usage: object) -> None:
    answer = {"choices": [{"message": {"content": "a"}}], "usage": usage}
    assert read_completion(json.dumps(answer).encode()).prompt_tokens is None


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("unknown parameter stream_options", {"max_tokens", "enable_thinking"}),
        ("include_usage?", {"max_tokens", "enable_thinking"}),
        ("`enable_thinking` is not supported", {"max_tokens", "stream_options"}),
        ("Extra inputs are not permitted", {"max_tokens"}),
        (
            "Unsupported: 'max_tokens'. Use 'max_completion_tokens'.",
            {"max_completion_tokens", "stream_options", "enable_thinking"},
        ),
        ("prompt too long", None),
    ],
)
def test_refused_fields_are_left_out(message: str, kept: set[str] | None) -> None:
    payload: dict[str, object] = {"max_tokens": 5, "stream_options": {}, "enable_thinking": False}
    accepted = without_refused_fields(payload, fault(message))
    assert (accepted if accepted is None else accepted.keys()) == kept
    assert without_refused_fields(payload, fault(message, 500)) is None
    assert without_refused_fields({}, fault(message)) is None
