"""Writes, reads, edits and erases messages."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypeVar

from asyncpg import DeadlockDetectedError
from sqlalchemy.exc import DBAPIError

from app.clock import Clock
from app.database.engine import Database, WriteSession
from app.dialogues import copies_store, overview_store, store
from app.dialogues.embedding import EmbeddingPipeline
from app.dialogues.embedding_store import QueueFacts
from app.dialogues.kinds import classify
from app.dialogues.overview_store import Counts
from app.dialogues.preparation import LIVE_WITHIN, prepare, text_signature
from app.dialogues.records import (
    UNSET,
    Dialogue,
    DialogueChange,
    Kind,
    NewDialogue,
    Page,
    Position,
    PreparedDialogue,
    Role,
    Session,
    Stored,
)
from app.dialogues.store import ExistingDialogue
from app.dialogues.tokens import count_tokens
from app.dialogues.transfer_store import ExportScope, read_export_page
from app.errors import ConflictError, NotFoundError, UnavailableError

_WRITE_TRIES = 5
_IN_THREAD_ABOVE_CHARS = 20_000
_EXPORT_PAGE = 1000

_T = TypeVar("_T")


class DialogueService:
    """The record of who said what."""

    def __init__(self, *, database: Database, embedding: EmbeddingPipeline, clock: Clock) -> None:
        self._database = database
        self._embedding = embedding
        self._clock = clock

    async def add(self, namespace: str, new: NewDialogue, *, wait: bool = False) -> Stored:
        """Store one message, or find that it is stored already.

        Args:
            namespace: the caller's.
            new: the message.
            wait: return after its vector is made (or cannot be made at present) instead of before.

        Raises:
            ConflictError: its uuid belongs to another message.
        """
        return (await self._add(namespace, [new], wait=wait, name=lambda _: ""))[0]

    async def add_many(
        self, namespace: str, new: Sequence[NewDialogue], *, wait: bool = False
    ) -> list[Stored]:
        """Store some messages in one transaction, in order; all of them or none.

        Raises:
            ConflictError: a uuid belongs to another message; the error names the index.
        """
        return await self._add(namespace, new, wait=wait, name=lambda index: f"dialogues[{index}]: ")

    async def get(self, namespace: str, dialogue_id: int) -> Dialogue:
        """A message by its id.

        Raises:
            NotFoundError: the namespace has none with this id, or it has expired.
        """
        async with self._database.read() as session:
            found = await store.find_dialogue(session, namespace, dialogue_id)
        if found is None or _has_expired(found, self._clock()):
            raise _not_found(dialogue_id)
        return found

    async def change(self, namespace: str, dialogue_id: int, change: DialogueChange) -> Dialogue:
        """Change a message; new content gets a new vector.

        Raises:
            NotFoundError: the namespace has none with this id, or it has expired.
        """
        if change == DialogueChange():
            return await self.get(namespace, dialogue_id)
        token_count, terms, kind = None, None, None
        if change.content is not UNSET:
            changed_from = await self.get(namespace, dialogue_id)
            token_count, terms, kind = await _run(
                partial(_read_content, change.content, changed_from), chars=len(change.content)
            )
        async with self._database.transaction() as session:
            # Turns first, as everybody locks them.
            turns = await copies_store.lock_turns(session, namespace, dialogue_id)
            changed = await store.update_dialogue(
                session,
                namespace,
                dialogue_id,
                change,
                now=self._clock(),
                token_count=token_count,
                terms=terms,
                kind=kind,
            )
            if changed is not None:
                await _change_copies(session, namespace, change, changed, turns)
        if changed is None:
            raise _not_found(dialogue_id)
        if change.content is not UNSET:
            self._embedding.wake()
        return changed

    async def delete(self, namespace: str, dialogue_id: int) -> None:
        """Delete a message for good, and all that holds its text: window, turn, summaries.

        The other half of its turn is a message of its own, and stays.

        Raises:
            NotFoundError: the namespace has none with this id.
        """
        async with self._database.transaction() as session:
            turns = await copies_store.lock_turns(session, namespace, dialogue_id)
            gone = await store.delete_dialogue(session, namespace, dialogue_id)
            if gone is None:
                raise _not_found(dialogue_id)
            await copies_store.delete_turns(session, turns)
            if gone.kind != "summary":
                await copies_store.retract_summaries(session, namespace, gone.session, [gone.created_at])

    async def list_page(
        self,
        namespace: str,
        *,
        session: Session,
        role: Role | None,
        since: datetime | None,
        until: datetime | None,
        descending: bool,
        limit: int,
        after: Position | None,
    ) -> Page:
        """A page of a session's messages by (`created_at`, `id`)."""
        async with self._database.read() as reading:
            found = await store.list_dialogues(
                reading,
                namespace,
                of=session,
                role=role,
                since=since,
                until=until,
                descending=descending,
                limit=limit + 1,
                after=after,
                now=self._clock(),
            )
        page = found[:limit]
        last = page[-1] if len(found) > limit else None
        return Page(page, Position(last.created_at, last.id) if last else None)

    async def export(
        self, namespace: str, scope: ExportScope, *, page_size: int = _EXPORT_PAGE
    ) -> AsyncIterator[list[Dialogue]]:
        """All messages in the scope by (session, `created_at`, `id`), a page at a time."""
        after: Dialogue | None = None
        while True:
            async with self._database.read() as session:
                page = await read_export_page(
                    session, namespace, scope, after=after, limit=page_size, now=self._clock()
                )
            if not page:
                return
            yield page
            after = page[-1]

    async def queue_facts(self) -> QueueFacts:
        """How many messages wait for their vector, in all namespaces."""
        return await self._embedding.queue_facts()

    async def stats(self, namespace: str) -> Counts:
        """The namespace's record in numbers."""
        async with self._database.read() as session:
            return await overview_store.count_dialogues(session, namespace, now=self._clock())

    async def _add(
        self, namespace: str, new: Sequence[NewDialogue], *, wait: bool, name: Callable[[int], str]
    ) -> list[Stored]:
        now = self._clock()
        prepared = await _run(partial(prepare, new, now=now), chars=sum(len(item.content) for item in new))
        prepared = await self._take_known_names(namespace, new, prepared, now=now)
        first_places = _first_places(prepared, name)
        stored = await self._write(namespace, prepared, first_places, now=now, name=name)
        if any(item.created for item in stored):
            self._embedding.wake()
        if not wait:
            return stored
        pending = [item.dialogue.id for item in stored if item.dialogue.embedding_status == "pending"]
        await self._embedding.embed_now(pending)
        return await self._read_again(namespace, stored)

    async def _take_known_names(
        self,
        namespace: str,
        new: Sequence[NewDialogue],
        prepared: list[PreparedDialogue],
        *,
        now: datetime,
    ) -> list[PreparedDialogue]:
        """Give a message without a uuid the one that it was stored with, which its `message_id` tells."""
        ids = {item.message_id for item in new if item.message_uuid is None and item.message_id is not None}
        if not ids:
            return prepared
        async with self._database.read() as session:
            known = await store.find_names(session, namespace, sorted(ids), now=now)
        return [
            replace(item, message_uuid=known[key])
            if given.message_uuid is None
            and given.message_id is not None
            and (key := (item.session, given.message_id, item.written_hash)) in known
            else item
            for given, item in zip(new, prepared, strict=True)
        ]

    async def _write(
        self,
        namespace: str,
        prepared: list[PreparedDialogue],
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


async def _run(compute: Callable[[], _T], *, chars: int) -> _T:
    """Compute off the event loop where there is so much text that everybody else would wait."""
    return await asyncio.to_thread(compute) if chars > _IN_THREAD_ABOVE_CHARS else compute()


def _read_content(content: str, changed_from: Dialogue) -> tuple[int, bytes, Kind]:
    """What is computed of a message's new content: tokens, terms, kind."""
    # A summary stays one, whatever it says.
    is_summary = changed_from.kind == "summary"
    return (
        count_tokens(content),
        text_signature(content, changed_from.sender_name),
        "summary" if is_summary else classify(content, role=changed_from.role),
    )


async def _insert_or_find(
    session: WriteSession,
    namespace: str,
    prepared: list[PreparedDialogue],
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
    expired = [one.dialogue for one in existing.values() if _has_expired(one.dialogue, now)]
    for dialogue in sorted(expired, key=lambda one: one.id):
        await store.delete_dialogue(session, namespace, dialogue.id)
        del existing[dialogue.message_uuid]
    found |= {uuid: (item, False) for uuid, item in existing.items()}
    if expired:
        again = [fresh[dialogue.message_uuid] for dialogue in expired]
        found |= await _insert(session, namespace, again, now=now)
    return found if len(found) == len(fresh) else None


async def _insert(
    session: WriteSession, namespace: str, prepared: list[PreparedDialogue], *, now: datetime
) -> dict[str, tuple[ExistingDialogue, bool]]:
    """By uuid, those that the namespace did not have yet."""
    hashes = {item.message_uuid: item.written_hash for item in prepared}
    return {
        dialogue.message_uuid: (ExistingDialogue(dialogue, hashes[dialogue.message_uuid]), True)
        for dialogue in await store.insert_dialogues(
            session, namespace, prepared, now=now, live_since=now - LIVE_WITHIN
        )
    }


async def _change_copies(
    session: WriteSession,
    namespace: str,
    change: DialogueChange,
    changed: Dialogue,
    turns: Sequence[str],
) -> None:
    """Let all that holds a message's text, or tells of it, follow a change."""
    is_new_text = change.content is not UNSET
    if is_new_text:
        await copies_store.rewrite_turns(session, turns, changed)
    if changed.kind == "summary":
        if is_new_text:
            await copies_store.rewrite_summary(session, namespace, changed)
    elif is_new_text or change.outdated is not UNSET:
        await copies_store.retract_summaries(session, namespace, changed.session, [changed.created_at])


def _has_expired(dialogue: Dialogue, now: datetime) -> bool:
    return dialogue.expires_at is not None and dialogue.expires_at <= now


def _first_places(prepared: list[PreparedDialogue], name: Callable[[int], str]) -> dict[str, int]:
    """Where each uuid comes first; the same uuid for another message is a conflict."""
    places: dict[str, int] = {}
    for place, item in enumerate(prepared):
        first = prepared[places.setdefault(item.message_uuid, place)]
        if (first.written_hash, first.session) != (item.written_hash, item.session):
            raise _conflict(name(place), item.message_uuid)
    return places


def _in_request_order(
    prepared: list[PreparedDialogue],
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


def _not_found(dialogue_id: int) -> NotFoundError:
    return NotFoundError(f"there is no dialogue {dialogue_id}")
