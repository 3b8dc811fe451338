"""`temporal-memory serve`: a process that listens, alone or as one of several, and stops all it started."""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final, Self

import uvicorn

from app.errors import StartupError
from app.main import create_app
from app.settings import Settings, is_loopback

GRACE_S: Final = 10
# uvicorn cuts off what outlives the grace; a turn that is ended before that can still tell its client.
_FAREWELL_S: Final = 1
_KEEP_ALIVE_S: Final = 30
_BACKLOG: Final = 2048
INTERRUPTED: Final = 130


def serve(settings: Settings) -> int:
    """Serve until SIGINT or SIGTERM; the exit code.

    Raises:
        StartupError: the address cannot be had, or the services cannot be opened.
    """
    listener = bind(settings.server.host, settings.server.port)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            return runner.run(_serve_alone(settings, listener))
    finally:
        listener.close()


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster event loop, where there is one; None: Python's own."""
    try:
        import uvloop  # noqa: PLC0415 - there is none for Windows
    except ImportError:
        return None
    return uvloop.new_event_loop


def bind(host: str, port: int) -> socket.socket:
    """A socket at that address, before anything else is started.

    Raises:
        StartupError: the address cannot be had; the line says why.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise StartupError(f"HOST {host} is no address of this machine: {error.strerror}.") from None
    listener = socket.socket(family, kind, protocol)
    try:
        # What a stopped service leaves in TIME_WAIT must not keep the next one from starting.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Listening now: of two services started at once, the second is told here.
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StartupError(
            f"Cannot listen on {host} port {port}: {error.strerror}. Stop what uses it, or choose another"
            " with --port (0: any that is free)."
        ) from None
    listener.setblocking(False)
    return listener


class _Server(uvicorn.Server):
    """Says when it listens, and leaves signals to us: uvicorn raises them again before the services close."""

    def __init__(
        self, config: uvicorn.Config, *, announce: Callable[[], Awaitable[None]], give_up: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._announce = announce
        self._give_up = give_up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        await self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        farewell = asyncio.get_running_loop().call_later(GRACE_S - _FAREWELL_S, self._give_up)
        try:
            await super().shutdown(sockets=sockets)
        finally:
            farewell.cancel()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve_alone(settings: Settings, listener: socket.socket) -> int:
    with Stopping((signal.SIGINT, signal.SIGTERM)) as stopping:
        await serve_on(settings, listener, stopping=stopping, announce=partial(tell, settings, listener))
        return INTERRUPTED if signal.SIGINT in stopping.came else 0


async def serve_on(
    settings: Settings,
    listener: socket.socket,
    *,
    stopping: "Stopping",
    announce: Callable[[str], Awaitable[None]],
) -> None:
    """Serve on a socket until told to stop.

    Args:
        settings: of this process.
        listener: listens already.
        stopping: ends the server in good order, or its start.
        announce: told the name of the embedding model when requests are taken.

    Raises:
        StartupError: the services cannot be opened.
    """
    app = create_app(settings)

    async def announce_model() -> None:
        details = (await app.state.services.health.check_ready()).details
        await announce(str(details["embedding_model"]))

    def give_up_turns() -> None:
        app.state.services.chat.give_up()

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        # Opened here instead, so that what keeps it from opening is raised and not only logged.
        lifespan="off",
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    server = _Server(config, announce=announce_model, give_up=give_up_turns)
    stopping.ends(server)
    with contextlib.suppress(asyncio.CancelledError):
        async with app.router.lifespan_context(app):
            await server.serve(sockets=[listener])


class Stopping:
    """Makes signals end a server in good order, or the task that starts it; for use as a context manager."""

    def __init__(self, numbers: Sequence[signal.Signals]) -> None:
        """Args: numbers: the signals that end it; a second SIGINT does not wait for requests."""
        self._numbers = numbers
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[object] | None = None
        self.came: list[signal.Signals] = []

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in self._numbers:
            loop.add_signal_handler(number, self.stop, number)
        return self

    def __exit__(self, *_error: object) -> None:
        loop = asyncio.get_running_loop()
        for number in self._numbers:
            loop.remove_signal_handler(number)

    def ends(self, server: uvicorn.Server) -> None:
        """The server that is to end, once it has started."""
        self._server = server

    def stop(self, number: signal.Signals) -> None:
        """End it now, as this signal does."""
        self.came.append(number)
        if self._server is not None and self._server.started:
            # The first one lets requests end, a second SIGINT does not wait for them.
            self._server.handle_exit(number, None)
        elif self._task is not None and len(self.came) == 1:
            self._task.cancel()


async def tell(settings: Settings, listener: socket.socket, model: str) -> None:
    """Say on standard output where the service is."""
    host, port = listener.getsockname()[:2]
    # Nobody may be reading any more; the service is there all the same.
    with contextlib.suppress(OSError):
        sys.stdout.write(greeting(settings, host=host, port=port, model=model))
        sys.stdout.flush()


def greeting(settings: Settings, *, host: str, port: int, model: str) -> str:
    """Where the service is, and a first request to try; no secret is in it."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - the address is only read
    url = f"http://[{reached}]:{port}" if ":" in reached else f"http://{reached}:{port}"
    keyed = bool(settings.server.api_keys)
    headers = "-H 'Content-Type: application/json'" + (" -H 'Authorization: Bearer <key>'" if keyed else "")
    if settings.database.url is None:
        database = f"an embedded PostgreSQL under {settings.database.data_dir.resolve()}"
    else:
        database = "the PostgreSQL of DATABASE_URL"
    if keyed:
        access = "Each request needs a key of API_KEYS; put it in the place of <key>."
    elif is_loopback(host):
        access = "No API_KEYS are set: this machine only, and no key until temporal-memory keys makes one."
    elif settings.server.allow_anonymous:
        access = (
            "ALLOW_ANONYMOUS is set: everybody who reaches it, no key until temporal-memory keys makes one."
        )
    else:
        access = "Each request needs a key that temporal-memory keys has made."
    message = (
        '{"user_id": 123456789, "role": "user", "content": "我的订单号是ORD123456", "sender_name": "小明"}'
    )
    question = '{"user_id": 123456789, "query": "我的订单号是多少？"}'
    return f"""
Temporal Memory listens on {url}
  documentation  {url}/docs
  database       {database}
  embeddings     {model}
  access         {access}

Try it:
  curl -s {url}/dialogues {headers} -d '{message}'
  curl -s {url}/memory/search {headers} -d '{question}'

Ctrl-C stops it.
"""
