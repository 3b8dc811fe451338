"""Writes, reads, edits and erases messages."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from app.access.audit_store import Deed, record_deed
from app.access.callers import PROGRAM, Actor
from app.clock import Clock
from app.database.engine import Database, WriteSession
from app.dialogues import copies_store, overview_store, store
from app.dialogues.embedding import EmbeddingPipeline
from app.dialogues.embedding_store import QueueFacts
from app.dialogues.kinds import classify
from app.dialogues.overview_store import Counts
from app.dialogues.preparation import text_signature
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
from app.dialogues.scrubbing import PersonalDataError, ScrubMode, scrub_dialogues, scrub_text
from app.dialogues.tokens import count_tokens
from app.dialogues.transfer_store import ExportScope, read_export_page
from app.dialogues.writing_service import WritingService, compute_apart, has_expired
from app.errors import FieldFault, InvalidInputError, NotFoundError

_EXPORT_PAGE = 1000


class DialogueService:
    """The record of who said what."""

    def __init__(
        self, *, database: Database, embedding: EmbeddingPipeline, clock: Clock, scrub: ScrubMode = "off"
    ) -> None:
        """Open nothing; `scrub`: what is done with secrets and personal data in what is written."""
        self._database = database
        self._embedding = embedding
        self._clock = clock
        self._scrub = scrub
        self._writing = WritingService(database=database, embedding=embedding, clock=clock)

    async def add(self, namespace: str, new: NewDialogue, *, wait: bool = False) -> Stored:
        """Store one message, or find that it is stored already.

        Args:
            namespace: the caller's.
            new: the message.
            wait: return after its vector is made (or cannot be made at present) instead of before.

        Raises:
            ConflictError: its uuid belongs to another message.
            InvalidInputError: it holds what is not kept here.
        """
        kept = await self._scrubbed([new], point=lambda _: "/content")
        return (await self._writing.add(namespace, kept, wait=wait, name=lambda _: ""))[0]

    async def add_many(
        self, namespace: str, new: Sequence[NewDialogue], *, wait: bool = False
    ) -> list[Stored]:
        """Store some messages in one transaction, in order; all of them or none.

        Raises:
            ConflictError: a uuid belongs to another message; the error names the index.
            InvalidInputError: some hold what is not kept here; the error names them.
        """
        kept = await self._scrubbed(new, point=lambda index: f"/dialogues/{index}/content")
        return await self._writing.add(namespace, kept, wait=wait, name=_name_place)

    async def add_prepared(
        self, namespace: str, prepared: Sequence[PreparedDialogue], *, wait: bool = False
    ) -> list[Stored]:
        """The same as `add_many`, for messages that have been prepared elsewhere, and scrubbed there."""
        return await self._writing.add_prepared(namespace, prepared, wait=wait, name=_name_place)

    async def get(self, namespace: str, dialogue_id: int) -> Dialogue:
        """A message by its id.

        Raises:
            NotFoundError: the namespace has none with this id, or it has expired.
        """
        async with self._database.read() as session:
            found = await store.find_dialogue(session, namespace, dialogue_id)
        if found is None or has_expired(found, self._clock()):
            raise _not_found(dialogue_id)
        return found

    async def change(self, namespace: str, dialogue_id: int, change: DialogueChange) -> Dialogue:
        """Change a message; new content gets a new vector.

        Raises:
            NotFoundError: the namespace has none with this id, or it has expired.
            InvalidInputError: the content holds what is not kept here.
        """
        if change == DialogueChange():
            return await self.get(namespace, dialogue_id)
        token_count, terms, kind = None, None, None
        if change.content is not UNSET:
            changed_from = await self.get(namespace, dialogue_id)
            content = self._scrub_content(change.content)
            change = replace(change, content=content)
            token_count, terms, kind = await compute_apart(
                partial(_read_content, content, changed_from), chars=len(content)
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

    async def delete(self, namespace: str, dialogue_id: int, *, by: Actor = PROGRAM) -> None:
        """Delete a message for good, and all that holds its text: window, turn, summaries.

        The other half of its turn is a message of its own, and stays. The audit log tells who did it.

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
            deed = Deed(
                "dialogue_deleted",
                namespace,
                user_id=gone.user_id,
                group_id=gone.group_id,
                dialogue_id=dialogue_id,
            )
            await record_deed(session, deed, by=by)

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

    async def _scrubbed(
        self, new: Sequence[NewDialogue], *, point: Callable[[int], str]
    ) -> Sequence[NewDialogue]:
        return await compute_apart(
            partial(scrub_dialogues, new, self._scrub, point=point),
            chars=sum(len(one.content) for one in new),
        )

    def _scrub_content(self, content: str) -> str:
        try:
            return scrub_text(content, self._scrub)
        except PersonalDataError as error:
            raise InvalidInputError([FieldFault("/content", str(error))]) from None

    async def queue_facts(self) -> QueueFacts:
        """How many messages wait for their vector, in all namespaces."""
        return await self._embedding.queue_facts()

    async def stats(self, namespace: str | None) -> Counts:
        """The namespace's record, or that of all, in numbers."""
        async with self._database.read() as session:
            return await overview_store.count_dialogues(session, namespace, now=self._clock())

    async def count_by_namespace(self, namespace: str | None) -> dict[str, int]:
        """How many messages each namespace has, or this one."""
        async with self._database.read() as session:
            return await overview_store.count_by_namespace(session, namespace)


def _name_place(index: int) -> str:
    return f"dialogues[{index}]: "


def _read_content(content: str, changed_from: Dialogue) -> tuple[int, bytes, Kind]:
    """What is computed of a message's new content: tokens, terms, kind."""
    # A summary stays one, whatever it says.
    is_summary = changed_from.kind == "summary"
    return (
        count_tokens(content),
        text_signature(content, changed_from.sender_name),
        "summary" if is_summary else classify(content, role=changed_from.role),
    )


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


def _not_found(dialogue_id: int) -> NotFoundError:
    return NotFoundError(f"there is no dialogue {dialogue_id}")
