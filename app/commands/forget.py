"""`temporal-memory forget`: the daily sweep, now."""

from collections.abc import Callable

from app.access.callers import PROGRAM
from app.services import open_services
from app.settings import Settings

ALL = "all"


async def forget(settings: Settings, *, namespace: str, dry_run: bool, tell: Callable[[str], None]) -> None:
    """Delete, or count, what a sweep of a namespace, or of all, would delete."""
    whose = None if namespace == ALL else namespace
    async with open_services(settings, background=False) as services:
        if dry_run:
            found = await services.sweep.count(whose)
        else:
            found = await services.sweep.forget(whose)
            await services.access.record_forgotten(
                whose, expired=found.expired, unretrieved=found.unretrieved, by=PROGRAM
            )
            await services.sweep.vacuum()
    done = "would be deleted" if dry_run else "deleted"
    tell(f"{found.expired} expired, {found.unretrieved} unretrieved {done}")
