"""What is computed of a message before it is written: identity, kind, tokens, terms. Pure."""

import hashlib
import os
import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta

from app.dialogues.indexed_text import indexed_text
from app.dialogues.kinds import classify
from app.dialogues.records import NewDialogue, PreparedDialogue, Role, Session
from app.dialogues.terms import document_terms, signature
from app.dialogues.tokens import count_tokens

LIVE_WITHIN = timedelta(hours=1)
"""A message no older than this belongs to the conversation that is going on; an older one is an import."""

_DERIVED = uuid.UUID("5b0a2c0e-6f6d-5d0b-9d9e-0c6d3c1f7a11")


def prepare(new: Sequence[NewDialogue], *, now: datetime) -> list[PreparedDialogue]:
    """Everything about some messages that needs no database, in their order.

    Messages without a time get `now`, a microsecond apart, so that their order is kept.
    """
    # One kind of work after another, not one message after another: each has tables of its own, and the
    # processor's caches hold those of one kind only.
    kinds = [item.kind or classify(item.content, role=item.role) for item in new]
    token_counts = [count_tokens(item.content) for item in new]
    terms = [text_signature(item.content, item.sender_name) for item in new]
    sessions: dict[tuple[int, int | None], Session] = {}
    times = [now + timedelta(microseconds=place) for place in range(len(new))]
    return [
        PreparedDialogue(
            message_uuid=item.message_uuid or _make_uuid(item, time),
            is_named=item.message_uuid is not None,
            session=sessions.setdefault((item.user_id, item.group_id), item.session),
            role=item.role,
            content=item.content,
            sender_name=item.sender_name,
            message_id=item.message_id,
            score=item.score,
            expires_at=item.expires_at,
            pinned=item.pinned,
            kind=kind,
            outdated=item.outdated,
            created_at=item.created_at or time,
            written_hash=written_hash(item.role, item.content),
            token_count=token_count,
            terms=signature_of_terms,
        )
        for item, time, kind, token_count, signature_of_terms in zip(
            new, times, kinds, token_counts, terms, strict=True
        )
    ]


def text_signature(content: str, sender_name: str | None) -> bytes:
    """The signature of a message's terms, its speaker's name included."""
    return signature(document_terms(indexed_text(content, sender_name)))


def written_hash(role: Role, content: str) -> int:
    """64 bits, signed, that tell one message's text and role from another's."""
    digest = hashlib.blake2b(f"{role}\0{content}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _make_uuid(new: NewDialogue, now: datetime) -> str:
    """From the message's id and all that makes it itself, where it has one; else a new one, in order of time.

    QQ's message ids collide and repeat, so neither the id alone nor the id in its session tells a message.
    """
    if new.message_id is None:
        return time_ordered_uuid(now)
    return str(uuid.uuid5(_DERIVED, f"{new.session.key}\0{new.message_id}\0{new.role}\0{new.content}"))


def time_ordered_uuid(now: datetime) -> str:
    """A version 7 UUID: 48 bits of Unix milliseconds, then random bits.

    Source: RFC 9562, section 5.7.
    """
    milliseconds = int(now.timestamp() * 1000)
    tail = int.from_bytes(os.urandom(10), "big") & ((1 << 80) - 1)
    value = (milliseconds & ((1 << 48) - 1)) << 80 | tail
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))
