"""`temporal-memory import` and `export`: a file's messages into the record, and out of it."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import BinaryIO, Final, NoReturn, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import ValidationError
from tqdm import tqdm

from app.api.dialogues import DialogueRequest, check_created_at
from app.api.fields import Flag, at_zone
from app.dialogues.records import Kind, NewDialogue, Session, Stored
from app.dialogues.transfer import Namer, export_line, read_entries
from app.dialogues.transfer_shapes import LogOwner, ShapeReader
from app.dialogues.transfer_store import ExportScope
from app.errors import ConflictError
from app.services import Services

BATCH_SIZE: Final = 1000
Progress: TypeAlias = "tqdm[NoReturn]"
_MAX_AHEAD: Final = timedelta(days=1)
_SHOWN_FAULTS: Final = 20
_POLL_S: Final = 0.2


class ImportedDialogue(DialogueRequest):
    """A message of a file: what `POST /dialogues` takes, and what else an export knows of it."""

    kind: Kind | None = None
    outdated: Flag = False


@dataclass(slots=True)
class ImportReport:
    """How many messages an import has stored, found stored already, could not take, and passed over."""

    stored: int = 0
    duplicates: int = 0
    bad: int = 0
    skipped: int = 0
    shown: int = field(default=0, repr=False)


@dataclass(frozen=True, slots=True)
class _Message:
    place: str
    new: NewDialogue


@dataclass(slots=True)
class _Batch:
    """Attributes: `faults`: (place, what is wrong); `bytes_read`: how far into the file it reaches."""

    messages: list[_Message] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)
    skipped: int = 0
    bytes_read: int = 0


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How a file is read and stored.

    Attributes:
        owner: whose a chat log without user ids is.
        zone: of times without offset.
        wait: go on only when a batch has its vectors.
        tell: takes each line about a fault.
    """

    namespace: str
    zone: ZoneInfo
    owner: LogOwner | None
    tell: Callable[[str], object]
    wait: bool = False
    batch_size: int = BATCH_SIZE


async def import_stream(
    services: Services,
    stream: BinaryIO,
    *,
    options: ImportOptions,
    report: ImportReport,
    progress: Progress,
) -> None:
    """Store a file's messages, in its order, a batch a transaction; a second run stores nothing again.

    While one batch is being written the next is read.
    """
    batches = _read_batches(stream, options, now=services.clock())
    reading = asyncio.create_task(asyncio.to_thread(next, batches, None))
    try:
        while (batch := await reading) is not None:
            reading = asyncio.create_task(asyncio.to_thread(next, batches, None))
            for place, fault in batch.faults:
                _tell_fault(options, report, place, fault)
            report.skipped += batch.skipped
            await _store(services, batch.messages, options, report)
            progress.update(batch.bytes_read - progress.n)
    finally:
        reading.cancel()


def tell_rest(options: ImportOptions, report: ImportReport) -> None:
    """Say how many faults were not shown."""
    if report.bad > report.shown:
        options.tell(f"... and {report.bad - report.shown} more")


def _tell_fault(options: ImportOptions, report: ImportReport, place: str, fault: str) -> None:
    report.bad += 1
    if report.shown < _SHOWN_FAULTS:
        report.shown += 1
        options.tell(f"{place}: {fault}")


async def _store(
    services: Services, messages: list[_Message], options: ImportOptions, report: ImportReport
) -> None:
    """Store the messages; where one is in conflict, halve them until it stands alone."""
    if not messages:
        return
    try:
        outcomes: list[Stored] = await services.dialogues.add_many(
            options.namespace, [message.new for message in messages], wait=options.wait
        )
    except ConflictError as error:
        if len(messages) == 1:
            fault = str(error).removeprefix("dialogues[0]: ")
            _tell_fault(options, report, messages[0].place, fault)
            return
        middle = len(messages) // 2
        await _store(services, messages[:middle], options, report)
        await _store(services, messages[middle:], options, report)
        return
    created = sum(outcome.created for outcome in outcomes)
    report.stored += created
    report.duplicates += len(outcomes) - created


def _read_batches(stream: BinaryIO, options: ImportOptions, *, now: datetime) -> Iterator[_Batch]:
    entries = read_entries(stream)
    shapes = ShapeReader(options.owner)
    namer = Namer(options.namespace)
    while True:
        batch = _Batch()
        for entry in islice(entries, options.batch_size):
            batch.bytes_read = entry.bytes_read
            if entry.fault is not None:
                batch.faults.append((entry.place, entry.fault))
                continue
            try:
                fields = shapes.read(entry.value)
                if fields is None:
                    batch.skipped += 1
                    continue
                new = _read_message(fields, options.zone, latest=now + _MAX_AHEAD, namer=namer)
            except ValidationError as error:
                batch.faults.append((entry.place, _first_fault(error)))
            except ValueError as error:
                batch.faults.append((entry.place, str(error)))
            else:
                batch.messages.append(_Message(entry.place, new))
        if not batch.bytes_read:
            return
        yield batch


def _read_message(
    fields: dict[str, object], zone: ZoneInfo, *, latest: datetime, namer: Namer
) -> NewDialogue:
    read = ImportedDialogue.model_validate(fields)
    created_at = None if read.created_at is None else at_zone(read.created_at, zone)
    if created_at is not None:
        try:
            check_created_at(created_at, zone=zone, latest=latest)
        except ValueError as error:
            raise ValueError(f"created_at: {error}") from None
    message_uuid = read.message_uuid
    if message_uuid is None and read.message_id is None:
        message_uuid = namer.name(
            Session(read.user_id, read.group_id),
            role=read.role,
            created_at=created_at,
            content=read.content,
        )
    return NewDialogue(
        user_id=read.user_id,
        role=read.role,
        content=read.content,
        group_id=read.group_id,
        sender_name=read.sender_name,
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


async def export_to(
    services: Services, sink: BinaryIO, *, namespace: str, scope: ExportScope, progress: Progress
) -> int:
    """Write the messages of a scope as JSON Lines; how many they were."""
    written = 0
    zone = services.settings.recall.zone
    async for page in services.dialogues.export(namespace, scope):
        # A slow disk or pipe must not hold the loop.
        await asyncio.to_thread(sink.writelines, [export_line(dialogue, zone) for dialogue in page])
        written += len(page)
        progress.update(len(page))
    await asyncio.to_thread(sink.flush)
    return written


async def wait_for_vectors(services: Services, *, quiet: bool) -> None:
    """Return when no message waits for its vector any more; the services' loops have to run."""
    total = (await services.dialogues.queue_facts()).pending
    with progress_bar(total=total, unit="vector", label="embedding", quiet=quiet) as bar:
        while pending := (await services.dialogues.queue_facts()).pending:
            bar.total = max(bar.total or 0, pending)
            bar.update(bar.total - pending - bar.n)
            await asyncio.sleep(_POLL_S)
        bar.update((bar.total or 0) - bar.n)


def progress_bar(*, total: int | None, unit: str, label: str, quiet: bool) -> Progress:
    """A bar on stderr, where that is a terminal."""
    return tqdm(
        total=total,
        unit=unit,
        unit_scale=True,
        desc=label,
        disable=quiet or not sys.stderr.isatty(),
        file=sys.stderr,
        dynamic_ncols=True,
    )
