"""Cursors of paged lists: opaque, and good only for the query that gave them. Pure.

A cursor holds the place where the page ended, and a checksum of that place together with the query. The
checksum is no secret (a forged cursor would only skip rows of the caller's own list); it turns a cut, altered
or misplaced cursor into an answer of 422, where it would else give a page of the wrong list.
"""

import base64
import binascii
import hashlib
import struct
from datetime import UTC, datetime, timedelta

from app.dialogues.records import Position, Session
from app.errors import FieldFault, InvalidInputError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLACE = struct.Struct(">qq")
_CHECK_BYTES = 8


def write_position(position: Position, *, of: str) -> str:
    """The cursor after `position` in the list described by `of`."""
    micros = (position.created_at - _EPOCH) // timedelta(microseconds=1)
    return _seal(_PLACE.pack(micros, position.id), of)


def read_position(cursor: str | None, *, of: str) -> Position | None:
    """The inverse of `write_position`; None for no cursor.

    Raises:
        InvalidInputError: it was altered, or belongs to another list.
    """
    if cursor is None:
        return None
    micros, row_id = _PLACE.unpack(_open(cursor, of))
    return Position(_EPOCH + timedelta(microseconds=micros), row_id)


def write_session(session: Session, *, of: str) -> str:
    """The cursor after `session` in the list described by `of`."""
    return _seal(_PLACE.pack(session.user_id, session.group_key), of)


def read_session(cursor: str | None, *, of: str) -> Session | None:
    """The inverse of `write_session`; None for no cursor.

    Raises:
        InvalidInputError: it was altered, or belongs to another list.
    """
    if cursor is None:
        return None
    user_id, group_key = _PLACE.unpack(_open(cursor, of))
    return Session(user_id, group_key or None)


def _checksum(place: bytes, of: str) -> bytes:
    return hashlib.blake2b(place + of.encode(), digest_size=_CHECK_BYTES).digest()


def _seal(place: bytes, of: str) -> str:
    # 24 bytes are a whole number of base64 groups: there is no padding, and only one way to write them.
    return base64.urlsafe_b64encode(place + _checksum(place, of)).decode()


def _open(cursor: str, of: str) -> bytes:
    try:
        sealed = base64.b64decode(cursor, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        sealed = b""
    place, check = sealed[: _PLACE.size], sealed[_PLACE.size :]
    # Decoding overlooks padding that does not belong there.
    is_ours = base64.urlsafe_b64encode(sealed).decode() == cursor
    if not is_ours or len(place) != _PLACE.size or check != _checksum(place, of):
        raise InvalidInputError([FieldFault("query/cursor", "is not a cursor of this list")])
    return place
