"""What POST /chat costs above the bare call to the model, and what evaluation adds to it.

A scripted model that takes a fixed time is asked in turn directly and through the service, with evaluation
and without, each service a process of its own on a database of its own; pairs are compared, so that what else
the machine does falls on both.
"""

import argparse
import contextlib
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, the root is not on the path

from benchmarks.chat_provider_process import MODEL, ChatProvider, run_chat_provider
from benchmarks.metrics import markdown_table, percentile
from benchmarks.service import machine_facts, run_service

_WITH, _WITHOUT = "POST /chat", "POST /chat, EVALUATION_ENABLED=false"
_BARE = "the model, asked directly"
_WARM_UP = 10
_PATIENCE_S = 60.0
_USER = 10001
_HISTORY = 200
_TOPICS = ("部署", "会议", "午饭", "报告", "旅行", "电影", "代码", "账单", "天气", "训练")


def _text(number: int) -> str:
    """What is said: never the same twice, so that each turn is judged by a call."""
    return f"第{number}次说到{_TOPICS[number % len(_TOPICS)]}：编号{number:05}的事情还要再跟进"


def _messages() -> list[dict[str, Any]]:
    return [
        {
            "user_id": _USER,
            "role": role,
            "content": f"{_text(number)}（{role}）",
            "created_at": 1_760_000_000 + number * 600,
        }
        for number in range(_HISTORY)
        for role in ("user", "assistant")
    ]


def _client(url: str, **headers: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False)


def _timed_ms(client: httpx.Client, path: str, body: object) -> float:
    begun = time.perf_counter()
    client.post(path, json=body).raise_for_status()
    return (time.perf_counter() - begun) * 1000


def _wait_until_idle(client: httpx.Client) -> None:
    """Return when every turn is judged and every message has its vector."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        stats = client.get("/stats").raise_for_status().json()
        if not stats["turns"]["pending"] and not stats["embeddings"]["pending"]:
            return
        if time.monotonic() > deadline:
            raise TimeoutError("turns still wait for their score, or messages for their vector")
        time.sleep(0.02)


@contextlib.contextmanager
def _service(provider: ChatProvider, folder: Path, *, evaluation: bool) -> Iterator[httpx.Client]:
    """A service with a history of one user, all embedded."""
    folder.mkdir()
    settings = {name.upper(): value for name, value in provider.settings.items()}
    settings["EVALUATION_ENABLED"] = str(evaluation).lower()
    with run_service(folder, settings=settings) as service, _client(service.url) as client:
        client.post("/dialogues/batch", json={"dialogues": _messages()}).raise_for_status()
        _wait_until_idle(client)
        yield client


def _measure(provider: ChatProvider, folder: Path, *, turns: int, pause: bool) -> dict[str, list[float]]:
    """Milliseconds of each call, by who was asked, in the order of rounds."""
    latencies: dict[str, list[float]] = {_BARE: [], _WITH: [], _WITHOUT: []}
    with (
        _service(provider, folder / "with", evaluation=True) as judged,
        _service(provider, folder / "without", evaluation=False) as unjudged,
        _client(provider.origin, authorization=provider.authorization) as model,
    ):
        for number in range(_WARM_UP + turns):
            text = _text(number)
            chat = {"user_id": _USER, "user_input": text}
            # The service reads the model's answer as it comes; so does who asks directly.
            bare = {"model": MODEL, "messages": [{"role": "user", "content": text}], "stream": True}
            asked = [
                (_BARE, model, "/v1/chat/completions", bare),
                (_WITH, judged, "/chat", chat),
                (_WITHOUT, unjudged, "/chat", chat),
            ]
            if pause:
                _wait_until_idle(judged)
                _wait_until_idle(unjudged)
            # Each stands first, second and last as often.
            for name, client, path, body in itertools.islice(
                itertools.cycle(asked), number % 3, number % 3 + 3
            ):
                latency_ms = _timed_ms(client, path, body)
                if number >= _WARM_UP:
                    latencies[name].append(latency_ms)
    return latencies


def _rows(latencies: dict[str, list[float]]) -> list[tuple[object, ...]]:
    def differences(of: str, above: str) -> list[float]:
        return [one - other for one, other in zip(latencies[of], latencies[above], strict=True)]

    figures = {
        **latencies,
        "overhead of /chat over the model (pairs)": differences(_WITH, _BARE),
        "what evaluation adds (pairs)": differences(_WITH, _WITHOUT),
    }
    return [(name, percentile(values, 0.5), percentile(values, 0.95)) for name, values in figures.items()]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--model-ms", type=float, default=100, help="how long the model takes (default 100)")
    parser.add_argument(
        "--back-to-back",
        action="store_true",
        help="ask again before what the last turn has left to do is done, as no reader of an answer does",
    )
    arguments = parser.parse_args()
    facts = machine_facts()
    with tempfile.TemporaryDirectory(prefix="memory-chat-") as folder, run_chat_provider() as provider:
        provider.control({"delay_s": arguments.model_ms / 1000, "times": None})
        latencies = _measure(provider, Path(folder), turns=arguments.turns, pause=not arguments.back_to_back)
    print(f"{facts} · {arguments.turns} rounds · the model takes {arguments.model_ms:.0f} ms\n")
    print(markdown_table(("ms", "p50", "p95"), _rows(latencies)))


if __name__ == "__main__":
    main()
