"""`temporal-memory serve`: one process that listens, and stops all it has started."""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import uvicorn

from app.errors import StartupError
from app.main import create_app
from app.settings import Settings, is_loopback

_GRACE_S: Final = 10
_KEEP_ALIVE_S: Final = 30
_BACKLOG: Final = 2048
_INTERRUPTED: Final = 130


def serve(settings: Settings) -> int:
    """Serve until SIGINT or SIGTERM; the exit code.

    Raises:
        StartupError: the address cannot be had, or the services cannot be opened.
    """
    listener = bind(settings.server.host, settings.server.port)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(settings, listener))
    finally:
        listener.close()


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

    def __init__(self, config: uvicorn.Config, *, announce: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        await self._announce()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(settings: Settings, listener: socket.socket) -> int:
    app = create_app(settings)
    host, port = listener.getsockname()[:2]

    async def announce() -> None:
        details = (await app.state.services.health.check_ready()).details
        text = greeting(settings, host=host, port=port, model=str(details["embedding_model"]))
        # Nobody may be reading any more; the service is there all the same.
        with contextlib.suppress(OSError):
            sys.stdout.write(text)
            sys.stdout.flush()

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        # Opened here instead, so that what keeps it from opening is raised and not only logged.
        lifespan="off",
        timeout_graceful_shutdown=_GRACE_S,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    server = _Server(config, announce=announce)
    with _stopping(server) as interrupted, contextlib.suppress(asyncio.CancelledError):
        async with app.router.lifespan_context(app):
            await server.serve(sockets=[listener])
    return _INTERRUPTED if interrupted() else 0


@contextlib.contextmanager
def _stopping(server: _Server) -> Iterator[Callable[[], bool]]:
    """SIGINT and SIGTERM end the server in good order, or its start; gives whether SIGINT came."""
    loop = asyncio.get_running_loop()
    this = asyncio.current_task()
    came: list[int] = []

    def stop(number: signal.Signals) -> None:
        came.append(number)
        if server.started:
            # The first one lets requests end, a second SIGINT does not wait for them.
            server.handle_exit(number, None)
        elif this is not None and len(came) == 1:
            this.cancel()

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, stop, number)
    try:
        yield lambda: signal.SIGINT in came
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


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
        access = "No API_KEYS are set: it answers this machine only, without a key."
    else:
        access = "ALLOW_ANONYMOUS is set: it answers everybody who reaches it, without a key."
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


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - there is none for Windows
    except ImportError:
        return None
    return uvloop.new_event_loop
