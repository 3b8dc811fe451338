"""Stores messages: each once, however often it comes."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from asyncpg import DeadlockDetectedError
from sqlalchemy.exc import DBAPIError

from app.clock import Clock
from app.database.engine import Database, WriteSession
from app.dialogues import store, writing_store
from app.dialogues.embedding import EmbeddingPipeline
from app.dialogues.preparation import LIVE_WITHIN, prepare
from app.dialogues.records import Dialogue, NewDialogue, PreparedDialogue, Stored
from app.dialogues.store import ExistingDialogue
from app.errors import ConflictError, UnavailableError

_WRITE_TRIES: Final = 5
_IN_THREAD_ABOVE_CHARS: Final = 20_000
# So many messages at once take long enough for the embedding loop to be in the way.
_MANY: Final = 100

_T = TypeVar("_T")


class WritingService:
    """The way of a message into the record."""

    def __init__(self, *, database: Database, embedding: EmbeddingPipeline, clock: Clock) -> None:
        self._database = database
        self._embedding = embedding
        self._clock = clock

    async def add(
        self, namespace: str, new: Sequence[NewDialogue], *, wait: bool, name: Callable[[int], str]
    ) -> list[Stored]:
        """Store some messages in one transaction, in order; all of them or none.

        Args:
            namespace: the caller's.
            new: the messages.
            wait: return after their vectors are made, or cannot be made at present.
            name: what an error calls the message at an index.

        Raises:
            ConflictError: a uuid belongs to another message.
        """
        now = self._clock()
        with self._embedding.giving_way() if len(new) >= _MANY else nullcontext():
            prepared = await compute_apart(
                partial(prepare, new, now=now), chars=sum(len(item.content) for item in new)
            )
        return await self.add_prepared(namespace, prepared, wait=wait, name=name)

    async def add_prepared(
        self,
        namespace: str,
        prepared: Sequence[PreparedDialogue],
        *,
        wait: bool,
        name: Callable[[int], str],
    ) -> list[Stored]:
        """The same, for messages of which everything has been computed."""
        now = self._clock()
        with self._embedding.giving_way() if len(prepared) >= _MANY else nullcontext():
            stored = await self._write_new(namespace, prepared, now=now)
            if stored is None:
                named = await self._take_known_names(namespace, prepared, now=now)
                stored = await self._write(namespace, named, _first_places(named, name), now=now, name=name)
        if any(item.created for item in stored):
            self._embedding.wake()
        if not wait:
            return stored
        pending = [item.dialogue.id for item in stored if item.dialogue.embedding_status == "pending"]
        await self._embedding.embed_now(pending)
        return await self._read_again(namespace, stored)

    async def _write_new(
        self, namespace: str, prepared: Sequence[PreparedDialogue], *, now: datetime
    ) -> list[Stored] | None:
        """Store messages none of which is known yet, as nearly all are; None: somebody has to look closer."""
        if not prepared or len({item.message_uuid for item in prepared}) < len(prepared):
            return None
        stored = await writing_store.insert_if_all_new(
            self._database,
            namespace,
            prepared,
            nameless=_nameless(prepared),
            now=now,
            live_since=now - LIVE_WITHIN,
        )
        return None if stored is None else [Stored(dialogue, created=True) for dialogue in stored]

    async def _take_known_names(
        self, namespace: str, prepared: Sequence[PreparedDialogue], *, now: datetime
    ) -> Sequence[PreparedDialogue]:
        """Give a message without a uuid the one that it was stored with, which its `message_id` tells."""
        ids = _nameless(prepared)
        if not ids:
            return prepared
        async with self._database.read() as session:
            known = await store.find_names(session, namespace, ids, now=now)
        return [
            replace(item, message_uuid=known[key])
            if not item.is_named
            and item.message_id is not None
            and (key := (item.session, item.message_id, item.written_hash)) in known
            else item
            for item in prepared
        ]

    async def _write(
        self,
        namespace: str,
        prepared: Sequence[PreparedDialogue],
        first_places: dict[str, int],
        *,
        now: datetime,
        name: Callable[[int], str],
    ) -> list[Stored]:
        for _ in range(_WRITE_TRIES):
            try:
                async with self._database.transaction() as session:
                    found = await _insert_or_find(session, namespace, prepared, first_places, now=now)
                    if found is not None:
                        return _in_request_order(prepared, found, first_places, name)
            except DBAPIError as error:
                # Two batches with the same messages in another order wait for each other: one goes again.
                if not isinstance(error.orig.__cause__ if error.orig else None, DeadlockDetectedError):
                    raise
        raise UnavailableError("the same messages are being written and deleted at once", retry_after_s=1)

    async def _read_again(self, namespace: str, stored: list[Stored]) -> list[Stored]:
        async with self._database.read() as session:
            present = await store.find_by_uuid(
                session, namespace, [item.dialogue.message_uuid for item in stored]
            )
        return [
            Stored(present[item.dialogue.message_uuid].dialogue, item.created)
            if item.dialogue.message_uuid in present
            else item
            for item in stored
        ]


async def compute_apart(compute: Callable[[], _T], *, chars: int) -> _T:
    """Compute off the event loop where there is so much text that everybody else would wait."""
    return await asyncio.to_thread(compute) if chars > _IN_THREAD_ABOVE_CHARS else compute()


def has_expired(dialogue: Dialogue, now: datetime) -> bool:
    """Whether a message is as good as deleted."""
    return dialogue.expires_at is not None and dialogue.expires_at <= now


def _nameless(prepared: Sequence[PreparedDialogue]) -> list[int]:
    """The ids of messages that came without a uuid."""
    return sorted({item.message_id for item in prepared if not item.is_named and item.message_id is not None})


async def _insert_or_find(
    session: WriteSession,
    namespace: str,
    prepared: Sequence[PreparedDialogue],
    first_places: dict[str, int],
    *,
    now: datetime,
) -> dict[str, tuple[ExistingDialogue, bool]] | None:
    """Each uuid's message and whether it is new; None where one was deleted between the two looks.

    One that has expired is as good as deleted: it makes room.
    """
    fresh = {uuid: prepared[place] for uuid, place in first_places.items()}
    found = await _insert(session, namespace, list(fresh.values()), now=now)
    missing = [uuid for uuid in fresh if uuid not in found]
    if not missing:
        return found
    existing = await store.find_by_uuid(session, namespace, missing)
    expired = [one.dialogue for one in existing.values() if has_expired(one.dialogue, now)]
    for dialogue in sorted(expired, key=lambda one: one.id):
        await store.delete_dialogue(session, namespace, dialogue.id)
        del existing[dialogue.message_uuid]
    found |= {uuid: (item, False) for uuid, item in existing.items()}
    if expired:
        again = [fresh[dialogue.message_uuid] for dialogue in expired]
        found |= await _insert(session, namespace, again, now=now)
    return found if len(found) == len(fresh) else None


async def _insert(
    session: WriteSession, namespace: str, prepared: Sequence[PreparedDialogue], *, now: datetime
) -> dict[str, tuple[ExistingDialogue, bool]]:
    """By uuid, those that the namespace did not have yet."""
    hashes = {item.message_uuid: item.written_hash for item in prepared}
    return {
        dialogue.message_uuid: (ExistingDialogue(dialogue, hashes[dialogue.message_uuid]), True)
        for dialogue in await writing_store.insert_dialogues(
            session, namespace, prepared, now=now, live_since=now - LIVE_WITHIN
        )
    }


def _first_places(prepared: Sequence[PreparedDialogue], name: Callable[[int], str]) -> dict[str, int]:
    """Where each uuid comes first; the same uuid for another message is a conflict."""
    places: dict[str, int] = {}
    for place, item in enumerate(prepared):
        first = prepared[places.setdefault(item.message_uuid, place)]
        if (first.written_hash, first.session) != (item.written_hash, item.session):
            raise _conflict(name(place), item.message_uuid)
    return places


def _in_request_order(
    prepared: Sequence[PreparedDialogue],
    found: dict[str, tuple[ExistingDialogue, bool]],
    first_places: dict[str, int],
    name: Callable[[int], str],
) -> list[Stored]:
    stored = []
    for place, item in enumerate(prepared):
        existing, created = found[item.message_uuid]
        if not _same_message(existing, item):
            raise _conflict(name(place), item.message_uuid)
        stored.append(Stored(existing.dialogue, created and first_places[item.message_uuid] == place))
    return stored


def _same_message(existing: ExistingDialogue, given: PreparedDialogue) -> bool:
    """Whether this is what was written first, or, as an export holds it, what an edit left there."""
    stored = existing.dialogue
    same_text = existing.written_hash == given.written_hash or (stored.role, stored.content) == (
        given.role,
        given.content,
    )
    return same_text and stored.session == given.session


def _conflict(where: str, message_uuid: str) -> ConflictError:
    return ConflictError(
        f"{where}message_uuid {message_uuid} was stored with other content or in another session"
    )
