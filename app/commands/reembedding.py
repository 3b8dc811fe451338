"""`temporal-memory reembed`: the model has changed, or failed for some messages."""

from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from app.commands.importing import progress_bar
from app.dialogues.reembedding import Reembedding, Survey
from app.errors import StartupError
from app.services import open_reembedding
from app.settings import Settings

_PASSES: Final = 10


async def reembed_all(
    settings: Settings,
    *,
    only_failed: bool,
    prepare: bool = False,
    agree: Callable[[str], bool],
    quiet: bool,
    tell: Callable[[str], object],
) -> int:
    """Embed anew what needs it, with a progress bar; the exit code.

    Args:
        settings: with the model that all vectors shall be of.
        only_failed: leave the vectors of other models as they are.
        prepare: leave the change-over to the next start of a service with these settings.
        agree: asked before anything is changed.
        quiet: no progress bar.
        tell: takes lines for the user.

    Raises:
        StartupError: the database cannot be opened, or `only_failed` is asked for vectors of another width.
        ProviderError: the model that is set makes no vectors; nothing is changed then.
    """
    async with open_reembedding(settings) as reembedding:
        survey = await reembedding.survey()
        resized = survey.width != reembedding.width
        if resized and only_failed:
            raise StartupError(
                f"The database holds vectors of {survey.width} dimensions, {reembedding.model} makes"
                f" {reembedding.width}: all have to be made anew, without --failed."
            )
        stale = sum(survey.other_models.values())
        if only_failed:
            stale = survey.failed
        if not (stale or survey.pending or resized):
            tell(f"Every message has its vector of {reembedding.model}.")
            return 0
        await reembedding.try_model()
        if (stale or resized) and not agree(_question(survey, reembedding, stale, resized=resized)):
            return 1
        if (stale or resized) and not only_failed and not survey.is_live:
            await _renew(reembedding, change_over=not prepare, quiet=quiet)
        if prepare:
            tell("Prepared: restart the service with these settings, and it changes over.")
            return 0
        return await _embed(reembedding, only_failed=only_failed, quiet=quiet, tell=tell)


def _question(survey: Survey, reembedding: Reembedding, stale: int, *, resized: bool) -> str:
    models = ", ".join(sorted(survey.other_models))
    made_by = f" (now: {models})" if models else ""
    width = f" of {reembedding.width} instead of {survey.width} dimensions" if resized else ""
    copied = (
        ""
        if survey.is_live
        else " They are copied with it beside the old ones, which are searched until all is done: it takes as"
        " much disk again as the messages have now."
    )
    return f"{stale} messages get a new vector{width} of {reembedding.model}{made_by}.{copied}"


async def _renew(reembedding: Reembedding, *, change_over: bool, quiet: bool) -> None:
    with progress_bar(total=None, unit="message", label="copying", quiet=quiet) as bar:
        async with aclosing(reembedding.renew(change_over=change_over)) as renewing:
            async for renewal in renewing:
                bar.total = max(renewal.total, renewal.left)
                bar.update(max(0, bar.total - renewal.left) - bar.n)


async def _embed(
    reembedding: Reembedding, *, only_failed: bool, quiet: bool, tell: Callable[[str], object]
) -> int:
    for _ in range(_PASSES):
        survey = await reembedding.survey()
        total = survey.pending + survey.failed + (0 if only_failed else sum(survey.other_models.values()))
        with progress_bar(total=total, unit="vector", label="embedding", quiet=quiet) as bar:
            async for done in reembedding.run(only_failed=only_failed):
                bar.total = max(bar.total or 0, done)
                bar.update(done - bar.n)
        left = await reembedding.survey()
        if only_failed or not left.other_models:
            tell(f"Done; {left.failed} messages cannot be embedded." if left.failed else "Done.")
            return 1 if left.failed else 0
    tell(
        f"A service goes on making vectors of {', '.join(sorted(left.other_models))}: restart it with these"
        " settings, and run this again."
    )
    return 1
