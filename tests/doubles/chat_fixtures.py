"""Fixtures that start the chat provider."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_REPOSITORY = Path(__file__).parents[2]


class ChatProvider:
    """The running double: where it is, what it saw, and how it is told to fail."""

    key = "sk-test-chat-0123456789"
    model = "test/chat-model"

    def __init__(self, port: int) -> None:
        self.origin = f"http://127.0.0.1:{port}"
        self.base_url = f"{self.origin}/v1"

    def control(self, *rules: dict[str, Any]) -> None:
        """Replace the rules; none: behave. The double's docstring lists them."""
        self._call("/_control", {"rules": rules})

    def requests(self) -> dict[str, Any]:
        """What it was asked since the test began."""
        return self._call("/_requests")

    def reset(self) -> None:
        self._call("/_reset", {})

    def _call(self, path: str, body: object = None) -> dict[str, Any]:
        content = None if body is None else json.dumps(body).encode()
        # No proxy of the environment stands between a test and its double.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(urllib.request.Request(self.origin + path, content), timeout=30) as answer:  # noqa: S310
            result: dict[str, Any] = json.load(answer)
        return result


@pytest.fixture(scope="session")
def _chat_provider_process() -> Iterator[ChatProvider]:
    command = [sys.executable, "-m", "tests.doubles.chat_provider", "--key", ChatProvider.key]
    with subprocess.Popen(command, cwd=_REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield ChatProvider(int(process.stdout.readline()))
        process.kill()


@pytest.fixture
def chat_provider(_chat_provider_process: ChatProvider) -> ChatProvider:
    """A provider without faults and with an empty log."""
    _chat_provider_process.reset()
    return _chat_provider_process
