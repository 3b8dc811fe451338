"""Service processes, as a user starts them."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.doubles.fixtures import EmbeddingProvider

COMMAND = Path(sys.executable).with_name("temporal-memory")
_LISTENS = re.compile(r"listens on (http://\S+)")


def environment(settings: Mapping[str, object]) -> dict[str, str]:
    """A process's environment: what a machine gives, and these settings by lower-case name."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return kept | {name.upper(): str(value) for name, value in settings.items()}


@dataclass(frozen=True)
class ServiceProcess:
    """A running `temporal-memory serve`."""

    url: str
    client: httpx.AsyncClient
    process: "subprocess.Popen[str]"

    def kill(self) -> None:
        """As the kernel does when memory is short."""
        self.process.kill()
        self.process.wait()

    def interrupt(self) -> int:
        """Ctrl-C; the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=60)


StartService = Callable[..., AbstractAsyncContextManager[ServiceProcess]]


@pytest.fixture
def run_service(tmp_path: Path) -> Iterator[StartService]:
    """Start a service with these options and settings and reach it; what is left at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    @asynccontextmanager
    async def start(*options: str, **settings: object) -> AsyncIterator[ServiceProcess]:
        log = tmp_path / f"service{len(started)}.log"
        with log.open("w") as errors:
            process = subprocess.Popen(  # noqa: ASYNC220 - nothing else has to go on meanwhile
                [COMMAND, "serve", "--port", "0", *options],
                cwd=tmp_path,
                env=environment(settings),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        started.append(process)
        assert process.stdout is not None
        url = None
        for line in process.stdout:
            if match := _LISTENS.search(line):
                url = match[1]
            if "Ctrl-C" in line:
                break
        assert url is not None, log.read_text()
        async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
            yield ServiceProcess(url, client, process)

    yield start
    for process in started:
        # In good order first: it stops the PostgreSQL it has started.
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=30)
        process.kill()
        process.communicate()


@pytest.fixture
def with_provider(embedding_provider: EmbeddingProvider) -> dict[str, object]:
    """Settings that embed with the double, four texts a request."""
    return {
        "embedding_base_url": embedding_provider.base_url,
        "embedding_api_key": EmbeddingProvider.key,
        "embedding_dimensions": 64,
        "embedding_batch_size": 4,
    }
