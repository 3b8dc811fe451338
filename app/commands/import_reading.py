"""Reads an import file into messages that are ready to be written, in a process of its own where it is large.

To read, check and take a message apart takes longer than to write it: beside the writing process it uses
another core.
"""

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from itertools import islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.reduction import DupFd
from operator import attrgetter
from typing import Any, BinaryIO, Final
from zoneinfo import ZoneInfo

from pydantic import ValidationError

from app.api.dialogues import DialogueRequest, check_created_at
from app.api.fields import Flag, at_zone
from app.dialogues.preparation import prepare
from app.dialogues.records import Kind, NewDialogue, PreparedDialogue, Session
from app.dialogues.scrubbing import ScrubMode, scrub_text
from app.dialogues.transfer import Namer, read_entries
from app.dialogues.transfer_shapes import LogOwner, ShapeReader
from app.errors import UnavailableError

APART_FROM_BYTES: Final = 4 << 20
"""A smaller file is read sooner than a process has started."""

_MAX_AHEAD: Final = timedelta(days=1)
_END_LIMIT_S: Final = 5


class ImportedDialogue(DialogueRequest):
    """A message of a file: what `POST /dialogues` takes, and what else an export knows of it."""

    kind: Kind | None = None
    outdated: Flag = False


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """How a file is read.

    Attributes:
        namespace: into which it goes; names of nameless messages depend on it.
        zone: of times without offset.
        owner: whose a chat log without user ids is.
        batch_size: entries of the file in a batch.
        scrub: what is done with secrets and personal data.
    """

    namespace: str
    zone: ZoneInfo
    owner: LogOwner | None
    batch_size: int
    scrub: ScrubMode = "off"


@dataclass(slots=True)
class Batch:
    """Some messages of a file.

    Attributes:
        messages: in the order of the file.
        places: where in the file each stands.
        faults: (place, what is wrong) of those that cannot be taken.
        skipped: how many entries are no message.
        bytes_read: how far into the file it reaches.
    """

    messages: list[PreparedDialogue] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)
    skipped: int = 0
    bytes_read: int = 0


@contextmanager
def open_batches(stream: BinaryIO, options: ReadingOptions, *, now: datetime) -> Iterator[Iterator[Batch]]:
    """The batches of a file; a large one is read by another process, which ends with the block.

    Raises:
        UnavailableError: while they are read: that process has died.
    """
    if not _is_large_file(stream):
        yield read_batches(stream, options, now=now)
        return
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_read_apart, args=(DupFd(stream.fileno()), options, now, sender), daemon=True
    )
    process.start()
    sender.close()
    try:
        yield _receive(receiver)
    finally:
        # It is stopped where it waits to send.
        receiver.close()
        process.terminate()
        process.join(_END_LIMIT_S)


def _is_large_file(stream: BinaryIO) -> bool:
    with suppress(OSError):
        state = os.fstat(stream.fileno())
        return stat.S_ISREG(state.st_mode) and state.st_size >= APART_FROM_BYTES
    return False


def _read_apart(file: Any, options: ReadingOptions, now: datetime, sender: Connection) -> None:
    """What the other process does; None is sent for the end."""
    # Searches and writing go first.
    os.nice(5)
    with suppress(BrokenPipeError, KeyboardInterrupt), sender:
        with io.BufferedReader(io.FileIO(file.detach())) as stream:
            stream.seek(0)
            for batch in read_batches(stream, options, now=now):
                sender.send(_pack(batch))
        sender.send(None)


_COLUMNS: Final = attrgetter(*(column.name for column in fields(PreparedDialogue)))


def _pack(batch: Batch) -> tuple[Any, ...]:
    """The batch as plain tuples: a tenth of the time that its objects take to be sent."""
    return (
        [_COLUMNS(message) for message in batch.messages],
        batch.places,
        batch.faults,
        batch.skipped,
        batch.bytes_read,
    )


def _unpack(packed: tuple[Any, ...]) -> Batch:
    rows, *rest = packed
    return Batch([PreparedDialogue(*row) for row in rows], *rest)


def _receive(receiver: Connection) -> Iterator[Batch]:
    while True:
        try:
            packed = receiver.recv()
        except (EOFError, OSError):
            raise UnavailableError(
                "the process that reads the file has died: run the import again, which stores nothing twice"
            ) from None
        if packed is None:
            return
        yield _unpack(packed)


def read_batches(stream: BinaryIO, options: ReadingOptions, *, now: datetime) -> Iterator[Batch]:
    """The messages of a file, some at a time.

    Args:
        stream: the file.
        options: how it is read.
        now: of what has no time: the first message of the file, the others a microsecond apart.
    """
    entries = read_entries(stream)
    shapes = ShapeReader(options.owner)
    namer = Namer(options.namespace)
    latest = now + _MAX_AHEAD
    while True:
        batch = Batch()
        new: list[NewDialogue] = []
        for entry in islice(entries, options.batch_size):
            batch.bytes_read = entry.bytes_read
            if entry.fault is not None:
                batch.faults.append((entry.place, entry.fault))
                continue
            try:
                found = shapes.read(entry.value)
                if found is None:
                    batch.skipped += 1
                    continue
                message = _read_message(found, options, latest=latest, namer=namer)
            except ValidationError as error:
                batch.faults.append((entry.place, _first_fault(error)))
            except ValueError as error:
                batch.faults.append((entry.place, str(error)))
            else:
                batch.places.append(entry.place)
                new.append(message)
        if not batch.bytes_read:
            return
        batch.messages = prepare(new, now=now)
        now += timedelta(microseconds=len(new))
        yield batch


def _read_message(
    fields: dict[str, object], options: ReadingOptions, *, latest: datetime, namer: Namer
) -> NewDialogue:
    zone = options.zone
    read = ImportedDialogue.model_validate(fields)
    created_at = None if read.created_at is None else at_zone(read.created_at, zone)
    if created_at is not None:
        try:
            check_created_at(created_at, zone=zone, latest=latest)
        except ValueError as error:
            raise ValueError(f"created_at: {error}") from None
    content = scrub_text(read.content, options.scrub)
    message_uuid = read.message_uuid
    if message_uuid is None and read.message_id is None:
        message_uuid = namer.name(
            Session(read.user_id, read.group_id),
            role=read.role,
            created_at=created_at,
            content=content,
        )
    return NewDialogue(
        user_id=read.user_id,
        role=read.role,
        content=content,
        group_id=read.group_id,
        sender_name=read.sender_name and scrub_text(read.sender_name, options.scrub),
        message_id=read.message_id,
        message_uuid=message_uuid,
        created_at=created_at,
        score=read.score,
        expires_at=None if read.expires_at is None else at_zone(read.expires_at, zone),
        pinned=read.pinned,
        kind=read.kind,
        outdated=read.outdated,
    )


def _first_fault(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    what = first["msg"].removeprefix("Value error, ")
    return f"{where}: {what}" if where else what
