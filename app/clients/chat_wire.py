"""The chat protocol of OpenAI as many speak it: what a request may be without, what an answer says. Pure.

Answers are read as leniently as their meaning is clear: events with or without blank lines between them, text
as a string or as parts, usage at the end or in every event, think blocks in the text or beside it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.clients.http import ProviderFault

_LINE_END: Final = re.compile(rb"\r\n|\n|\r(?!\Z)")
_OPENING: Final = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_CLOSING: Final = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_LONGEST_OPENING: Final = len("<thinking>")
_LONGEST_CLOSING: Final = len("</thinking>")
_HIGH_SURROGATE: Final = re.compile("[\ud800-\udbff]\\Z")
_LARGEST_COUNT: Final = 2**31 - 1
# Of what the service takes as one message; a model that speaks on for ever is listened to no longer.
_MOST_CHARACTERS: Final = 100_000
_QUOTES: Final = "`'\"‘’“”「」『』"
_BLANK: Final = " \t\r\n\x0b\x0c\xa0\u200b\u3000\ufeff"
# What some provider or model refuses, and every other can do without.
_OPTIONAL_FIELDS: Final = ("stream_options", "enable_thinking", "temperature", "max_tokens")
_FIELD_NAMES: Final = {"stream_options": ("stream_options", "include_usage")}
_UNKNOWN_FIELD: Final = re.compile(
    r"(?i)extra (?:inputs|fields)|unknown (?:field|name|argument)|unrecognized"
)
_NO_SUCH_MODEL: Final = re.compile(
    r"(?i)model\b.{0,80}\b(?:not exist|not found|no such)|no such model|模型不存在"
)
_MODEL_NOT_FOUND: Final = "20012"
_DENIED_STATUSES: Final = {401, 402, 403, 404}
_INPUT_STATUSES: Final = {400, 413, 422}


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer.

    Attributes:
        text: never blank, without NUL and think blocks; at most 100,000 characters.
        prompt_tokens: None where the provider does not count.
        completion_tokens: thinking included; None where the provider does not count.
        finish_reason: such as `stop` or `length`; None where the provider does not say.
    """

    text: str
    prompt_tokens: int | None
    completion_tokens: int | None
    finish_reason: str | None


