"""The SQL of a renewal: the record is copied beside itself with the vectors of another model.

`dialogues_next` is the copy, `dialogues_next_changes` the queue of messages that are still to be copied:
first all of them, then whatever a trigger notes. In the end the copy takes the place of `dialogues`, in one
transaction. Nobody reads the copy before. Why: docs/decisions/0007-model-switch.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pgvector import HalfVector
from sqlalchemy import text

from app.clients.embedding import Vector
from app.database.engine import ReadSession, WriteSession
from app.dialogues.embedding_store import Waiting

_WIDEST_IN_LINE: Final = 3500
_PAGE_BYTES: Final = 8168
_FIXED_BYTES: Final = 340
_SHORT_TEXT_BYTES: Final = 200

# All that is neither generated nor of the vector.
COPIED: Final = (
    "id, user_id, group_id, created_at, stored_at, expires_at, qq_message_id, written_hash, token_count,"
    " score, pinned, outdated, namespace, message_uuid, chat_type, role, kind, sender_name, content, terms,"
    " corrects, corrected_by"
)
OF_VECTOR: Final = "embedding, embedding_model_id, embedding_status, embedding_error"
_COPIED_OF_D: Final = ", ".join(f"d.{name}" for name in COPIED.split(", "))
_TAKEN_OVER: Final = ", ".join(
    f"{name} = excluded.{name}" for name in f"{COPIED}, {OF_VECTOR}".split(", ") if name != "id"
)


@dataclass(frozen=True, slots=True)
class Renewal:
    """A renewal that is under way.

    Attributes:
        model_id: of the model whose vectors the copy has.
        model: its name.
        dimensions: width of its vectors.
        total: messages there were when it began.
        left: entries in the queue.
    """

    model_id: int
    model: str
    dimensions: int
    total: int
    left: int


async def read_renewal(session: ReadSession | WriteSession) -> Renewal | None:
    """The renewal that is under way; None: there is none."""
    rows = await session.execute(
        text(
            "SELECT id, name, dimensions, renewal_total,"
            " to_regclass('dialogues_next_changes') IS NOT NULL AS is_there"
            " FROM embedding_models WHERE renewal_total IS NOT NULL"
        )
    )
    row = rows.one_or_none()
    # After a restore the number may be there without the tables.
    if row is None or not row.is_there:
        return None
    return Renewal(row.id, row.name, row.dimensions, row.renewal_total, await count_changes(session))


async def abandon(session: WriteSession) -> None:
    """Throw away what a renewal has done, if there is one."""
    for statement in (
        "SET LOCAL lock_timeout = '3s'",
        "DROP TRIGGER IF EXISTS dialogues_note_change ON dialogues",
        "DROP FUNCTION IF EXISTS note_dialogue_change()",
        "DROP TABLE IF EXISTS dialogues_next, dialogues_next_changes",
        "UPDATE embedding_models SET renewal_total = NULL WHERE renewal_total IS NOT NULL",
    ):
        await session.execute(text(statement))


_NOTE_CHANGE = """
CREATE FUNCTION note_dialogue_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO dialogues_next_changes (dialogue_id) VALUES (NEW.id);
    ELSE
        -- What was erased, or taken back, is gone from the copy at once, even if nobody goes on with it.
        IF TG_OP = 'DELETE' OR NEW.content <> OLD.content THEN
            DELETE FROM dialogues_next WHERE id = OLD.id;
        END IF;
        INSERT INTO dialogues_next_changes (dialogue_id) VALUES (OLD.id);
    END IF;
    RETURN NULL;
