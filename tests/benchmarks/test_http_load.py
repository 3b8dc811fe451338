import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from benchmarks.http_load import Load, Request, send_all


class _Server:
    """Answers every request with its own body, and counts how many are under way."""

    def __init__(self, status: str = "200 OK") -> None:
        self.status = status
        self.bodies: list[bytes] = []
        self.most_at_once = 0
        self._at_once = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):  # the client has gone
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                self._at_once += 1
                self.most_at_once = max(self.most_at_once, self._at_once)
                await asyncio.sleep(0.001)
                self._at_once -= 1
                self.bodies.append(body)
                writer.write(f"HTTP/1.1 {self.status}\r\nContent-Length: {length}\r\n\r\n".encode() + body)
        writer.close()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        async with await asyncio.start_server(self.serve, "127.0.0.1", 0) as server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_every_request_is_sent_once_and_no_more_at_once_than_asked(concurrency: int) -> None:
    server = _Server()
    async with server.running() as url:
        load = await send_all(
            url, [Request("/x", b"%d" % number) for number in range(20)], concurrency=concurrency
        )
    assert sorted(server.bodies, key=int) == [b"%d" % number for number in range(20)]
    assert server.most_at_once == concurrency
    assert len(load.latencies_ms) == 20
    assert all(ms > 0 for ms in load.latencies_ms)


async def test_an_error_is_no_figure() -> None:
    server = _Server("500 Internal Server Error")
    async with server.running() as url:
        with pytest.raises(RuntimeError, match=r"POST /x answered http/1\.1 500"):
            await send_all(url, [Request("/x", b"{}")], concurrency=1)


def test_rates_are_over_the_whole_wall_time() -> None:
    load = Load([10.0, 20.0, 30.0], wall_s=0.03)
    assert load.per_second == 100
    assert load.at(0.5) == 20