class ErrorInAnswerError(Exception):
    """An error that came with status 200.

    Attributes:
        status: the HTTP status that it names; None where it names none.
        body: JSON.
    """

    def __init__(self, status: int | None, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


def without_refused_fields(payload: Mapping[str, object], fault: ProviderFault) -> dict[str, object] | None:
    """The request without the optional field that the provider refuses; None where that is not its complaint.

    `max_tokens` is renamed where the provider wants the newer `max_completion_tokens`.
    """
    if fault.status not in _INPUT_STATUSES:
        return None
    for field in _OPTIONAL_FIELDS:
        if field in payload and any(name in fault.message for name in _FIELD_NAMES.get(field, (field,))):
            rest = {key: value for key, value in payload.items() if key != field}
            if field == "max_tokens" and "max_completion_tokens" in fault.message:
                rest["max_completion_tokens"] = payload[field]
            return rest
    # FastAPI names the field beside the message; only these two are no part of the oldest protocol.
    if _UNKNOWN_FIELD.search(fault.message) and payload.keys() & {"stream_options", "enable_thinking"}:
        return {
            key: value for key, value in payload.items() if key not in {"stream_options", "enable_thinking"}
        }
    return None


def is_denied(fault: ProviderFault) -> bool:
    """Whether the provider refuses our key, balance or model, and not this request."""
    return (
        fault.status in _DENIED_STATUSES
        or fault.code == _MODEL_NOT_FOUND
        or (fault.status in _INPUT_STATUSES and _NO_SUCH_MODEL.search(fault.message) is not None)
    )


def is_rejected(fault: ProviderFault) -> bool:
    """Whether the provider will never take this request."""
    return fault.status in _INPUT_STATUSES


class EventReader:
    """Cuts a server-sent event stream into its JSON objects, however its bytes arrive.

    Attributes:
        is_done: `[DONE]` was read; what follows it is ignored.
    """

    def __init__(self) -> None:
        self.is_done = False
        self._bytes = bytearray()
        self._data = ""
        self._has_events = False
        self._plain = bytearray()

    def feed(self, piece: bytes) -> Iterator[dict[str, Any]]:
        """The objects that this piece of the stream completes.

        Raises:
            ValueError: the stream is not what it should be.
        """
        self._bytes += piece
        if b"\n" not in piece and b"\r" not in self._bytes:
            return
        *lines, rest = _LINE_END.split(self._bytes)
        self._bytes = bytearray(rest)
        for line in lines:
            yield from self._read_line(line)

    def finish(self) -> Iterator[dict[str, Any]]:
        """What the end of the stream completes: a last line, or a whole answer that is no event stream."""
        line = bytes(self._bytes).rstrip(b"\r")
        self._bytes.clear()
        yield from self._read_line(line)
        yield from self._read_line(b"")
        if not self._has_events and not self.is_done and self._plain.strip():
            yield _read_object(bytes(self._plain))

    def _read_line(self, line: bytes) -> Iterator[dict[str, Any]]:
        if self.is_done:
            return
        if line and not line.startswith(b"data:"):
            if not self._has_events and not line.startswith((b":", b"event:", b"id:", b"retry:")):
                self._plain += line + b"\n"
            return
        if line:
            text = line[len(b"data:") :].decode("utf-8", "replace").strip()
            self._data = f"{self._data}\n{text}".strip()
        if not self._data:
            return
        if self._data == "[DONE]":
            self.is_done = True
            return
        try:
            event = json.loads(self._data)
        except (ValueError, RecursionError):
            if line:
                return  # an event may have several lines
            raise ValueError("events that are not JSON") from None
        self._data = ""
        self._has_events = True
        if not isinstance(event, dict):
            raise ValueError("events that are not JSON objects")  # noqa: TRY004 - of the answer, not of a caller
        yield event


class ThinkFilter:
    """Lets the text pass as it comes, without think blocks before it and white space around it.

    Only what stands before all other text is thinking: an answer may speak about such tags.
    """

    def __init__(self) -> None:
        self._held = ""
        self._is_thinking = False
        self._has_text = False

    def feed(self, text: str) -> str:
        """What may be shown now."""
        self._held += text
        while not self._has_text:
            if self._is_thinking:
                closing = _CLOSING.search(self._held)
                if closing is None:
                    self._held = self._held[-_LONGEST_CLOSING:]
                    return ""
                self._held = self._held[closing.end() :]
                self._is_thinking = False
            self._held = self._held.lstrip(_BLANK)
            opening = _OPENING.match(self._held)
            if opening:
                self._held = self._held[opening.end() :]
                self._is_thinking = True
            elif not self._held or _may_become_opening(self._held):
                return ""
            else:
                self._has_text = True
        return self._release()

    def finish(self) -> str:
        """What was held back and turned out to be text."""
        if self._is_thinking:
            return ""
        held, self._held = self._held.rstrip(_BLANK), ""
        return _join_surrogates(held)

    def _release(self) -> str:
        # White space may be the end of the answer, and half an emoji is no character.
        shown = _HIGH_SURROGATE.sub("", self._held).rstrip(_BLANK)
        self._held = self._held[len(shown) :]
        return _join_surrogates(shown)


def _may_become_opening(text: str) -> bool:
    return len(text) < _LONGEST_OPENING and "<thinking>".startswith(text.lower())


def _join_surrogates(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class CompletionReader:
    """Reads an answer event by event."""

    def __init__(self) -> None:
        self._filter = ThinkFilter()
        self._shown: list[str] = []
        self._finish_reason: str | None = None
        self._prompt_tokens: int | None = None
        self._completion_tokens: int | None = None
        self._has_thoughts = False
        self._room = _MOST_CHARACTERS

    @property
    def is_finished(self) -> bool:
        """Whether the model said why it stopped, or is not listened to any longer."""
        return self._finish_reason is not None or self.is_full

    @property
    def is_full(self) -> bool:
        """Whether there is as much text as is taken; the rest is not read."""
        return self._room == 0

    def feed(self, event: Mapping[str, Any]) -> str:
        """The text to be shown of one event.

        Raises:
            ErrorInAnswerError: it is an error.
        """
        choices = event.get("choices")
        if event.get("error") or (not choices and "usage" not in event and event.get("message")):
            raise ErrorInAnswerError(_status_of(event), json.dumps(event).encode())
        self._read_usage(event.get("usage"))
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return ""
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason:
            if reason == "error":
                raise ErrorInAnswerError(None, b'{"message": "the model failed"}')
            self._finish_reason = reason
        message = choice.get("delta") or choice.get("message")
        if not isinstance(message, dict):
            return ""
        self._has_thoughts |= bool(message.get("reasoning_content") or message.get("reasoning"))
        return self._show(self._filter.feed(_text_of(message.get("content")).replace("\0", "")))

    def finish(self) -> str:
        """The text that was held back until it was clear that nothing follows."""
        return self._show(self._filter.finish())

    def completion(self) -> Completion:
        """The whole answer.

        Raises:
            ValueError: it is empty.
        """
        text = _without_orphaned_thoughts("".join(self._shown))
        if not text:
            thoughts = ", only thoughts" if self._has_thoughts else ""
            raise ValueError(f"with an empty answer{thoughts} (finish reason: {self._finish_reason})")
        reason = "length" if self.is_full else self._finish_reason
        return Completion(text, self._prompt_tokens, self._completion_tokens, reason)

    def _show(self, text: str) -> str:
        text = text[: self._room]
        if text:
            self._shown.append(text)
            self._room -= len(text)
        return text

    def _read_usage(self, usage: object) -> None:
        if isinstance(usage, dict):
            self._prompt_tokens = _count(usage.get("prompt_tokens"), self._prompt_tokens)
            self._completion_tokens = _count(usage.get("completion_tokens"), self._completion_tokens)


def read_completion(body: bytes) -> Completion:
    """A whole answer that came at once.

    Raises:
        ErrorInAnswerError: it is an error.
        ValueError: it is not an answer, or an empty one.
    """
    answer = _read_object(body)
    reader = CompletionReader()
    reader.feed(answer)
    if not isinstance(answer.get("choices"), list):
        raise ValueError("without choices")  # noqa: TRY004 - of the answer, not of a caller
    reader.finish()
    return reader.completion()


def _read_object(body: bytes) -> dict[str, Any]:
    try:
        # Not orjson: it refuses an emoji that was cut into two escapes.
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("what is not JSON") from None
    if not isinstance(answer, dict):
        raise ValueError("what is not a JSON object")  # noqa: TRY004 - of the answer, not of a caller
    return answer


def _status_of(event: Mapping[str, Any]) -> int | None:
    error = event.get("error")
    for source in (error if isinstance(error, dict) else {}, event):
        for key in ("status", "code"):
            digits = str(source.get(key))
            if re.fullmatch(r"[45]\d\d", digits):
                return int(digits)
    return None


def _text_of(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [
        part.get("text") for part in parts if isinstance(part, dict) and part.get("type", "text") == "text"
    ]
    return "".join(text for text in texts if isinstance(text, str))


def _count(value: object, known: int | None) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_COUNT:
        return value
    return known


def _without_orphaned_thoughts(text: str) -> str:
    """The text behind a closing tag that nothing has opened.

    The templates of some models put the opening tag into the prompt, and a server that does not know of it
    passes on thoughts and tag. A tag in quotes is one that is spoken about.
    """
    closing = _CLOSING.search(text)
    if closing is None or _OPENING.search(text, 0, closing.start()):
        return text
    before, after = text[: closing.start()], text[closing.end() :]
    is_quoted = before[-1:] in _QUOTES and after[:1] in _QUOTES and before and after
    return text if is_quoted else after.strip(_BLANK)