END
$$
"""
_GRANTS = text(
    """
    SELECT format('GRANT %s ON dialogues_next TO %s', privilege_type,
        CASE grantee WHEN 0 THEN 'PUBLIC' ELSE CAST(CAST(grantee AS regrole) AS text) END)
    FROM pg_class, aclexplode(relacl) WHERE oid = CAST('dialogues' AS regclass) AND grantee <> relowner
    """
)
_CHECKS = text(
    """
    SELECT format('ALTER TABLE dialogues_next ADD CONSTRAINT %I %s', conname, pg_get_constraintdef(oid))
    FROM pg_constraint WHERE conrelid = CAST('dialogues' AS regclass) AND contype = 'c' ORDER BY conname
    """
)
_OPTIONS = text(
    """
    SELECT format('ALTER TABLE dialogues_next SET (%s)', string_agg(option, ', '))
    FROM pg_class, unnest(reloptions) AS option
    WHERE oid = CAST('dialogues' AS regclass) AND option NOT LIKE 'toast_tuple_target=%'
    HAVING count(*) > 0
    """
)


async def begin(session: WriteSession, *, model_id: int, dimensions: int) -> None:
    """Make the empty copy and the trigger, and enqueue every message; writers wait that long.

    Args:
        session: a transaction; its lock is not waited for longer than 3 s.
        model_id: of the model that the copy's vectors shall be of.
        dimensions: width of its vectors.
    """
    storage = "PLAIN" if dimensions <= _WIDEST_IN_LINE else "EXTERNAL"
    for statement in (
        "SET LOCAL lock_timeout = '3s'",
        """
        CREATE TABLE dialogues_next (
            LIKE dialogues
            INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING IDENTITY INCLUDING STORAGE INCLUDING COMPRESSION
        )
        """,
        f"""
        ALTER TABLE dialogues_next
            DROP COLUMN embedding_bits,
            DROP COLUMN embedding,
            ADD COLUMN embedding halfvec({int(dimensions)}),
            ADD COLUMN embedding_bits bit({int(dimensions)})
                GENERATED ALWAYS AS (CAST(binary_quantize(embedding) AS bit({int(dimensions)}))) STORED
        """,
        f"ALTER TABLE dialogues_next ALTER COLUMN embedding SET STORAGE {storage}",
        f"ALTER TABLE dialogues_next SET (toast_tuple_target = {row_target(dimensions)})",
        "ALTER TABLE dialogues_next ADD CONSTRAINT dialogues_next_pkey PRIMARY KEY (id)",
    ):
        await session.execute(text(statement))
    for source in (_OPTIONS, _CHECKS, _GRANTS):
        for statement in list((await session.execute(source)).scalars()):
            await session.exec_driver_sql(statement)
    for statement in (
        """
        CREATE TABLE dialogues_next_changes (
            seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            dialogue_id bigint NOT NULL
        )
        """,
        _NOTE_CHANGE,
        """
        CREATE TRIGGER dialogues_note_change AFTER INSERT OR UPDATE OR DELETE ON dialogues
            FOR EACH ROW EXECUTE FUNCTION note_dialogue_change()
        """,
        # Now that nobody writes: what came before is seen, what comes after is noted.
        "INSERT INTO dialogues_next_changes (dialogue_id) SELECT id FROM dialogues ORDER BY id",
    ):
        await session.exec_driver_sql(statement)
    await session.execute(
        text("UPDATE embedding_models SET renewal_total = (SELECT count(*) FROM dialogues) WHERE id = :id"),
        {"id": model_id},
    )


async def count_changes(session: ReadSession | WriteSession) -> int:
    """How many entries the queue has."""
    return int(await session.scalar(text("SELECT count(*) FROM dialogues_next_changes")) or 0)


async def read_changes(
    session: ReadSession | WriteSession, *, after: int, limit: int
) -> list[tuple[int, int]]:
    """The first entries of the queue after one of them: their numbers, and the messages that they name.

    One with a lower number may still come, from a transaction that took long.
    """
    rows = await session.execute(
        text(
            "SELECT seq, dialogue_id FROM dialogues_next_changes WHERE seq > :after ORDER BY seq LIMIT :limit"
        ),
        {"after": after, "limit": limit},
    )
    return [(row.seq, row.dialogue_id) for row in rows]


async def read_texts(session: ReadSession, dialogue_ids: Sequence[int], *, model_id: int) -> list[Waiting]:
    """Those of these messages for whose text there is no vector of the model yet."""
    rows = await session.execute(
        text(
            """
            SELECT d.id, d.content, d.sender_name FROM dialogues d LEFT JOIN dialogues_next n USING (id)
            WHERE d.id = ANY(CAST(:ids AS bigint[])) AND d.embedding_model_id IS DISTINCT FROM :model_id
                AND NOT (n.embedding IS NOT NULL AND n.content = d.content
                    AND n.sender_name IS NOT DISTINCT FROM d.sender_name)
            """
        ),
        {"ids": list(dialogue_ids), "model_id": model_id},
    )
    return [Waiting(row.id, row.content, row.sender_name) for row in rows]


_COPY = text(
    f"""
    WITH made AS (
        SELECT * FROM unnest(CAST(:made_ids AS bigint[]), CAST(:contents AS text[]),
            CAST(:vectors AS halfvec[])) AS t (id, content, embedding)
    ), rejected AS (
        SELECT * FROM unnest(CAST(:rejected_ids AS bigint[]), CAST(:rejected_contents AS text[]),
            CAST(:reasons AS text[])) AS t (id, content, reason)
    ), d AS MATERIALIZED (
        -- Whoever deletes one of them waits, and then deletes the copy, too.
        SELECT * FROM dialogues WHERE id = ANY(CAST(:ids AS bigint[])) ORDER BY id FOR KEY SHARE
    ), vectors AS MATERIALIZED (
        SELECT d.id, coalesce(made.embedding, n.embedding,
            CASE WHEN d.embedding_model_id = :model_id THEN d.embedding END) AS embedding, rejected.reason
        FROM d
            LEFT JOIN made ON made.id = d.id AND made.content = d.content
            LEFT JOIN rejected ON rejected.id = d.id AND rejected.content = d.content
            LEFT JOIN dialogues_next n ON n.id = d.id AND n.content = d.content
                AND n.sender_name IS NOT DISTINCT FROM d.sender_name
    )
    INSERT INTO dialogues_next ({COPIED}, {OF_VECTOR}) OVERRIDING SYSTEM VALUE
    SELECT {_COPIED_OF_D}, v.embedding,
        CASE WHEN v.embedding IS NOT NULL THEN CAST(:model_id AS smallint) END,
        CASE WHEN v.embedding IS NOT NULL THEN 'ready' WHEN v.reason IS NOT NULL THEN 'failed'
            ELSE 'pending' END,
        CASE WHEN v.embedding IS NULL THEN v.reason END
    FROM d JOIN vectors v USING (id) ORDER BY d.id
    ON CONFLICT (id) DO UPDATE SET {_TAKEN_OVER}
    """
)


async def copy_messages(
    session: WriteSession,
    changes: Sequence[tuple[int, int]],
    *,
    made: Sequence[tuple[Waiting, Vector]],
    rejected: Sequence[tuple[Waiting, str]],
    model_id: int,
) -> None:
    """Bring the copy of some messages up to date, and take their entries out of the queue.

    Args:
        session: a transaction.
        changes: entries of the queue.
        made: vectors, each of a text that may have changed meanwhile.
        rejected: texts that can have none, and why.
        model_id: of the model.
    """
    ids = sorted({dialogue_id for _, dialogue_id in changes})
    # First, so that what changes from here on is in the queue again.
    await session.execute(
        text("DELETE FROM dialogues_next_changes WHERE seq = ANY(CAST(:seqs AS bigint[]))"),
        {"seqs": [seq for seq, _ in changes]},
    )
    await session.execute(
        _COPY,
        {
            "ids": ids,
            "made_ids": [item.dialogue_id for item, _ in made],
            "contents": [item.content for item, _ in made],
            "vectors": [HalfVector(vector) for _, vector in made],
            "rejected_ids": [item.dialogue_id for item, _ in rejected],
            "rejected_contents": [item.content for item, _ in rejected],
            "reasons": [reason for _, reason in rejected],
            "model_id": model_id,
        },
    )


_MISSING_INDEXES = text(
    """
    SELECT indexrelid::regclass::text AS invalid, NULL AS statement
    FROM pg_index WHERE indrelid = CAST('dialogues_next' AS regclass) AND NOT indisvalid
    UNION ALL
    SELECT NULL, regexp_replace(pg_get_indexdef(i.indexrelid), 'INDEX dialogues_(\\S+) ON \\S+ USING',
        'INDEX CONCURRENTLY dialogues_next_\\1 ON dialogues_next USING')
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE i.indrelid = CAST('dialogues' AS regclass) AND NOT EXISTS (
        SELECT FROM pg_index n JOIN pg_class nc ON nc.oid = n.indexrelid
        WHERE n.indrelid = CAST('dialogues_next' AS regclass) AND n.indisvalid
            AND nc.relname = regexp_replace(c.relname, '^dialogues_', 'dialogues_next_'))
    ORDER BY 2 NULLS FIRST
    """
)


async def index_statements(session: ReadSession | WriteSession) -> list[str]:
    """What gives the copy the indexes that it lacks, each to be executed outside of a transaction."""
    rows = list(await session.execute(_MISSING_INDEXES))
    return [
        f"DROP INDEX CONCURRENTLY {row.invalid}" if row.invalid is not None else row.statement for row in rows
    ]


_NAMES = text(
    """
    SELECT format('ALTER TABLE dialogues RENAME CONSTRAINT %I TO %I', conname,
        replace(conname, 'dialogues_next_', 'dialogues_'))
    FROM pg_constraint WHERE conrelid = CAST('dialogues' AS regclass) AND conname LIKE 'dialogues\\_next\\_%'
    UNION ALL
    SELECT format('ALTER INDEX %I RENAME TO %I', c.relname,
        replace(c.relname, 'dialogues_next_', 'dialogues_'))
    FROM pg_index JOIN pg_class c ON c.oid = indexrelid
    WHERE indrelid = CAST('dialogues' AS regclass) AND c.relname LIKE 'dialogues\\_next\\_%'
        AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)
    """
)


_CUT_OVER: Final = (
    """
    DELETE FROM embedding_jobs j USING dialogues_next n
    WHERE n.id = j.dialogue_id AND n.embedding_status <> 'pending'
    """,
    """
    INSERT INTO embedding_jobs (dialogue_id) SELECT id FROM dialogues_next WHERE embedding_status = 'pending'
    ON CONFLICT (dialogue_id) DO UPDATE SET available_at = now(), attempts = 0
    """,
    """
    SELECT setval(CAST(pg_get_serial_sequence('dialogues_next', 'id') AS regclass),
        nextval(CAST(pg_get_serial_sequence('dialogues', 'id') AS regclass)))
    """,
    """
    ALTER TABLE dialogues_next ADD CONSTRAINT dialogues_next_namespace_message_uuid_key
        UNIQUE USING INDEX dialogues_next_namespace_message_uuid_key
    """,
    "DROP TABLE dialogues, dialogues_next_changes",
    "DROP FUNCTION note_dialogue_change()",
    "ALTER TABLE dialogues_next RENAME TO dialogues",
    "ALTER SEQUENCE dialogues_next_id_seq RENAME TO dialogues_id_seq",
    "UPDATE embedding_models SET renewal_total = NULL WHERE renewal_total IS NOT NULL",
)


async def lock_record(session: WriteSession) -> None:
    """Keep everybody from the record until the transaction ends; nobody is kept waiting long for that.

    Raises:
        LockNotAvailableError: somebody has been at it for 3 s. As the driver's error, wrapped.
    """
    await session.execute(text("SET LOCAL lock_timeout = '3s'"))
    await session.execute(text("LOCK TABLE dialogues, dialogues_next IN ACCESS EXCLUSIVE MODE"))


async def cut_over(session: WriteSession, *, model_id: int) -> None:
    """Put the copy in the record's place; what has no vector yet waits for one of the new model.

    Args:
        session: a transaction that has locked the record and emptied the queue.
        model_id: of the model that is live from now on.
    """
    for statement in _CUT_OVER:
        await session.exec_driver_sql(statement)
    for statement in list((await session.execute(_NAMES)).scalars()):
        await session.exec_driver_sql(statement)
    await session.execute(
        text("UPDATE embedding_models SET live_since = now() WHERE id = :id"), {"id": model_id}
    )


def row_target(dimensions: int) -> int:
    """The size above which a row's text is moved out of line, in bytes: what fills a page without waste."""
    if dimensions > _WIDEST_IN_LINE:
        return 2040
    rows_a_page = max(1, _PAGE_BYTES // (dimensions * 2 + dimensions // 8 + _FIXED_BYTES + _SHORT_TEXT_BYTES))
    return max(128, min(8160, (_PAGE_BYTES // rows_a_page - 4) // 8 * 8))
