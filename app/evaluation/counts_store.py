"""Turns in numbers."""

from dataclasses import dataclass

from sqlalchemy import text

from app.database.engine import ReadSession


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """How far behind evaluation is; `lag_s`: how long the oldest turn has waited."""

    pending: int
    lag_s: float


async def read_queue_facts(session: ReadSession) -> QueueFacts:
    """Look at the turns that wait for a score, in all namespaces."""
    row = (
        await session.execute(
            text(
                "SELECT count(*) AS pending,"
                " greatest(0, coalesce(extract(epoch FROM now() - min(replied_at)), 0)) AS lag_s"
                " FROM turns WHERE status = 'pending'"
            )
        )
    ).one()
    return QueueFacts(row.pending, float(row.lag_s))


@dataclass(frozen=True, slots=True)
class TurnCounts:
    """Turns of a namespace (or of all) in numbers."""

    statuses: dict[str, int]
    outcomes: dict[str, int]
    retentions: dict[str, int]


async def count_turns(session: ReadSession, namespace: str | None) -> TurnCounts:
    """Count turns from several sides."""
    rows = (
        await session.execute(
            text(
                "SELECT status, outcome, retention, count(*) AS turns FROM turns"
                " WHERE CAST(:namespace AS text) IS NULL OR namespace = :namespace"
                " GROUP BY status, outcome, retention"
            ),
            {"namespace": namespace},
        )
    ).all()

    def by(column: str) -> dict[str, int]:
        totals: dict[str, int] = {}
        for row in rows:
            key = getattr(row, column)
            if key is not None:
                totals[key] = totals.get(key, 0) + row.turns
        return totals

    return TurnCounts(by("status"), by("outcome"), by("retention"))
