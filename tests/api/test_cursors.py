"""Cursors of paged lists."""

import string
from datetime import UTC, datetime

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.api import cursors
from app.dialogues.records import Position, Session
from app.errors import InvalidInputError

INSTANTS = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001
POSITIONS = st.builds(Position, INSTANTS, st.integers(1, 2**63 - 1))
URL_SAFE = set(string.ascii_letters + string.digits + "-_")


@given(POSITIONS)
def test_a_position_is_read_back_from_its_own_list(position: Position) -> None:
    cursor = cursors.write_position(position, of="list")
    assert cursors.read_position(cursor, of="list") == position
    assert set(cursor) <= URL_SAFE


@given(st.integers(1, 2**63 - 1), st.one_of(st.none(), st.integers(-(2**63), -1)))
def test_a_session_is_read_back(user_id: int, group_id: int | None) -> None:
    session = Session(user_id, group_id)
    assert cursors.read_session(cursors.write_session(session, of="list"), of="list") == session


@given(POSITIONS, st.integers(0, 31), st.sampled_from(sorted(URL_SAFE)))
def test_an_altered_cursor_is_refused(position: Position, place: int, other: str) -> None:
    cursor = cursors.write_position(position, of="list")
    assume(cursor[place] != other)
    altered = cursor[:place] + other + cursor[place + 1 :]
    with pytest.raises(InvalidInputError, match="query/cursor"):
        cursors.read_position(altered, of="list")


@given(st.text())
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        cursors.read_position(text, of="list")


def test_a_cursor_is_good_for_its_own_list_only() -> None:
    cursor = cursors.write_position(Position(datetime(2024, 1, 16, tzinfo=UTC), 1), of="dialogues bot 1 asc")
    with pytest.raises(InvalidInputError):
        cursors.read_position(cursor, of="dialogues bot 1 desc")


def test_no_cursor_is_the_first_page() -> None:
    assert cursors.read_position(None, of="list") is None
    assert cursors.read_session(None, of="list") is None
