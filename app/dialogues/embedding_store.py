"""The SQL of the embedding queue and of the models that vectors are of."""

from collections.abc import Sequence
from dataclasses import dataclass

from pgvector import HalfVector
from sqlalchemy import text

from app.clients.embedding import Vector
from app.database.engine import ReadSession, WriteSession


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that waits for its vector, as its text was when it was claimed."""

    dialogue_id: int
    content: str
    sender_name: str | None


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """Attributes: `lag_s`: how long the oldest pending message has waited, in seconds (0: none waits)."""

    pending: int
    failed: int
    lag_s: float


async def claim(session: WriteSession, *, limit: int, lease_s: float) -> list[Waiting]:
    """Take the oldest free rows of the queue for a while; rows whose message is gone leave the queue."""
    rows = (
        await session.execute(
            text(
                """
                WITH free AS (
                    SELECT dialogue_id FROM embedding_jobs WHERE available_at <= now()
                    ORDER BY available_at, dialogue_id LIMIT :limit FOR UPDATE SKIP LOCKED
                ), claimed AS (
                    UPDATE embedding_jobs j
                    SET available_at = now() + make_interval(secs => :lease),
                        -- A provider may be away for weeks: the counter must not run over and stop the queue.
                        attempts = least(attempts + 1, 32767)
                    FROM free WHERE j.dialogue_id = free.dialogue_id
                    RETURNING j.dialogue_id
                )
                SELECT c.dialogue_id, d.content, d.sender_name, d.embedding_status
                FROM claimed c LEFT JOIN dialogues d ON d.id = c.dialogue_id
                ORDER BY c.dialogue_id
                """
            ),
            {"limit": limit, "lease": lease_s},
        )
    ).all()
    stale = [row.dialogue_id for row in rows if row.embedding_status != "pending"]
    if stale:
        await session.execute(
            text("DELETE FROM embedding_jobs WHERE dialogue_id = ANY(CAST(:ids AS bigint[]))"), {"ids": stale}
        )
    return [
        Waiting(row.dialogue_id, row.content, row.sender_name)
        for row in rows
        if row.embedding_status == "pending"
    ]


async def extend_claims(session: WriteSession, dialogue_ids: Sequence[int], *, lease_s: float) -> None:
    """Move the end of some claims to `lease_s` seconds from now; 0 frees them."""
    await session.execute(
        text(
            # What is locked is being finished, or taken, by somebody else: no need to wait for it.
            "UPDATE embedding_jobs SET available_at = now() + make_interval(secs => :lease)"
            " WHERE dialogue_id IN (SELECT dialogue_id FROM embedding_jobs"
            " WHERE dialogue_id = ANY(CAST(:ids AS bigint[])) FOR UPDATE SKIP LOCKED)"
        ),
        {"ids": list(dialogue_ids), "lease": lease_s},
    )


async def read_waiting(session: ReadSession, dialogue_ids: Sequence[int]) -> list[Waiting]:
    """Those of these messages that are still pending."""
    rows = await session.execute(
        text(
            "SELECT id, content, sender_name FROM dialogues"
            " WHERE id = ANY(CAST(:ids AS bigint[])) AND embedding_status = 'pending'"
        ),
        {"ids": list(dialogue_ids)},
    )
    return [Waiting(row.id, row.content, row.sender_name) for row in rows]


_STORE = text(
    """
    WITH made AS (
        SELECT * FROM unnest(CAST(:ids AS bigint[]), CAST(:contents AS text[]), CAST(:vectors AS halfvec[]))
            AS t (id, content, embedding)
    ), locked AS MATERIALIZED (
        -- In the order of ids, as an erasure locks them: two writers never wait for each other in a ring.
        SELECT id FROM dialogues WHERE id = ANY(CAST(:ids AS bigint[])) ORDER BY id FOR NO KEY UPDATE
    ), stored AS (
        UPDATE dialogues d
        SET embedding = made.embedding, embedding_model_id = CAST(:model_id AS smallint),
            embedding_status = 'ready', embedding_error = NULL
        FROM made JOIN locked USING (id)
        -- A message edited meanwhile has another text: its vector is still to be made.
        WHERE d.id = made.id AND d.embedding_status = 'pending' AND d.content = made.content
        RETURNING d.id
    )
    DELETE FROM embedding_jobs j USING stored WHERE j.dialogue_id = stored.id
    """
)

_FAIL = text(
    """
    WITH given AS (
        SELECT * FROM unnest(CAST(:ids AS bigint[]), CAST(:contents AS text[]), CAST(:reasons AS text[]))
            AS t (id, content, reason)
    ), locked AS MATERIALIZED (
        SELECT id FROM dialogues WHERE id = ANY(CAST(:ids AS bigint[])) ORDER BY id FOR NO KEY UPDATE
    ), failed AS (
        UPDATE dialogues d SET embedding_status = 'failed', embedding_error = given.reason
        FROM given JOIN locked USING (id)
        WHERE d.id = given.id AND d.embedding_status = 'pending' AND d.content = given.content
        RETURNING d.id
    )
    DELETE FROM embedding_jobs j USING failed WHERE j.dialogue_id = failed.id
    """
)


async def store_outcomes(
    session: WriteSession,
    *,
    made: Sequence[tuple[Waiting, Vector]],
    rejected: Sequence[tuple[Waiting, str]],
    model_id: int,
) -> None:
    """Store vectors and failures of messages still pending with the same text; they leave the queue."""
    if made:
        await session.execute(
            _STORE,
            {
                "ids": [item.dialogue_id for item, _ in made],
                "contents": [item.content for item, _ in made],
                "vectors": [HalfVector(vector) for _, vector in made],
                "model_id": model_id,
            },
        )
    if rejected:
        await session.execute(
            _FAIL,
            {
                "ids": [item.dialogue_id for item, _ in rejected],
                "contents": [item.content for item, _ in rejected],
                "reasons": [reason for _, reason in rejected],
            },
        )


async def vacuum(session: WriteSession) -> None:
    """Free what the queue and its updates left behind; a table that somebody has locked is left alone."""
    for table in ("embedding_jobs", "dialogues"):
        await session.execute(text(f"VACUUM (SKIP_LOCKED) {table}"))


async def read_queue_facts(session: ReadSession) -> QueueFacts:
    row = (
        await session.execute(
            text(
                "SELECT count(*) AS pending,"
                " coalesce(extract(epoch FROM now() - min(enqueued_at)), 0) AS lag_s,"
                " (SELECT count(*) FROM dialogues WHERE embedding_status = 'failed') AS failed"
                " FROM embedding_jobs"
            )
        )
    ).one()
    return QueueFacts(pending=row.pending, failed=row.failed, lag_s=float(row.lag_s))


async def read_last_id(session: ReadSession) -> int:
    """The highest id that a message has; 0: there is none."""
    return int(await session.scalar(text("SELECT max(id) FROM dialogues")) or 0)


async def count_jobs(session: ReadSession, *, up_to: int) -> int:
    """How many of the messages up to an id wait for their vector."""
    found = await session.scalar(
        text("SELECT count(*) FROM embedding_jobs WHERE dialogue_id <= :up_to"), {"up_to": up_to}
    )
    return int(found or 0)


async def register_model(session: WriteSession, *, name: str, dimensions: int) -> int:
    """The number of a model, given at its first use."""
    await session.execute(
        text(
            "INSERT INTO embedding_models (name, dimensions) "
            "SELECT CAST(:name AS text), CAST(:dimensions AS int)"
            " WHERE NOT EXISTS (SELECT FROM embedding_models WHERE name = :name AND dimensions = :dimensions)"
            " ON CONFLICT (name, dimensions) DO NOTHING"
        ),
        {"name": name, "dimensions": dimensions},
    )
    found = await session.execute(
        text("SELECT id FROM embedding_models WHERE name = :name AND dimensions = :dimensions"),
        {"name": name, "dimensions": dimensions},
    )
    return int(found.scalar_one())


async def read_live_model(session: ReadSession | WriteSession) -> int | None:
    """The number of the model whose vectors services search; None: none has been set yet."""
    found = await session.scalar(
        text(
            "SELECT id FROM embedding_models WHERE live_since IS NOT NULL"
            " ORDER BY live_since DESC, id LIMIT 1"
        )
    )
    return None if found is None else int(found)


async def set_live_model(session: WriteSession, model_id: int) -> None:
    """Make a model the one whose vectors services search."""
    await session.execute(
        text("UPDATE embedding_models SET live_since = clock_timestamp() WHERE id = :id"), {"id": model_id}
    )


async def read_column_dimensions(session: ReadSession) -> int:
    """The width of the vector column."""
    found = await session.execute(
        text(
            "SELECT atttypmod FROM pg_attribute"
            " WHERE attrelid = 'dialogues'::regclass AND attname = 'embedding' AND NOT attisdropped"
        )
    )
    return int(found.scalar_one())


async def count_other_models(session: ReadSession, model_id: int) -> dict[str, int]:
    """How many vectors each other model made."""
    rows = await session.execute(
        text(
            "SELECT m.name, n.vectors"
            " FROM (SELECT embedding_model_id AS id, count(*) AS vectors FROM dialogues"
            " WHERE embedding_model_id <> :model_id GROUP BY 1) n JOIN embedding_models m USING (id)"
        ),
        {"model_id": model_id},
    )
    return {row.name: row.vectors for row in rows}
