"""Turns of chat while the service is killed with -9 again and again: lost, scored twice, stored twice.

Clients post turns with uuids of their own, at once, and ask again with the same uuid until they are answered.
Meanwhile the service's process dies at random moments and is started anew on the same database, which lives
on. The model and the evaluator are the scripted provider. In the end every count must be zero.
"""

import argparse
import asyncio
import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, the root is not on the path

from app.database.embedded import start_embedded
from app.services import DATABASE_NAME
from benchmarks.chat_provider_process import ChatProvider, run_chat_provider
from benchmarks.metrics import markdown_table
from benchmarks.service import COMMAND, clean_environment, free_port, machine_facts, stop, wait_until_live

_CLIENTS = 16
_SESSIONS = 50
_PAUSE_S = 0.2
_PATIENCE_S = 300.0


@dataclass
class _Tally:
    """What the clients saw."""

    turn_ids: dict[str, set[str]] = field(default_factory=dict)
    retries: int = 0


class _Service:
    """The service's process, which may be killed and started again at the same address."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self._port = free_port()
        self._folder = folder
        self._log = folder / "service.log"
        self._environment = clean_environment(
            {**settings, "PORT": str(self._port), "LOG_FORMAT": "json", "DATA_DIR": str(folder)}
        )
        self.url = f"http://127.0.0.1:{self._port}"
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as sink:
            process = subprocess.Popen(
                [COMMAND, "serve"],
                env=self._environment,
                cwd=self._folder,
                stdout=sink,
                stderr=sink,
                start_new_session=True,
            )
        wait_until_live(self.url, process=process, log=self._log)
        return process

    def verdicts(self) -> Counter[str]:
        """How often a verdict on each turn was stored, as the service's own log has it."""
        with self._log.open(encoding="utf-8", errors="replace") as lines:
            events = [orjson.loads(line) for line in lines if '"turn judged"' in line]
        return Counter(event["turn_id"] for event in events)

    def kill_and_start(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = self._start()


def _text(number: int) -> str:
    return f"第{number}件事：编号{number:05}的资料要在周{'一二三四五六日'[number % 7]}之前交上去"


async def _talk(numbers: Iterator[int], url: str, tally: _Tally) -> None:
    """Post turn after turn, each until it is answered; each answer is then asked for once more at times."""
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as client:
        for number in numbers:
            uuid = f"turn-{number}"
            body = {"user_id": 1 + number % _SESSIONS, "user_input": _text(number), "message_uuid": uuid}
            wanted = 2 if number % 10 == 0 else 1
            while wanted:
                try:
                    answer = await client.post("/chat", json=body)
                except httpx.TransportError:
                    answer = None
                if answer is None or answer.status_code >= 500:
                    tally.retries += 1
                    await asyncio.sleep(_PAUSE_S * random.uniform(0.5, 1.5))
                    continue
                turn = answer.raise_for_status().json()
                tally.turn_ids.setdefault(uuid, set()).add(turn["turn_id"])
                wanted -= 1


async def _kill_at_random(service: _Service, tally: _Tally, *, turns: int, times: int) -> int:
    """Kill the service at so many random points of the work, a random moment after each; how often it was."""
    killed = 0
    for share in sorted(random.uniform(0.02, 0.95) for _ in range(times)):
        while len(tally.turn_ids) < share * turns:  # noqa: ASYNC110 - plain is enough here
            await asyncio.sleep(0.01)
        await asyncio.sleep(random.uniform(0, 0.3))
        await asyncio.to_thread(service.kill_and_start)
        killed += 1
    return killed


async def _wait_until_judged(connection: "asyncpg.Connection[Any]") -> float:
    """Wait for the last score, and give the seconds it took."""
    begun = time.monotonic()
    while await connection.fetchval("SELECT count(*) FROM turns WHERE status IN ('answering', 'pending')"):
        if time.monotonic() - begun > _PATIENCE_S:
            break
        await asyncio.sleep(0.2)
    return time.monotonic() - begun


async def _count(connection: "asyncpg.Connection[Any]", query: str) -> int:
    return int(await connection.fetchval(query))


async def _run(provider: ChatProvider, folder: Path, dsn: str, *, turns: int, kills: int) -> list[Any]:
    service = _Service(folder, {"DATABASE_URL": dsn, **_upper(provider.settings)})
    tally = _Tally()
    try:
        numbers = iter(range(turns))
        talking = [asyncio.create_task(_talk(numbers, service.url, tally)) for _ in range(_CLIENTS)]
        killed, *_ = await asyncio.gather(_kill_at_random(service, tally, turns=turns, times=kills), *talking)
        connection = await asyncpg.connect(dsn)
        try:
            waited_s = await _wait_until_judged(connection)
            rows = await _figures(connection, provider, tally, turns=turns, verdicts=service.verdicts())
        finally:
            await connection.close()
    finally:
        await asyncio.to_thread(stop, service.process)
    return [
        ("turns posted", turns),
        ("service killed with -9", killed),
        ("requests that clients had to repeat", tally.retries),
        ("seconds from the last answer to the last score", waited_s),
        *rows,
    ]


async def _figures(
    connection: "asyncpg.Connection[Any]",
    provider: ChatProvider,
    tally: _Tally,
    *,
    turns: int,
    verdicts: Counter[str],
) -> list[Any]:
    rows = await connection.fetch("SELECT message_uuid, status, outcome, retention FROM turns")
    by_uuid = Counter(row["message_uuid"] for row in rows)
    seen = provider.requests()
    answered, asked = _asked_of_the_model(seen), _asked_of_the_evaluator(seen)
    stored_not_whole = await _count(
        connection,
        """
        SELECT count(*) FROM turns t WHERE retention IS DISTINCT FROM 'none' AND (
            SELECT count(*) FROM dialogues d
            WHERE d.id IN (t.user_dialogue_id, t.assistant_dialogue_id)
                AND d.score IS NOT DISTINCT FROM t.score AND d.expires_at IS NOT DISTINCT FROM t.expires_at
        ) <> 2
        """,
    )
    stored_twice = await _count(
        connection,
        "SELECT coalesce(sum(n - 1), 0) FROM (SELECT count(*) AS n FROM dialogues WHERE kind <> 'summary'"
        " GROUP BY namespace, user_id, role, content, created_at) s WHERE n > 1",
    )
    surplus = await _count(
        connection,
        "SELECT (SELECT count(*) FROM dialogues WHERE kind <> 'summary')"
        " - 2 * (SELECT count(*) FROM turns WHERE retention IS DISTINCT FROM 'none')",
    )
    return [
        ("turns with a score", sum(row["status"] == "scored" for row in rows)),
        ("verdicts in the service's log", sum(verdicts.values())),
        ("replies asked of the model again, a kill having fallen before the commit", _surplus(answered)),
        ("scores asked of the evaluator again, likewise", _surplus(asked)),
        ("**turns lost: unanswered, without a row, or never scored**", _lost(rows, tally, turns=turns)),
        ("**turns stored without both messages, score and expiry alike**", stored_not_whole),
        ("**turns scored twice: two verdicts in the log**", _surplus(verdicts)),
        ("**turns twice: two rows, or two turn_ids of one message**", _surplus(by_uuid) + _doubles(tally)),
        ("**messages stored twice**", stored_twice + max(0, surplus)),
    ]


def _lost(rows: Iterable[Any], tally: _Tally, *, turns: int) -> int:
    scored = {row["message_uuid"] for row in rows if row["status"] == "scored"}
    expected = {f"turn-{number}" for number in range(turns)}
    return len(expected - scored) + len((expected & scored) - tally.turn_ids.keys())


def _doubles(tally: _Tally) -> int:
    return sum(len(ids) - 1 for ids in tally.turn_ids.values())


def _surplus(counts: Counter[str]) -> int:
    return sum(counts.values()) - len(counts)


def _asked_of_the_evaluator(seen: dict[str, Any]) -> Counter[str]:
    """How often each message was sent to the evaluator, alone or among others."""
    texts = []
    for kind, body in zip(seen["kinds"], seen["bodies"], strict=True):
        if kind in {"evaluation", "batch"}:
            quoted = str(body["messages"][-1]["content"])
            texts += [part.partition("件事")[0] for part in quoted.split('"user": "第')[1:]]
    return Counter(texts)


def _asked_of_the_model(seen: dict[str, Any]) -> Counter[str]:
    return Counter(
        str(body["messages"][-1]["content"])
        for kind, body in zip(seen["kinds"], seen["bodies"], strict=True)
        if kind == "chat"
    )


def _upper(settings: dict[str, str]) -> dict[str, str]:
    return {name.upper(): value for name, value in settings.items()}


@contextlib.contextmanager
def _database(folder: Path) -> Iterator[str]:
    """A PostgreSQL that outlives the service."""
    with start_embedded(folder) as server:
        yield server.dsn_for(DATABASE_NAME)


def main() -> int:
    """Print the table; 1 where something was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=None, help="of the moments of the kills")
    arguments = parser.parse_args()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    random.seed(seed)
    facts = machine_facts()
    with (
        tempfile.TemporaryDirectory(prefix="memory-kills-") as folder,
        run_chat_provider() as provider,
        _database(Path(folder)) as dsn,
    ):
        provider.control({"delay_s": 0.05, "times": None})
        rows = asyncio.run(_run(provider, Path(folder), dsn, turns=arguments.turns, kills=arguments.kills))
    print(f"{facts} · seed {seed}\n")
    print(markdown_table(("", "count"), rows))
    return int(any(count for name, count in rows if name.startswith("**")))


if __name__ == "__main__":
    sys.exit(main())
