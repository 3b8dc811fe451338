"""The SQL that looks at the record from above: sessions and counts."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy import text

from app.database.engine import ReadSession
from app.dialogues.records import Session, SessionOverview


@dataclass(frozen=True, slots=True)
class Counts:
    """What a dashboard needs to know of a namespace's record.

    Attributes:
        scores: messages by band of score: `0-20`, `21-40`, `41-70`, `71-90`, `91-100`, `none`.
    """

    dialogues: int
    sessions: int
    window_messages: int
    summaries: int
    kinds: dict[str, int]
    roles: dict[str, int]
    embeddings: dict[str, int]
    scores: dict[str, int]
    pinned: int
    outdated: int
    expiring: int
    expired: int


def _next_key(after: Literal["(:group_key, :user_id)", "(keys.group_key, keys.user_id)"]) -> str:
    """The first session after one, wherever something of it is: each branch reads one entry of an index."""
    return f"""
        SELECT user_id, group_key FROM (
            (SELECT user_id, group_key FROM dialogues
             WHERE namespace = :namespace AND kind <> 'summary' AND (group_key, user_id) > {after}
             ORDER BY group_key, user_id LIMIT 1)
            UNION ALL
            (SELECT user_id, group_key FROM window_messages
             WHERE namespace = :namespace AND (group_key, user_id) > {after}
             ORDER BY group_key, user_id LIMIT 1)
            UNION ALL
            (SELECT user_id, group_key FROM summaries
             WHERE namespace = :namespace AND (group_key, user_id) > {after}
             ORDER BY group_key, user_id LIMIT 1)
        ) first ORDER BY group_key, user_id LIMIT 1
    """


_SESSIONS = text(
    f"""
    WITH RECURSIVE keys AS (
        ({_next_key("(:group_key, :user_id)")})
        UNION ALL
        SELECT next.user_id, next.group_key
        FROM keys CROSS JOIN LATERAL ({_next_key("(keys.group_key, keys.user_id)")}) next
    ), page AS (SELECT * FROM keys LIMIT :limit)
    SELECT page.user_id, nullif(page.group_key, 0) AS group_id, facts.dialogues,
        coalesce(facts.first_at, hot.first_at) AS first_at, coalesce(facts.last_at, hot.last_at) AS last_at,
        hot.tokens AS window_tokens,
        (SELECT count(*) FROM summaries s
         WHERE s.namespace = :namespace AND s.group_key = page.group_key AND s.user_id = page.user_id)
            AS summaries
    FROM page CROSS JOIN LATERAL (
        SELECT count(*) AS dialogues, min(created_at) AS first_at, max(created_at) AS last_at
        FROM dialogues d
        WHERE d.namespace = :namespace AND d.group_key = page.group_key AND d.user_id = page.user_id
            AND d.kind <> 'summary' AND d.visible_until > :now
    ) facts CROSS JOIN LATERAL (
        SELECT coalesce(sum(w.token_count), 0) AS tokens, min(created_at) AS first_at,
            max(created_at) AS last_at
        FROM window_messages w
        WHERE w.namespace = :namespace AND w.group_key = page.group_key AND w.user_id = page.user_id
    ) hot
    """
)


async def list_sessions(
    session: ReadSession, namespace: str, *, limit: int, after: Session | None, now: datetime
) -> list[SessionOverview]:
    """The namespace's sessions by (group, user), private ones among them at 0, from after one of them."""
    rows = await session.execute(
        _SESSIONS,
        {
            "namespace": namespace,
            "limit": limit,
            "now": now,
            "group_key": after.group_key if after else -(2**63),
            "user_id": after.user_id if after else 0,
        },
    )
    return [
        SessionOverview(
            session=Session(row.user_id, row.group_id),
            dialogues=row.dialogues,
            first_at=row.first_at,
            last_at=row.last_at,
            window_tokens=row.window_tokens,
            summaries=row.summaries,
        )
        for row in rows
    ]


def _of(namespace: str | None) -> str:
    """The condition that a row is of a namespace, or of any."""
    return "true" if namespace is None else "namespace = :namespace"


_BANDS = {None: "none", 1: "0-20", 2: "21-40", 3: "41-70", 4: "71-90", 5: "91-100"}


async def count_dialogues(session: ReadSession, namespace: str | None, *, now: datetime) -> Counts:
    """Count a namespace's record, or that of all, from several sides."""
    values = {} if namespace is None else {"namespace": namespace}
    rows = (
        await session.execute(
            text(
                f"""
                SELECT kind, role, embedding_status, width_bucket(score, ARRAY[0, 21, 41, 71, 91]) AS band,
                    count(*) AS messages, count(*) FILTER (WHERE pinned) AS pinned,
                    count(*) FILTER (WHERE outdated) AS outdated,
                    count(*) FILTER (WHERE expires_at > :now) AS expiring,
                    count(*) FILTER (WHERE expires_at <= :now) AS expired
                FROM dialogues WHERE {_of(namespace)} GROUP BY kind, role, embedding_status, band
                """
            ),
            values | {"now": now},
        )
    ).all()
    other = (
        await session.execute(
            text(
                f"SELECT (SELECT count(*) FROM window_messages WHERE {_of(namespace)}) AS hot,"
                f" (SELECT count(*) FROM summaries WHERE {_of(namespace)}) AS warm,"
                " (SELECT count(*) FROM (SELECT DISTINCT namespace, group_key, user_id FROM dialogues"
                f" WHERE {_of(namespace)}) s) AS sessions"
            ),
            values,
        )
    ).one()

    def by(column: str) -> dict[str, int]:
        totals: dict[str, int] = {}
        for row in rows:
            key = str(getattr(row, column))
            totals[key] = totals.get(key, 0) + row.messages
        return totals

    bands = dict.fromkeys(_BANDS.values(), 0)
    for row in rows:
        bands[_BANDS[row.band]] += row.messages
    return Counts(
        dialogues=sum(row.messages for row in rows),
        sessions=other.sessions,
        window_messages=other.hot,
        summaries=other.warm,
        kinds=by("kind"),
        roles=by("role"),
        embeddings=by("embedding_status"),
        scores=bands,
        pinned=sum(row.pinned for row in rows),
        outdated=sum(row.outdated for row in rows),
        expiring=sum(row.expiring for row in rows),
        expired=sum(row.expired for row in rows),
    )


async def count_by_namespace(session: ReadSession, namespace: str | None) -> dict[str, int]:
    """How many messages each namespace has; those without any are left out.

    Args:
        session: to read in.
        namespace: only this one; None: all.
    """
    rows = await session.execute(
        text(
            f"SELECT namespace, count(*) AS messages FROM dialogues WHERE {_of(namespace)}"
            " GROUP BY namespace ORDER BY namespace"
        ),
        {} if namespace is None else {"namespace": namespace},
    )
    return {row.namespace: row.messages for row in rows}
