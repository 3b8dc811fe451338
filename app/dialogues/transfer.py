"""Messages in files: entries out of JSON Lines or a JSON array, and lines for an export. Pure.

An export line holds the fields of the HTTP contract that a restore needs, so that what was exported is
imported as it was.
"""

import codecs
import json
import uuid
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO, Final
from zoneinfo import ZoneInfo

import orjson

from app.dialogues.records import Dialogue, Role, Session

MAX_ENTRY_BYTES: Final = 16 * 1024 * 1024
"""As much as one request may hold."""

_CHUNK_BYTES: Final = 1 << 16
_BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = b" \t\r\n"
_IMPORTED: Final = uuid.UUID("0d5bd6d6-6c0a-5a0e-9f0e-3a6d6a6f7b52")
_REMEMBERED: Final = 200_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of a file as it was written there.

    Attributes:
        place: `line 3`, or `item 3` in a JSON array.
        value: the JSON value; None where there is a fault.
        fault: why it could not be read.
        bytes_read: how far into the file reading has come.
    """

    place: str
    value: Any
    fault: str | None
    bytes_read: int


def read_entries(stream: BinaryIO) -> Iterator[Entry]:
    """Read a file of JSON Lines, or one JSON array, an entry at a time; what cannot be read is an entry too.

    Memory does not grow with the file. An array is read up to its first fault: nothing tells where the next
    item begins.
    """
    first = stream.readline(MAX_ENTRY_BYTES)
    read = len(first)
    number = 1
    first = first.removeprefix(_BOM)
    while first and not first.strip(_BLANK):
        first = stream.readline(MAX_ENTRY_BYTES)
        read += len(first)
        number += 1
    if first.lstrip(_BLANK).startswith(b"["):
        yield from _read_array(first.lstrip(_BLANK), stream, bytes_read=read)
    elif first:
        yield from _read_lines(first, stream, number=number, bytes_read=read)


def _read_lines(line: bytes, stream: BinaryIO, *, number: int, bytes_read: int) -> Iterator[Entry]:
    while line:
        place = f"line {number}"
        if len(line) == MAX_ENTRY_BYTES and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_ENTRY_BYTES)
                bytes_read += len(line)
            yield Entry(place, None, f"longer than {MAX_ENTRY_BYTES} bytes", bytes_read)
        elif line.strip(_BLANK):
            value, fault = _parse(line)
            yield Entry(place, value, fault, bytes_read)
        line = stream.readline(MAX_ENTRY_BYTES)
        bytes_read += len(line)
        number += 1


def _parse(line: bytes) -> tuple[Any, str | None]:
    try:
        return orjson.loads(line), None
    except orjson.JSONDecodeError:
        # orjson refuses unpaired surrogates, which are mended later.
        pass
    try:
        return json.loads(line.decode("utf-8")), None
    except UnicodeDecodeError:
        return None, "is not UTF-8"
    except json.JSONDecodeError as error:
        return None, f"is not JSON: {error.msg} at column {error.colno}"
    except (ValueError, RecursionError):
        return None, "is not JSON that could hold a message"


class _Text:
    """What of a stream of UTF-8 has been read and not yet used up."""

    def __init__(self, start: bytes, stream: BinaryIO, *, bytes_read: int) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.bytes_read = bytes_read
        self.text = self._decoder.decode(start)
        self.ended = False

    def grow(self, size: int) -> None:
        chunk = self._stream.read(size)
        self.bytes_read += len(chunk)
        self.ended = not chunk
        self.text += self._decoder.decode(chunk, final=self.ended)

    def skip(self, characters: str) -> str:
        """Use up these characters; the one that stands first then, empty at the end."""
        while True:
            self.text = self.text.lstrip(characters)
            if self.text or self.ended:
                return self.text[:1]
            self.grow(_CHUNK_BYTES)


def _read_array(start: bytes, stream: BinaryIO, *, bytes_read: int) -> Iterator[Entry]:
    number = 1
    try:
        rest = _Text(start, stream, bytes_read=bytes_read)
        rest.text = rest.text[1:]
        while rest.skip(" \t\r\n" if number == 1 else " \t\r\n,") not in {"", "]"}:
            value = _next_item(rest)
            yield Entry(f"item {number}", value, None, rest.bytes_read)
            number += 1
        if rest.text[:1] != "]":
            yield Entry(f"item {number}", None, "the array does not end", rest.bytes_read)
    except UnicodeDecodeError:
        yield Entry(f"item {number}", None, "is not UTF-8, and nothing after it was read", bytes_read)
    except (ValueError, RecursionError) as error:
        yield Entry(f"item {number}", None, f"{error}, and nothing after it was read", bytes_read)


def _next_item(rest: _Text) -> Any:
    decoder = json.JSONDecoder()
    size = _CHUNK_BYTES
    while True:
        try:
            value, end = decoder.raw_decode(rest.text)
        except json.JSONDecodeError as error:
            if rest.ended or len(rest.text) > MAX_ENTRY_BYTES:
                raise ValueError(f"is not JSON: {error.msg}") from None
            # Doubling what is read keeps the tries few, however long the item is.
            rest.grow(size)
            size *= 2
            continue
        # A number or a word may go on after what has been read so far.
        if end == len(rest.text) and not rest.ended:
            rest.grow(_CHUNK_BYTES)
            continue
        rest.text = rest.text[end:]
        return value


class Namer:
    """Gives a nameless message a `message_uuid` that a second import of its file gives again.

    It is made of what the message says and of how many equal ones stand before it in the file. Equal ones
    are counted among the last 200,000 different messages: one that comes again after more than those is
    taken for a repetition, unless its time differs.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._seen: OrderedDict[bytes, int] = OrderedDict()

    def name(self, session: Session, *, role: Role, created_at: datetime | None, content: str) -> str:
        """The name of the next nameless message of the file."""
        time = created_at.isoformat(timespec="microseconds") if created_at else ""
        base = uuid.uuid5(_IMPORTED, f"{self._namespace}\0{session.key}\0{role}\0{time}\0{content}")
        occurrence = self._seen.pop(base.bytes, 0)
        self._seen[base.bytes] = occurrence + 1
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return str(uuid.uuid5(base, str(occurrence)) if occurrence else base)


def export_line(dialogue: Dialogue, zone: ZoneInfo) -> bytes:
    """A message as one line of JSON, its times in `zone` to the microsecond."""
    return orjson.dumps(
        {
            "message_uuid": dialogue.message_uuid,
            "user_id": dialogue.user_id,
            "group_id": dialogue.group_id,
            "role": dialogue.role,
            "content": dialogue.content,
            "sender_name": dialogue.sender_name,
            "message_id": dialogue.message_id,
            "created_at": _write_time(dialogue.created_at, zone),
            "score": dialogue.score,
            "expires_at": _write_time(dialogue.expires_at, zone) if dialogue.expires_at else None,
            "pinned": dialogue.pinned,
            "kind": dialogue.kind,
            "outdated": dialogue.outdated,
        },
        option=orjson.OPT_APPEND_NEWLINE,
    )


def _write_time(instant: datetime, zone: ZoneInfo) -> str:
    try:
        local = instant.astimezone(zone)
    except OverflowError:
        local = instant
    return local.isoformat(timespec="microseconds")
