"""The SQL of forgetting: what is to go, its deletion in batches, the daily claim, retrievals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Literal

from sqlalchemy import text

from app.database.engine import ReadSession, WriteSession

Reason = Literal["expired", "unretrieved"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What is to go, of which namespace.

    Attributes:
        namespace: None: all.
        now: what expired until then, is expired.
        cutoff: what was neither stored nor retrieved since then, is not wanted; None: nothing is too old.
    """

    namespace: str | None
    now: datetime
    cutoff: datetime | None


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the order in which a sweep goes through messages."""

    at: datetime
    id: int


FIRST = Place(datetime(1, 1, 1, tzinfo=UTC), 0)


@dataclass(frozen=True, slots=True)
class Batch:
    """Attributes: `last`: where the next one starts; None: there is nothing more."""

    deleted: int
    last: Place | None


_EXPIRED = "d.expires_at <= :now"
# The first line is, word by word, the condition of the index dialogues_forgettable.
_UNRETRIEVED = """
    NOT d.pinned AND d.kind NOT IN ('fact', 'preference', 'decision') AND coalesce(d.score, 0) < 91
    AND d.stored_at < :cutoff AND d.created_at < :cutoff AND d.visible_until > :now
    AND NOT EXISTS (SELECT FROM retrievals r WHERE r.dialogue_id = d.id AND r.retrieved_at >= :cutoff)
    -- A prompt holds the summaries of its session unasked: while that lives, they are wanted.
    AND NOT (d.kind = 'summary' AND EXISTS (
        SELECT FROM window_messages w
        WHERE w.namespace = d.namespace AND w.group_key = d.group_key AND w.user_id = d.user_id
            AND w.created_at >= :cutoff))
