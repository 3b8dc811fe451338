"""`temporal-memory`: the service and its data from the command line.

Exit codes: 0 done; 1 done in part, or an error of this call; 2 it could not start, or was called wrongly;
130 interrupted.
"""

import asyncio
import contextlib
import io
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click

from app.commands.access import audit, keys
from app.commands.backup import back_up, put_back
from app.commands.command_settings import load_command_settings
from app.commands.demonstration import demonstrate
from app.commands.evaluate import evaluate_file
from app.commands.forget import ALL
from app.commands.forget import forget as forget_now
from app.commands.importing import (
    ImportOptions,
    ImportReport,
    export_to,
    import_stream,
    progress_bar,
    tell_rest,
    wait_for_vectors,
)
from app.commands.reembedding import reembed_all
from app.commands.serving import serve as serve_http
from app.commands.workers import serve_with_workers
from app.dialogues.records import Session
from app.dialogues.transfer_shapes import LogOwner
from app.dialogues.transfer_store import ExportScope
from app.errors import StartupError, TemporalMemoryError
from app.recall.records import SearchQuery
from app.services import migrate_database, open_services
from app.settings import Settings, load_settings
from app.telemetry import configure_logging, mask_secrets

_Command = TypeVar("_Command", bound=Callable[..., Any])

_INTERRUPTED = 130
_INT64 = 2**63

_namespace = click.option(
    "--namespace", default="default", show_default=True, metavar="NAME", help="Whose data: a bot, a tenant."
)
_quiet = click.option("--quiet", is_flag=True, help="No progress bar.")


def _ids(*, user_required: bool) -> Callable[[_Command], _Command]:
    def add(command: _Command) -> _Command:
        command = click.option("--group-id", type=click.IntRange(-_INT64, _INT64 - 1), metavar="N")(command)
        return click.option(
            "--user-id", type=click.IntRange(1, _INT64 - 1), metavar="N", required=user_required
        )(command)

    return add


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="temporal-memory")
def cli() -> None:
    """Persistent, time-aware conversation memory for LLM chat bots.

    Settings come from the environment, .env, or the file named by CONFIG_FILE. Without DATABASE_URL an
    embedded PostgreSQL is used, which several of these commands may share.
    """


@cli.command()
@click.option("--host", metavar="ADDRESS", help="Default: HOST, or 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65535), help="Default: PORT, or 8000; 0: any free one.")
@click.option(
    "--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes that serve."
)
def serve(host: str | None, port: int | None, workers: int) -> int:
    """Serve HTTP until Ctrl-C."""
    given = {"host": host, "port": port}
    settings = load_settings({name: value for name, value in given.items() if value is not None})
    configure_logging(level=settings.log.level, json_lines=settings.log.json_lines)
    return serve_http(settings) if workers == 1 else serve_with_workers(settings, workers)


@cli.command()
def migrate() -> None:
    """Bring the database to the schema of this version."""
    click.echo(f"The database is at migration {asyncio.run(migrate_database(load_command_settings()))}.")


@cli.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, writable=True))
def backup(file: str) -> None:
    """Write the whole memory, of every namespace, to FILE (- for standard output).

    The service may go on running. The file is a dump in pg_dump's custom format, readable by its owner only.
    """
    _run(back_up(load_command_settings(), file, tell=lambda line: click.echo(line, err=True)))


@cli.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--replace", is_flag=True, help="Even where there is a memory already: it is lost.")
def restore(file: Path, replace: bool) -> None:
    """Put the memory that backup wrote to FILE into the database that is set, and migrate it.

    No service may run on that database meanwhile. What goes wrong changes nothing.
    """
    _run(put_back(load_command_settings(), file, replace=replace, tell=click.echo))


