"""`temporal-memory serve --workers N`: a parent that owns socket and database, and N processes that serve.

Signals are the parent's: a worker is stopped by SIGTERM from it, or by its end. One that dies is replaced.
"""

import asyncio
import multiprocessing
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Final

from prometheus_client.multiprocess import mark_process_dead

from app.clock import monotonic_s
from app.commands.serving import GRACE_S, INTERRUPTED, Stopping, bind, loop_factory, serve_on, tell
from app.errors import StartupError
from app.services import migrate_url, open_database_url
from app.settings import Settings
from app.telemetry import configure_logging, get_logger

log = get_logger(__name__)

# prometheus_client reads it when it is imported; a worker then counts in files that all workers read.
_METRICS_DIR: Final = "PROMETHEUS_MULTIPROC_DIR"
# Requests get their grace; then what is open is closed, an embedded database among it.
_STOP_LIMIT_S: Final = GRACE_S + 30
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 30.0
_STABLE_AFTER_S: Final = 60.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

_SPAWN = multiprocessing.get_context("spawn")


def serve_with_workers(settings: Settings, count: int) -> int:
    """Serve with that many processes until SIGINT or SIGTERM; the exit code.

    Raises:
        StartupError: the address cannot be had, or the first worker does not come up.
    """
    listener = bind(settings.server.host, settings.server.port)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_Supervisor(settings, listener, count).run())
    finally:
        listener.close()


class _Worker:
    """A process that serves, as its parent sees it."""

    def __init__(self, settings: Settings, listener: socket.socket) -> None:
        self._told, telling = _SPAWN.Pipe(duplex=False)
        self._process = _SPAWN.Process(target=_work, args=(settings, listener, telling), daemon=True)
        # What is sent before it can answer signals waits for it, and the terminal's Ctrl-C is the parent's.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        telling.close()
        self.pid = self._process.pid

    async def listens(self) -> str:
        """The name of its embedding model, when it takes requests.

        Raises:
            StartupError: it does not come up; the line says why.
        """
        await _readable(self._told.fileno())
        try:
            is_up, text = self._told.recv()
        except EOFError:
            raise StartupError(f"A worker ended with {await self.ended()} while it started.") from None
        finally:
            self._told.close()
        if not is_up:
            raise StartupError(text)
        return str(text)

    async def ended(self) -> int | None:
        """Its exit code, when it has ended; less than 0: the signal that killed it."""
        await _readable(self._process.sentinel)
        self._process.join()
        return self._process.exitcode

    def stop(self) -> None:
        """Let it end in good order."""
        self._process.terminate()

    def kill(self) -> None:
        """Do not wait any longer."""
        self._process.kill()


class _Supervisor:
    """Starts workers, replaces those that die, stops them all."""

    def __init__(self, settings: Settings, listener: socket.socket, count: int) -> None:
        self._settings = settings
        self._listener = listener
        self._count = count
        self._workers: set[_Worker] = set()
        self._interrupts: list[signal.Signals] = []
        self._stopped = asyncio.Event()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._interrupt, number)
        try:
            # A signal ends what is under way at any point; whoever was started is stopped by then.
            serving = asyncio.create_task(self._serve())
            stopped = asyncio.create_task(self._stopped.wait())
            await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
        return INTERRUPTED if signal.SIGINT in self._interrupts else 0

    async def _serve(self) -> None:
        async with open_database_url(self._settings.database) as url:
            await migrate_url(self._settings, url)
            with _metrics_folder():
                try:
                    # One first: what keeps it from starting is told once, and a model is fetched once.
                    first, model = await self._start()
                    others = await asyncio.gather(*(self._start() for _ in range(self._count - 1)))
                    await tell(self._settings, self._listener, model)
                    async with asyncio.TaskGroup() as group:
                        for worker in (first, *(other for other, _ in others)):
                            group.create_task(self._keep(worker))
                finally:
                    await self._stop_all()

    async def _start(self) -> tuple[_Worker, str]:
        worker = _Worker(self._settings, self._listener)
        self._workers.add(worker)
        try:
            return worker, await worker.listens()
        except StartupError:
            await worker.ended()
            self._workers.discard(worker)
            raise

    async def _keep(self, worker: _Worker) -> None:
        """Have one worker, as long as we run."""
        pause_s = _FIRST_PAUSE_S
        while True:
            began = monotonic_s()
            code = await worker.ended()
            self._workers.discard(worker)
            log.error("worker ended, and is replaced", worker=worker.pid, exit_code=code)
            # What it had in use, nobody has in use any more.
            mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]
            while True:
                if monotonic_s() - began > _STABLE_AFTER_S:
                    pause_s = _FIRST_PAUSE_S
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                try:
                    worker, _ = await self._start()
                except (StartupError, OSError) as error:
                    log.error("worker does not start", reason=str(error))  # noqa: TRY400 - the line says it all
                else:
                    break

    async def _stop_all(self) -> None:
        # As long as we hold it, new connections would wait for workers that take none any more.
        self._listener.close()
        for worker in self._workers:
            worker.stop()
        ends = [asyncio.create_task(worker.ended()) for worker in self._workers]
        if not ends:
            return
        _, left = await asyncio.wait(ends, timeout=_STOP_LIMIT_S)
        for worker in self._workers if left else ():
            worker.kill()
        await asyncio.gather(*ends)

    def _interrupt(self, number: signal.Signals) -> None:
        self._interrupts.append(number)
        self._stopped.set()
        if self._interrupts.count(signal.SIGINT) > 1:
            for worker in self._workers:
                worker.kill()


def _work(settings: Settings, listener: socket.socket, telling: Connection) -> None:
    """A worker's whole life."""
    configure_logging(level=settings.log.level, json_lines=settings.log.json_lines)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve_as_worker(settings, listener, telling))
    except StartupError as error:
        with suppress(OSError):
            telling.send((False, str(error)))


async def _serve_as_worker(settings: Settings, listener: socket.socket, telling: Connection) -> None:
    async def announce(model: str) -> None:
        with suppress(OSError):
            telling.send((True, model))
        telling.close()

    loop = asyncio.get_running_loop()
    # Ctrl-C reaches the whole terminal; the parent passes on what it means.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    with Stopping((signal.SIGTERM,)) as stopping:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        parent = multiprocessing.parent_process()
        if parent is not None:
            loop.add_reader(parent.sentinel, _stop_orphan, parent.sentinel, stopping)
        await serve_on(settings, listener, stopping=stopping, announce=announce)


def _stop_orphan(sentinel: int, stopping: Stopping) -> None:
    asyncio.get_running_loop().remove_reader(sentinel)
    stopping.stop(signal.SIGTERM)


@contextmanager
def _metrics_folder() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="temporal-memory-metrics-") as folder:
        os.environ[_METRICS_DIR] = folder
        try:
            yield
        finally:
            del os.environ[_METRICS_DIR]


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()

    def tell_once() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(descriptor, tell_once)
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)
