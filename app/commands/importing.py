"""`temporal-memory import` and `export`: a file's messages into the record, and out of it."""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Final, NoReturn, TypeAlias
from zoneinfo import ZoneInfo

from tqdm import tqdm

from app.commands.import_reading import ReadingOptions, open_batches
from app.dialogues.records import PreparedDialogue
from app.dialogues.transfer import export_line
from app.dialogues.transfer_shapes import LogOwner
from app.dialogues.transfer_store import ExportScope
from app.errors import ConflictError
from app.services import Services

BATCH_SIZE: Final = 1000
Progress: TypeAlias = "tqdm[NoReturn]"
_SHOWN_FAULTS: Final = 20
_POLL_S: Final = 0.2


@dataclass(slots=True)
class ImportReport:
    """How many messages an import has stored, found stored already, could not take, and passed over."""

    stored: int = 0
    duplicates: int = 0
    bad: int = 0
    skipped: int = 0
    shown: int = field(default=0, repr=False)


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

    While one batch is being written the next is read; a large file is read by a process of its own.

    Raises:
        UnavailableError: that process has died.
    """
    how = ReadingOptions(
        options.namespace,
        options.zone,
        options.owner,
        options.batch_size,
        scrub=services.settings.record.scrub,
    )
    with open_batches(stream, how, now=services.clock()) as batches:
        reading = asyncio.create_task(asyncio.to_thread(next, batches, None))
        try:
            while (batch := await reading) is not None:
                reading = asyncio.create_task(asyncio.to_thread(next, batches, None))
                for place, fault in batch.faults:
                    _tell_fault(options, report, place, fault)
                report.skipped += batch.skipped
                await _store(services, batch.places, batch.messages, options, report)
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
    services: Services,
    places: Sequence[str],
    messages: Sequence[PreparedDialogue],
    options: ImportOptions,
    report: ImportReport,
) -> None:
    """Store the messages; where one is in conflict, halve them until it stands alone."""
    if not messages:
        return
    try:
        outcomes = await services.dialogues.add_prepared(options.namespace, messages, wait=options.wait)
    except ConflictError as error:
        if len(messages) == 1:
            fault = str(error).removeprefix("dialogues[0]: ")
            _tell_fault(options, report, places[0], fault)
            return
        middle = len(messages) // 2
        await _store(services, places[:middle], messages[:middle], options, report)
        await _store(services, places[middle:], messages[middle:], options, report)
        return
    created = sum(outcome.created for outcome in outcomes)
    report.stored += created
    report.duplicates += len(outcomes) - created


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