@cli.command("import")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, allow_dash=True)
)
@_namespace
@_ids(user_required=False)
@click.option("--sender-name", metavar="NAME", help="The user's name, for a chat log that does not say it.")
@click.option("--wait", is_flag=True, help="Make the vectors, too, and end when all are made.")
@_quiet
def import_(
    *,
    files: tuple[str, ...],
    namespace: str,
    user_id: int | None,
    group_id: int | None,
    sender_name: str | None,
    wait: bool,
    quiet: bool,
) -> int:
    """Import messages from FILES (- for standard input), without duplicates however often.

    Each file holds JSON Lines or one JSON array, of messages as POST /dialogues takes them, of what export
    writes, of OneBot v11 events, or of {"role", "content", "ts"} logs of the user named by --user-id.
    Lines that cannot be taken are reported with their numbers, and the others are imported.
    """
    if user_id is None and (group_id is not None or sender_name is not None):
        raise click.UsageError("--group-id and --sender-name need --user-id")
    owner = None if user_id is None else LogOwner(user_id, group_id, sender_name)
    settings = load_command_settings()
    options = ImportOptions(
        namespace, settings.recall.zone, owner, tell=lambda line: click.echo(line, err=True)
    )
    return _run(_import(settings, files, options, wait=wait, quiet=quiet))


async def _import(
    settings: Settings, files: tuple[str, ...], options: ImportOptions, *, wait: bool, quiet: bool
) -> int:
    report = ImportReport()
    async with open_services(settings, background=wait) as services:
        for name in files:
            with _source(name) as (stream, size):
                label = "standard input" if name == "-" else Path(name).name
                with progress_bar(total=size, unit="B", label=label, quiet=quiet) as bar:
                    await import_stream(services, stream, options=options, report=report, progress=bar)
        tell_rest(options, report)
        click.echo(
            f"{report.stored} stored, {report.duplicates} duplicates, {report.bad} bad,"
            f" {report.skipped} without a message"
        )
        if wait:
            await wait_for_vectors(services, quiet=quiet)
        elif report.stored:
            click.echo(
                "Their vectors are made by the running service, or by the next; until then words find them."
            )
    return 1 if report.bad else 0


@contextlib.contextmanager
def _source(name: str) -> Iterator[tuple[BinaryIO, int | None]]:
    if name == "-":
        yield sys.stdin.buffer, None
        return
    with Path(name).open("rb", buffering=io.DEFAULT_BUFFER_SIZE * 16) as stream:
        yield stream, os.fstat(stream.fileno()).st_size or None


@cli.command()
@click.argument("file", default="-", type=click.Path(dir_okay=False, allow_dash=True, writable=True))
@_namespace
@_ids(user_required=False)
@_quiet
def export(*, file: str, namespace: str, user_id: int | None, group_id: int | None, quiet: bool) -> None:
    """Export messages to FILE (standard output by default) as JSON Lines that import takes.

    --user-id alone: that user's in private and in every group; --group-id alone: the whole group's; both:
    that member's in that group.
    """
    _run(
        _export(
            load_command_settings(),
            file,
            namespace=namespace,
            scope=ExportScope(user_id, group_id),
            quiet=quiet,
        )
    )


async def _export(settings: Settings, file: str, *, namespace: str, scope: ExportScope, quiet: bool) -> None:
    async with open_services(settings, background=False) as services:
        with _sink(file) as sink, progress_bar(total=None, unit="row", label="export", quiet=quiet) as bar:
            written = await export_to(services, sink, namespace=namespace, scope=scope, progress=bar)
    click.echo(f"{written} messages exported", err=True)