"""
_LEAVING_THE_WINDOW: Mapping[Reason, str] = {
    "expired": "DELETE FROM window_messages w USING hot WHERE w.id = hot.id",
    "unretrieved": "UPDATE window_messages w SET dialogue_id = NULL FROM hot WHERE w.id = hot.id",
}
_KEYS: Mapping[Reason, str] = {"expired": "expires_at", "unretrieved": "stored_at"}


def _condition(reason: Reason, limits: Limits) -> str:
    condition = _EXPIRED if reason == "expired" else _UNRETRIEVED
    return condition if limits.namespace is None else f"{condition} AND d.namespace = :namespace"


def _values(reason: Reason, limits: Limits) -> dict[str, Any]:
    values: dict[str, Any] = {"now": limits.now}
    if reason == "unretrieved":
        values["cutoff"] = limits.cutoff
    if limits.namespace is not None:
        values["namespace"] = limits.namespace
    return values


async def count_forgettable(session: ReadSession, reason: Reason, limits: Limits) -> int:
    """How many messages a sweep would delete for this reason; none is counted for both."""
    if reason == "unretrieved" and limits.cutoff is None:
        return 0
    found = await session.execute(
        text(f"SELECT count(*) FROM dialogues d WHERE {_condition(reason, limits)}"), _values(reason, limits)
    )
    return int(found.scalar_one())


async def delete_batch(
    session: WriteSession, reason: Reason, limits: Limits, *, after: Place, size: int
) -> Batch:
    """Delete the next messages that are to go for this reason, and all that stands beside them.

    What has expired leaves the hot window, too; what only nobody asked for stays there, a copy.
    """
    if reason == "unretrieved" and limits.cutoff is None:
        return Batch(0, None)
    condition, key, leaving = _condition(reason, limits), _KEYS[reason], _LEAVING_THE_WINDOW[reason]
    row = (
        await session.execute(
            text(
                f"""
                WITH candidates AS MATERIALIZED (
                    SELECT d.id, d.{key} AS at FROM dialogues d
                    WHERE {condition} AND (d.{key}, d.id) > (CAST(:after_at AS timestamptz),
                        CAST(:after_id AS bigint))
                    ORDER BY d.{key}, d.id LIMIT :size
                ), locked AS MATERIALIZED (
                    -- In the order of ids, as an erasure locks them; what has changed is asked again.
                    SELECT d.id FROM dialogues d WHERE d.id IN (SELECT id FROM candidates) AND {condition}
                    ORDER BY d.id FOR UPDATE
                ), gone AS (
                    DELETE FROM dialogues d USING locked WHERE d.id = locked.id
                    RETURNING d.id, d.namespace, d.group_key, d.user_id, d.kind
                ), jobs AS (
                    DELETE FROM embedding_jobs j USING gone WHERE j.dialogue_id = gone.id
                ), corrections AS (
                    DELETE FROM correction_jobs j USING gone WHERE j.dialogue_id = gone.id
                ), retrieved AS MATERIALIZED (
                    SELECT dialogue_id FROM retrievals WHERE dialogue_id IN (SELECT id FROM gone)
                    ORDER BY dialogue_id FOR UPDATE
                ), retrieved_gone AS (
                    DELETE FROM retrievals r USING retrieved WHERE r.dialogue_id = retrieved.dialogue_id
                ), hot AS MATERIALIZED (
                    SELECT id FROM window_messages WHERE dialogue_id IN (SELECT id FROM gone)
                    ORDER BY id FOR UPDATE
                ), hot_left AS (
                    {leaving}
                ), warm_gone AS (
                    DELETE FROM summaries s USING gone
                    WHERE gone.kind = 'summary' AND s.namespace = gone.namespace
                        AND s.group_key = gone.group_key AND s.user_id = gone.user_id
                        AND s.dialogue_id = gone.id
                )
                SELECT (SELECT count(*) FROM gone) AS deleted, last.at, last.id
                FROM (SELECT) one LEFT JOIN
                    (SELECT at, id FROM candidates ORDER BY at DESC, id DESC LIMIT 1) last ON true
                """
            ),
            _values(reason, limits) | {"after_at": after.at, "after_id": after.id, "size": size},
        )
    ).one()
    return Batch(row.deleted, None if row.id is None else Place(row.at, row.id))


async def record_retrievals(session: WriteSession, retrieved: Sequence[tuple[int, datetime]]) -> None:
    """Note when messages were recalled, given by id in order; those that are gone meanwhile are left out."""
    await session.execute(
        text(
            """
            INSERT INTO retrievals (dialogue_id, retrieved_at)
            SELECT d.id, given.at
            FROM unnest(CAST(:ids AS bigint[]), CAST(:ats AS timestamptz[])) AS given (id, at)
                JOIN dialogues d ON d.id = given.id
            ORDER BY d.id
            ON CONFLICT (dialogue_id) DO UPDATE
                SET retrieved_at = greatest(retrievals.retrieved_at, excluded.retrieved_at)
            """
        ),
        {"ids": [key for key, _ in retrieved], "ats": [at for _, at in retrieved]},
    )


async def delete_orphans(session: WriteSession, dialogue_ids: Sequence[int] | None = None) -> int:
    """Delete retrievals, of these or of all, whose message went while they were being recorded; how many."""
    among = "true" if dialogue_ids is None else "r.dialogue_id = ANY(CAST(:ids AS bigint[]))"
    rows = await session.execute(
        text(
            f"DELETE FROM retrievals r WHERE {among}"
            " AND NOT EXISTS (SELECT FROM dialogues d WHERE d.id = r.dialogue_id)"
        ),
        {} if dialogue_ids is None else {"ids": list(dialogue_ids)},
    )
    return int(rows.rowcount)


async def claim_day(session: WriteSession, day: date, *, now: datetime, lease_s: float) -> bool:
    """Claim a day's sweep; False where it is done, or somebody is doing it."""
    claimed = await session.execute(
        text(
            """
            INSERT INTO sweeps (day, started_at, available_at)
            VALUES (:day, :now, now() + make_interval(secs => :lease))
            ON CONFLICT (day) DO UPDATE SET available_at = excluded.available_at
                WHERE sweeps.finished_at IS NULL AND sweeps.available_at <= now()
            RETURNING day
            """
        ),
        {"day": day, "now": now, "lease": lease_s},
    )
    return claimed.one_or_none() is not None


async def is_day_done(session: ReadSession, day: date) -> bool:
    """Whether a day's sweep is finished."""
    found = await session.execute(
        text("SELECT finished_at IS NOT NULL FROM sweeps WHERE day = :day"), {"day": day}
    )
    return bool(found.scalar_one_or_none())


async def read_last_sweep(session: ReadSession) -> datetime | None:
    """When the last daily sweep was finished; None: there was none yet."""
    found = await session.execute(text("SELECT max(finished_at) FROM sweeps"))
    finished_at: datetime | None = found.scalar_one()
    return finished_at


async def extend_day(session: WriteSession, day: date, *, seconds: float) -> None:
    """Move the end of the claim on a day's sweep to `seconds` from now."""
    await session.execute(
        text("UPDATE sweeps SET available_at = now() + make_interval(secs => :seconds) WHERE day = :day"),
        {"day": day, "seconds": seconds},
    )


async def note_progress(
    session: WriteSession, day: date, reason: Literal["expired", "unretrieved"], deleted: int
) -> None:
    """Add to what a day's sweep has deleted."""
    await session.execute(
        text(f"UPDATE sweeps SET {reason} = {reason} + :deleted WHERE day = :day"),
        {"day": day, "deleted": deleted},
    )


async def finish_day(session: WriteSession, day: date, *, now: datetime) -> None:
    """Note that a day's sweep is done."""
    await session.execute(
        text("UPDATE sweeps SET finished_at = :now WHERE day = :day"), {"day": day, "now": now}
    )
