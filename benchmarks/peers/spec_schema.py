"""The schema of the specification, as it stands there: vector(1024) and two partial ivfflat indexes.

`python -m benchmarks.peers.spec_schema FOLDER "DSN PROBES"`
"""

from collections.abc import Sequence

import psycopg
from pgvector.psycopg import register_vector
from psycopg_pool import ConnectionPool

from benchmarks.peers.peer import Message, Question, Vectors, run_peer

_FIRST_USER = 1_000_001
_BATCH = 1000
_SCHEMA = """
CREATE TABLE dialogues (
    id SERIAL PRIMARY KEY,
    message_uuid TEXT UNIQUE NOT NULL,
    user_id BIGINT NOT NULL,
    group_id BIGINT,
    chat_type TEXT CHECK (chat_type IN ('private', 'group')),
    role TEXT CHECK (role IN ('user', 'assistant')),
    content TEXT,
    sender_name TEXT,
    qq_message_id BIGINT,
    embedding VECTOR({dimensions}),
    token_count INTEGER,
    score INTEGER,
    expires_at TIMESTAMP,
    created_at TIMESTAMP DEFAULT NOW(),
    created_date DATE GENERATED ALWAYS AS (created_at::date) STORED
);
CREATE INDEX idx_group_time ON dialogues (group_id, user_id, id DESC) WHERE group_id IS NOT NULL;
CREATE INDEX idx_private_time ON dialogues (user_id, id DESC) WHERE group_id IS NULL;
CREATE INDEX idx_chat_context ON dialogues (chat_type, user_id, group_id, created_at DESC);
CREATE INDEX idx_expires_at ON dialogues (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX idx_score ON dialogues (score) WHERE score IS NOT NULL;
"""
# An ivfflat index finds its centres in the rows that are there: made before them it would be of no use.
_VECTOR_INDEXES = """
CREATE INDEX idx_group_embedding ON dialogues USING ivfflat (embedding vector_cosine_ops)
    WITH (lists = {lists}) WHERE group_id IS NOT NULL;
CREATE INDEX idx_private_embedding ON dialogues USING ivfflat (embedding vector_cosine_ops)
    WITH (lists = {lists}) WHERE group_id IS NULL;
"""
_INSERT = """
INSERT INTO dialogues (message_uuid, user_id, chat_type, role, content, qq_message_id, embedding, token_count,
                       expires_at, created_at)
VALUES (%s, %s, 'private', %s, %s, %s, %s, %s, %s, %s)
"""
_SEARCH = """
SELECT qq_message_id, role, content, sender_name, created_at, 1 - (embedding <=> %(vector)s) AS similarity
FROM dialogues
WHERE user_id = %(user)s AND group_id IS NULL AND (expires_at IS NULL OR expires_at > now())
ORDER BY embedding <=> %(vector)s
LIMIT %(depth)s
"""


class SpecSchema:
    """The table `dialogues` of the specification, asked without any service before it."""

    def __init__(self, place: str) -> None:
        dsn, probes = place.rsplit(" ", 1)
        self._probes = int(probes)
        self._dsn = dsn
        self._pool: ConnectionPool | None = None

    def load(self, messages: Sequence[Message], vectors: Vectors) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            register_vector(connection)
            connection.execute(_SCHEMA.format(dimensions=vectors.shape[1]))
            for start in range(0, len(messages), _BATCH):
                rows = [
                    (
                        f"uuid-{message.number}",
                        _FIRST_USER + message.session,
                        message.role,
                        message.content,
                        message.number,
                        vector,
                        len(message.content),
                        message.expires_at,
                        message.created_at,
                    )
                    for message, vector in zip(
                        messages[start : start + _BATCH], vectors[start : start + _BATCH], strict=True
                    )
                ]
                with connection.transaction(), connection.cursor() as cursor:
                    cursor.executemany(_INSERT, rows)
            lists = max(100, len(messages) // 1000)
            connection.execute("SET maintenance_work_mem = '512MB'")
            connection.execute(_VECTOR_INDEXES.format(lists=lists))
            connection.execute("VACUUM ANALYZE dialogues")

    def search(self, question: Question, depth: int) -> list[int]:
        if self._pool is None:
            self._pool = ConnectionPool(
                self._dsn, min_size=8, max_size=8, configure=self._configure, kwargs={"autocommit": True}
            )
            self._pool.wait()
        with self._pool.connection() as connection:
            rows = connection.execute(
                _SEARCH,
                {"vector": question.vector, "user": _FIRST_USER + question.session, "depth": depth},
            ).fetchall()
        return [int(row[0]) for row in rows]

    def stored_bytes(self) -> int:
        with psycopg.connect(self._dsn) as connection:
            row = connection.execute("SELECT pg_total_relation_size('dialogues')").fetchone()
        return int(row[0]) if row else 0

    def _configure(self, connection: psycopg.Connection) -> None:
        register_vector(connection)
        connection.execute(f"SET ivfflat.probes = {self._probes}")


if __name__ == "__main__":
    run_peer(SpecSchema)
