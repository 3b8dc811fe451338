"""The scripted chat provider of the tests, as a process of its own for as long as a measurement lasts."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from benchmarks.service import ROOT, clean_environment

MODEL = "scripted"
_KEY = "sk-scripted"


@dataclass(frozen=True)
class ChatProvider:
    """A provider that speaks the OpenAI protocol; its module's docstring says what it can be told."""

    origin: str

    @property
    def settings(self) -> dict[str, str]:
        """Settings of a service that chats with it, is judged by it and has its summaries written by it."""
        return {
            "chat_base_url": f"{self.origin}/v1",
            "chat_api_key": _KEY,
            "chat_model": MODEL,
        }

    @property
    def authorization(self) -> str:
        return f"Bearer {_KEY}"

    def control(self, *rules: dict[str, Any]) -> None:
        """Replace its rules; none: it behaves, and answers at once."""
        httpx.post(f"{self.origin}/_control", json={"rules": rules}, trust_env=False).raise_for_status()

    def requests(self) -> dict[str, Any]:
        """All that it was asked."""
        answer = httpx.get(f"{self.origin}/_requests", timeout=120, trust_env=False)
        seen: dict[str, Any] = answer.raise_for_status().json()
        return seen


@contextlib.contextmanager
def run_chat_provider() -> Iterator[ChatProvider]:
    """A provider on a free port, killed when the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.doubles.chat_provider", "--key", _KEY],
        cwd=ROOT,
        env=clean_environment({}),
        stdout=subprocess.PIPE,
        # It complains of every client that was killed.
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        if process.stdout is None or not (port := process.stdout.readline().strip()):
            raise RuntimeError("the chat provider did not start")
        yield ChatProvider(f"http://127.0.0.1:{port}")
    finally:
        process.kill()
        process.communicate()
