"""Puts messages into the database as they would lie there, with vectors that a test chooses, and asks."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import asyncpg
import numpy as np
import numpy.typing as npt

from app.dialogues.preparation import text_signature
from app.dialogues.records import Dialogue, Role, Session
from app.dialogues.tokens import count_tokens
from app.recall.records import Memory, SearchQuery, SearchResult
from app.services import Services

NOW = datetime(2026, 11, 30, 4, 0, tzinfo=UTC)
SHANGHAI = ZoneInfo("Asia/Shanghai")
DIMENSIONS = 384

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Planted:
    """A message to be; `vector` None: one that depends on the content alone, near no other."""

    content: str
    created_at: datetime = NOW - timedelta(days=1)
    user_id: int = 1
    group_id: int | None = None
    namespace: str = "default"
    role: Role = "user"
    sender_name: str | None = None
    expires_at: datetime | None = None
    outdated: bool = False
    pinned: bool = False
    score: int | None = None
    vector: Vectors | None = field(default=None, compare=False)

    @property
    def session(self) -> Session:
        return Session(self.user_id, self.group_id)


def unit(vectors: npt.NDArray[Any]) -> Vectors:
    """Vectors (…, dimensions) brought to length 1."""
    scaled: Vectors = (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)
    return scaled


def vector_of(content: str) -> Vectors:
    """A vector of its own for each content."""
    seed = int.from_bytes(hashlib.blake2b(content.encode(), digest_size=8).digest(), "big")
    return unit(np.random.default_rng(seed).standard_normal(DIMENSIONS))


_INSERT = """
    INSERT INTO dialogues (namespace, message_uuid, user_id, group_id, chat_type, role, content, sender_name,
        expires_at, outdated, pinned, score, created_at, written_hash, token_count, terms, embedding,
        embedding_model_id, embedding_status)
    SELECT t.namespace, gen_random_uuid()::text, t.user_id, t.group_id,
        CASE WHEN t.group_id IS NULL THEN 'private' ELSE 'group' END, t.role, t.content, t.sender_name,
        t.expires_at, t.outdated, t.pinned, t.score, t.created_at, 0, t.token_count, t.terms::bit(512),
        t.vector::halfvec, (SELECT max(id) FROM embedding_models), 'ready'
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::timestamptz[],
        $8::boolean[], $9::boolean[], $10::int[], $11::timestamptz[], $12::int[], $13::varbit[], $14::text[])
        WITH ORDINALITY AS t (namespace, user_id, group_id, role, content, sender_name, expires_at, outdated,
            pinned, score, created_at, token_count, terms, vector, place)
    ORDER BY t.place
    RETURNING id
"""


@dataclass(frozen=True)
class World:
    """A service without HTTP, and the database under it."""

    services: Services
    connection: asyncpg.Connection

    async def plant(self, messages: Iterable[Planted]) -> list[int]:
        """Their ids, in order."""
        planted = list(messages)
        vectors = [vector_of(one.content) if one.vector is None else one.vector for one in planted]
        rows = await self.connection.fetch(
            _INSERT,
            [one.namespace for one in planted],
            [one.user_id for one in planted],
            [one.group_id for one in planted],
            [one.role for one in planted],
            [one.content for one in planted],
            [one.sender_name for one in planted],
            [one.expires_at for one in planted],
            [one.outdated for one in planted],
            [one.pinned for one in planted],
            [one.score for one in planted],
            [one.created_at for one in planted],
            [count_tokens(one.content) for one in planted],
            [asyncpg.BitString.frombytes(text_signature(one.content, one.sender_name)) for one in planted],
            ["[" + ",".join(map(str, vector.tolist())) + "]" for vector in vectors],
        )
        return [row["id"] for row in rows]

    async def vector_of_query(self, query: str) -> Vectors:
        vector: Vectors = await self.services.embedder.embed_query(query)
        return vector

    async def search(
        self, query: str, *, namespace: str = "default", of: Session | None = None, **fields: Any
    ) -> SearchResult:
        """Ask with the contract's defaults, but no window where none is named."""
        asked: dict[str, Any] = {
            "now": NOW,
            "zone": SHANGHAI,
            "language": "zh",
            "top_n": 3,
            "window_size": 0,
        } | fields
        return await self.services.recall.search(
            namespace, SearchQuery(session=of or Session(1), query=query, **asked)
        )


def best_first(result: SearchResult) -> list[Memory]:
    """The anchors, by relevance."""
    found = [one for one in result.memories if one.is_anchor]
    return sorted(found, key=lambda one: -(one.relevance or 0.0))


def contents(memories: Iterable[Memory]) -> list[str]:
    return [one.dialogue.content for one in memories]


def in_order(dialogues: Sequence[Dialogue]) -> bool:
    """Whether they stand by (`created_at`, `id`), each once."""
    places = [(one.created_at, one.id) for one in dialogues]
    return places == sorted(set(places))
