"""The search's SQL: candidates of a session in one round trip, neighbours of the best in another.

Why two index-only scans: docs/decisions/0002-session-search.md.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from asyncpg import BitString
from pgvector import HalfVector
from sqlalchemy import text

from app.clients.embedding import Vector
from app.database.engine import ReadSession, fetch_rows
from app.dialogues.records import Dialogue
from app.dialogues.store import DIALOGUE_COLUMNS, read_dialogue
from app.recall.neighbourhoods import in_order
from app.recall.records import Candidate, Neighbourhood, SearchQuery

VECTORLESS_AT_MOST = 256
# So many nearest by their bits hold the ten nearest by their vectors: docs/decisions/0002.
_FIRST_STAGE = 200
# One code outweighs the pairs that everybody's questions share.
_TELLING_WEIGHT = 4
# So few bits are cheaper looked at one by one than through a mask.
_BITS_ONE_BY_ONE = 3

# The nearest by their bits, of which the nearest by their vectors.
_NEAREST = "SELECT d.id FROM (SELECT id FROM dialogues"
# The sub-select is worked out once; written in place, a generic plan would quantise for every row.
_BY_BITS = (
    "ORDER BY embedding_bits <~> (SELECT binary_quantize(CAST(:vector AS halfvec))), created_at DESC"
    " LIMIT :first_stage) near JOIN dialogues d USING (id)"
    " ORDER BY d.embedding <=> CAST(:vector AS halfvec), d.created_at DESC LIMIT :limit"
)
_PREFERRED = "created_at >= :preferred_since AND created_at < :preferred_until"


@dataclass(frozen=True, slots=True)
class Probe:
    """What a query is turned into before the database is asked.

    Attributes:
        vector: the query's, shape (dimensions,); None: no vector side.
        model_id: whose vectors it may be compared with.
        signature: bits of the query's terms, 64 bytes; None: no lexical side.
        telling: bits of those terms that are rare by nature, counted several times; None where there are
            none, or no others.
        term_count: how many terms `signature` stands for.
    """

    vector: Vector | None
    model_id: int
    signature: bytes | None
    telling: bytes | None
    term_count: int


def _scope(query: SearchQuery) -> tuple[str, dict[str, Any]]:
    values: dict[str, Any] = {"group_key": query.session.group_key}
    # A summary stands beside the conversation, not in it; the indexes of a conversation leave it out.
    sign = "=" if query.kind == "summary" else "<>"
    condition = f"namespace = :namespace AND group_key = :group_key AND kind {sign} 'summary'"
    if query.scope == "member":
        condition += " AND user_id = :user_id"
        values["user_id"] = query.session.user_id
    return condition, values


def _filters(query: SearchQuery, visible_at: datetime) -> tuple[str, dict[str, Any]]:
    """What an anchor must be; all but keywords is in the covering index."""
    conditions = ["visible_until > :visible_at"]
    values: dict[str, Any] = {"visible_at": visible_at}
    if not query.include_outdated:
        conditions.append("NOT outdated")
    for condition, name, value in (
        ("role = :role", "role", query.role),
        ("kind = :kind", "kind", query.kind),
        ("created_at >= :since", "since", query.since),
        ("created_at < :until", "until", query.until),
    ):
        if value is not None:
            conditions.append(condition)
            values[name] = value
    for place, keyword in enumerate(query.keywords):
        # position() knows no wildcards.
        conditions.append(
            f"position(lower(normalize(CAST(:keyword_{place} AS text), NFKC))"
            " in lower(normalize(content, NFKC))) > 0"
        )
        values[f"keyword_{place}"] = keyword
    return " AND ".join(conditions), values


async def find_candidates(
    session: ReadSession,
    namespace: str,
    query: SearchQuery,
    probe: Probe,
    *,
    limit: int,
    preferred: tuple[datetime, datetime] | None,
    visible_at: datetime,
) -> list[Candidate]:
    """The messages in scope that pass the filters and come first on either side, and those without a vector.

    Args:
        session: a reading session.
        namespace: the caller's.
        query: scope and filters.
        probe: the query's vector and terms.
        limit: how many each side may name.
        preferred: a time range, half open, that names its own best by vector too.
        visible_at: what has expired by then is left out.
    """
    scope, values = _scope(query)
    filters, filter_values = _filters(query, visible_at)
    values |= filter_values | {"namespace": namespace, "limit": limit}
    where = f"{scope} AND {filters}"
    searchable = f"{where} AND embedding_status = 'ready'"
    sides = []
    if preferred is not None:
        values |= {"preferred_since": preferred[0], "preferred_until": preferred[1]}
    if probe.vector is not None:
        values |= {"vector": HalfVector(probe.vector), "model_id": probe.model_id}
        values["first_stage"] = max(_FIRST_STAGE, limit * 2)
        comparable = f"{searchable} AND embedding_model_id = :model_id"
        sides.append(f"{_NEAREST} WHERE {comparable} {_BY_BITS}")
        if preferred is not None:
            sides.append(f"{_NEAREST} WHERE {comparable} AND {_PREFERRED} {_BY_BITS}")
    newest = "created_at DESC"
    if probe.signature is not None:
        matches, match_values = _matches(probe.signature, probe.telling, probe.term_count)
        values |= match_values
        sides.append(
            f"SELECT id FROM dialogues WHERE {searchable} ORDER BY {matches} DESC, {newest} LIMIT :limit"
        )
        newest = f"{matches} DESC, {newest}"
        if preferred is not None:
            sides.append(
                f"SELECT id FROM dialogues WHERE {searchable} AND {_PREFERRED} ORDER BY {newest} LIMIT :limit"
            )
    values["vectorless_limit"] = VECTORLESS_AT_MOST
    sides.append(
        f"SELECT id FROM dialogues WHERE {where} AND embedding_status <> 'ready'"
        f" ORDER BY {newest} LIMIT :vectorless_limit"
    )
    candidates = " UNION ".join(f"({side})" for side in sides)
    rows = await fetch_rows(
        session,
        f"WITH candidates AS MATERIALIZED ({candidates})"
        f" SELECT {DIALOGUE_COLUMNS}, {_similarity(probe)}"
        " FROM candidates c JOIN dialogues d USING (id)",
        values,
    )
    return [Candidate(read_dialogue(row), row[-1]) for row in rows]


def _matches(signature: bytes, telling: bytes | None, term_count: int) -> tuple[str, dict[str, Any]]:
    """How many bits a message shares with the query, less what chance would match; telling ones count again.

    A long message has many bits set by chance. It is 512 shared - term_count term_bits, less what is the same
    for all messages. Two bit strings share half of (bits of one + bits of the other - Hamming distance): that
    makes no value of each row, as `&` does.
    """
    values: dict[str, Any] = {"signature": BitString.frombytes(signature), "term_worth": 256.0 - term_count}
    written = "term_bits * CAST(:term_worth AS float8) - 256 * (terms <~> :signature)"
    if telling is None:
        return written, values
    places = [found.start() for found in re.finditer("1", format(int.from_bytes(telling, "big"), "0512b"))]
    if len(places) <= _BITS_ONE_BY_ONE:
        values |= {f"telling_{number}": place for number, place in enumerate(places)}
        shared = " + ".join(
            f"get_bit(terms, CAST(:telling_{number} AS int))" for number in range(len(places))
        )
    else:
        values["telling"] = BitString.frombytes(telling)
        shared = "bit_count(terms & CAST(:telling AS bit(512)))"
    return f"{written} + {512 * _TELLING_WEIGHT} * ({shared})", values


async def find_neighbours(
    session: ReadSession,
    namespace: str,
    query: SearchQuery,
    probe: Probe,
    *,
    known: Mapping[int, Candidate],
    hits: Sequence[Dialogue],
    radius: int,
    visible_at: datetime,
) -> list[Neighbourhood]:
    """The messages around each hit that have not expired at that time, by (`created_at`, `id`).

    Args:
        session: a reading session.
        namespace: the caller's.
        query: scope and filters.
        probe: the query's vector and terms.
        known: candidates by id; of those found again only the place is read.
        hits: whose neighbours are wanted.
        radius: how many to either side.
        visible_at: what has expired by then is left out.
    """
    scope, values = _scope(query)
    filters, filter_values = _filters(query, visible_at)
    visible = "visible_until > :visible_at"
    if not query.include_outdated:
        visible += " AND NOT outdated"
    values |= filter_values | {
        "namespace": namespace,
        "radius": radius,
        "ids": [hit.id for hit in hits],
        "ats": [hit.created_at for hit in hits],
        "known": list(known),
    }
    if probe.vector is not None:
        values |= {"vector": HalfVector(probe.vector), "model_id": probe.model_id}
    rows = await fetch_rows(
        session,
        f"""
        WITH hits AS (
            SELECT * FROM unnest(CAST(:ids AS bigint[]), CAST(:ats AS timestamptz[])) AS t (hit, hit_at)
        ), around AS MATERIALIZED (
            SELECT hits.hit, near.id FROM hits CROSS JOIN LATERAL (
                (SELECT id FROM dialogues
                 WHERE {scope} AND {visible} AND (created_at, id) <= (hits.hit_at, hits.hit)
                 ORDER BY created_at DESC, id DESC LIMIT CAST(:radius AS bigint) + 1)
                UNION ALL
                (SELECT id FROM dialogues
                 WHERE {scope} AND {visible} AND (created_at, id) > (hits.hit_at, hits.hit)
                 ORDER BY created_at, id LIMIT CAST(:radius AS bigint))
            ) near
        )
        SELECT {DIALOGUE_COLUMNS}, {_similarity(probe)}, ({filters}), a.id, a.hits
        FROM (SELECT id, array_agg(hit) AS hits FROM around GROUP BY id) a
            LEFT JOIN dialogues d ON d.id = a.id AND a.id <> ALL(CAST(:known AS bigint[]))
        """,
        values,
    )
    by_hit: dict[int, list[Candidate]] = {hit.id: [] for hit in hits}
    for row in rows:
        similarity, eligible, dialogue_id, near_hits = row[-4:]
        candidate = known.get(dialogue_id) or Candidate(read_dialogue(row), similarity, eligible)
        for hit in near_hits:
            by_hit[hit].append(candidate)
    return [Neighbourhood(hit, in_order(around)) for hit, around in by_hit.items()]


async def read_last_message_at(
    session: ReadSession, namespace: str, query: SearchQuery, *, before: datetime
) -> datetime | None:
    """When the last message before that time was said in the query's session or group."""
    scope, values = _scope(query)
    found = await session.execute(
        text(f"SELECT max(created_at) FROM dialogues WHERE {scope} AND created_at < :before"),
        values | {"namespace": namespace, "before": before},
    )
    return found.scalar_one()  # type: ignore[no-any-return]


async def read_messages(
    session: ReadSession, namespace: str, dialogue_ids: Sequence[int], *, visible_at: datetime
) -> list[Dialogue]:
    """Those of these messages that have not expired at that time, in order of time."""
    rows = await session.execute(
        text(
            f"SELECT {DIALOGUE_COLUMNS} FROM dialogues d WHERE d.id = ANY(CAST(:ids AS bigint[]))"
            " AND d.namespace = :namespace AND d.visible_until > :visible_at ORDER BY d.created_at, d.id"
        ),
        {"ids": list(dialogue_ids), "namespace": namespace, "visible_at": visible_at},
    )
    return [read_dialogue(row) for row in rows]


def _similarity(probe: Probe) -> str:
    if probe.vector is None:
        return "CAST(NULL AS float8)"
    # CASE keeps vectors of another model, or width, out of the comparison.
    return (
        "CASE WHEN d.embedding_model_id = :model_id THEN 1 - (d.embedding <=> CAST(:vector AS halfvec)) END"
    )
