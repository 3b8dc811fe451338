"""`temporal-memory backup` and `restore`: the whole memory as one file, whatever database is used."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from app.database.dump import dump, examine, read_archive, restore
from app.errors import DumpError
from app.services import migrate_url, open_database_url
from app.settings import Settings


async def back_up(settings: Settings, file: str, *, tell: Callable[[str], object]) -> None:
    """Write every namespace's memory to a file, or to standard output (`-`).

    Raises:
        DumpError: there is nothing to write, or it failed; what stood in the file is still there.
        StartupError: the database cannot be opened, or PostgreSQL's programs are not here.
    """
    async with open_database_url(settings.database) as url:
        with _private_sink(file) as sink:
            contents = await dump(url, sink)
            size = "" if file == "-" else f", {os.fstat(sink.fileno()).st_size:,} bytes"
    tell(f"{contents.dialogues} messages backed up{size}")


async def put_back(settings: Settings, file: Path, *, replace: bool, tell: Callable[[str], object]) -> None:
    """Put a backup in the place of what the database holds, and migrate it to this version.

    Args:
        settings: of the database; its migrations are made with them.
        file: what `back_up` wrote.
        replace: also where the database holds a memory already.
        tell: takes the one line of result.

    Raises:
        DumpError: a service is running on it, it holds a memory, or the restore failed; nothing has changed.
        StartupError: the database cannot be opened, or PostgreSQL's programs are not here.
    """
    archive = await read_archive(file)
    async with open_database_url(settings.database) as url:
        contents = await examine(url)
        if contents.services:
            raise DumpError(
                f"a service has {contents.services} connections to this database: stop it, then restore."
            )
        if contents.rows and not replace:
            raise DumpError(
                f"this database holds {contents.dialogues} messages already:"
                " --replace puts the backup in their place."
            )
        await restore(url, archive, contents=contents)
        await migrate_url(settings, url)
        found = await examine(url)
    tell(f"{found.dialogues} messages restored")


@contextmanager
def _private_sink(name: str) -> Iterator[BinaryIO]:
    """What stood in the file is replaced when the new one is whole; it holds what people said."""
    if name == "-":
        if sys.stdout.isatty():
            raise DumpError("a dump is not for a terminal: name a file, or redirect the output.")
        yield sys.stdout.buffer
        return
    target = Path(name)
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as sink:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    part.replace(target)
