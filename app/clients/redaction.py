"""What was sent to a provider, kept out of what the provider is quoted with. Pure.

Providers quote a prompt when they refuse it; the quotation would go into logs, and to callers.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

SPOKEN: Final = ("content", "input", "query", "documents")
"""The fields of requests that hold what people said."""

_SHORTEST: Final = 4
# So many signs in a row are no coincidence: a Chinese sign says as much as some letters.
_RUN: Final = 6
_ASCII_RUN: Final = 20
_GAP: Final = "…"
_TAG_OR_CONTROL: Final = re.compile(r"<[^<>]*>|[\x00-\x20\x7f-\x9f\u2028\u2029]+")


def on_one_line(text: str) -> str:
    """The text without tags, each run of blanks and control characters as one blank."""
    return _TAG_OR_CONTROL.sub(" ", text)


def without_what_was_sent(message: str, payload: Mapping[str, object]) -> str:
    """The message, on one line, with "…" for whatever stands in the request's texts too.

    Args:
        message: of the provider; a few hundred characters.
        payload: the request; only its fields of `SPOKEN` names count.
    """
    message = on_one_line(message)
    said = [
        text for text in (on_one_line(text).strip() for text in _texts(payload)) if len(text) >= _SHORTEST
    ]
    hidden = [False] * len(message)
    for start, end in chain.from_iterable((_whole(message, said), _parts(message, said))):
        hidden[start:end] = [True] * (end - start)
    kept = "".join("\0" if is_hidden else sign for sign, is_hidden in zip(message, hidden, strict=True))
    return re.sub("\0+", _GAP, kept)


def _texts(value: object, *, is_spoken: bool = False) -> Iterator[str]:
    if isinstance(value, str):
        if is_spoken:
            yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, is_spoken=is_spoken or key in SPOKEN)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, is_spoken=is_spoken)


def _whole(message: str, said: Sequence[str]) -> Iterator[tuple[int, int]]:
    for text in said:
        if len(text) > len(message):
            continue
        place = message.find(text)
        while place >= 0:
            yield place, place + len(text)
            place = message.find(text, place + len(text))


def _parts(message: str, said: Sequence[str]) -> Iterator[tuple[int, int]]:
    # The sign between them is in no message.
    everything = "\0".join(said)
    for place in range(len(message)):
        part = message[place : place + _RUN]
        if part.isascii():
            part = message[place : place + _ASCII_RUN]
        length = _ASCII_RUN if part.isascii() else _RUN
        if len(part) >= length and part[:length] in everything:
            yield place, place + length