@contextlib.contextmanager
def _sink(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdout.buffer
        return
    # What stood there is replaced when the new one is whole.
    target = Path(name)
    part = target.with_name(f"{target.name}.part")
    with part.open("wb") as sink:
        yield sink
    part.replace(target)


@cli.command()
@click.argument("query")
@_namespace
@_ids(user_required=True)
@click.option("--scope", type=click.Choice(["member", "group"]), default="member", show_default=True)
@click.option("--top-n", type=click.IntRange(0, 100))
def search(
    *, query: str, namespace: str, user_id: int, group_id: int | None, scope: str, top_n: int | None
) -> None:
    """Print the memory lines that QUERY finds in a session."""
    if scope == "group" and group_id is None:
        raise click.UsageError("--scope group needs --group-id")
    if not query.strip():
        raise click.UsageError("QUERY must not be blank")
    settings = load_command_settings()
    _run(_search(settings, query, Session(user_id, group_id), namespace=namespace, scope=scope, top_n=top_n))


async def _search(
    settings: Settings, query: str, session: Session, *, namespace: str, scope: Any, top_n: int | None
) -> None:
    async with open_services(settings, background=False) as services:
        result = await services.recall.search(
            namespace,
            SearchQuery(
                session=session,
                query=query,
                now=services.clock(),
                zone=settings.recall.zone,
                language=settings.recall.language,
                top_n=settings.recall.top_n if top_n is None else top_n,
                window_size=settings.recall.window_size,
                scope=scope,
            ),
        )
    for memory in result.memories:
        click.echo(memory.line)


@cli.command()
@click.option(
    "--namespace",
    default="default",
    show_default=True,
    metavar="NAME",
    help=f"Whose messages; {ALL}: everybody's.",
)
@click.option("--dry-run", is_flag=True, help="Count what would be deleted, and delete nothing.")
def forget(*, namespace: str, dry_run: bool) -> None:
    """Delete what has expired, and what nobody has asked for in FORGET_UNRETRIEVED_DAYS.

    The service does the same by itself, daily at FORGET_AT.
    """
    _run(forget_now(load_command_settings(), namespace=namespace, dry_run=dry_run, tell=click.echo))


@cli.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Print, and store nothing.")
def evaluate(file: str, dry_run: bool) -> int:
    """Print score and retention of the turns in FILE (- for standard input), by the evaluator that is set.

    FILE holds JSON Lines or one JSON array, of {"user", "assistant"} or of messages as export writes them. So
    a change of EVALUATION_PROMPT or EVALUATION_MODEL is tried before the service has it.
    """
    if not dry_run:
        raise click.UsageError("evaluate prints only: say so with --dry-run")
    return _run(_evaluate(load_command_settings(), file))


async def _evaluate(settings: Settings, file: str) -> int:
    with _source(file) as (stream, _):
        bad = await evaluate_file(settings, stream, tell=click.echo)
    return 1 if bad else 0


@cli.command()
@click.option("--failed", is_flag=True, help="Only the messages that could not be embedded.")
@click.option("--prepare", is_flag=True, help="Let the next start of a service change over.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_quiet
def reembed(*, failed: bool, prepare: bool, yes: bool, quiet: bool) -> int:
    """Give every message a vector of the model that is set.

    The service may go on running with the old settings meanwhile, and searches the old vectors until all is
    done; then restart it with the new ones. When stopped, run this again: it goes on where it was. With
    --prepare it stops short of the end, and the service changes over when it starts with the new settings.
    """
    if failed and prepare:
        raise click.UsageError("--prepare is for another model, --failed for the one in use")

    def agree(question: str) -> bool:
        if yes:
            return True
        if not sys.stdin.isatty():
            raise StartupError(f"{question} Say so with --yes.")
        return click.confirm(f"{question} Go on?")

    return _run(
        reembed_all(
            load_command_settings(),
            only_failed=failed,
            prepare=prepare,
            agree=agree,
            quiet=quiet,
            tell=click.echo,
        )
    )


@cli.command()
@_quiet
def demo(quiet: bool) -> None:
    """Import the example conversations into the namespace demo, and ask five questions of each."""
    _run(demonstrate(load_command_settings(), quiet=quiet, tell=click.echo))


cli.add_command(keys)
cli.add_command(audit)


def _run(work: "Coroutine[Any, Any, int] | Coroutine[Any, Any, None]") -> int:
    return asyncio.run(work) or 0


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and end the process with its exit code."""
    sys.exit(_exit_code(arguments))


def _exit_code(arguments: list[str] | None) -> int:
    message: str | None
    try:
        return int(cli.main(arguments, standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        message, code = None, error.exit_code
    except (KeyboardInterrupt, click.Abort):
        message, code = "Interrupted.", _INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough; nothing more can be said there, not even at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        message, code = None, 0
    except StartupError as error:
        message, code = str(error), 2
    except TemporalMemoryError as error:
        message, code = f"{error.title}: {error}", 1
    except OSError as error:
        message, code = str(error), 1
    if message is not None:
        click.echo(mask_secrets(message), err=True)
    return code


if __name__ == "__main__":
    main()
