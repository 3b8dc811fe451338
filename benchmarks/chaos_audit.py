"""The end of the chaos run: queues drain, and every row of every table is held against the ledger."""

import asyncio
import time
from collections import Counter
from typing import Any

import httpx

from app.dialogues.indexed_text import indexed_text
from benchmarks.chaos_clients import Client
from benchmarks.chaos_ledger import POISON, TOKEN, Ledger, Session, check_listed
from tests.doubles.embedding_provider import embed

_DRAIN_LIMIT_S = 420.0
_WAITING = {
    "messages that wait for a vector": "SELECT count(*) FROM embedding_jobs",
    "messages pending without a job": "SELECT count(*) FROM dialogues WHERE embedding_status = 'pending'",
    "turns that wait for an answer or a score": (
        "SELECT count(*) FROM turns WHERE status IN ('answering', 'pending')"
    ),
    "messages that wait to be read for corrections": "SELECT count(*) FROM correction_jobs",
}
_ORPHANS = (
    "SELECT '{0}' AS place, dialogue_id FROM {0} t WHERE dialogue_id IS NOT NULL"
    " AND NOT EXISTS (SELECT FROM dialogues d WHERE d.id = t.dialogue_id)"
)
_ALIKE = 0.99

Connection = Any


async def wait_until_drained(connection: Connection, ledger: Ledger) -> float:
    """Wait for the last row of every queue, and give the seconds it took; what is left is a violation."""
    begun = time.monotonic()
    while True:
        left = {name: await connection.fetchval(query) for name, query in _WAITING.items()}
        waited_s = time.monotonic() - begun
        if not any(left.values()):
            return waited_s
        if waited_s > _DRAIN_LIMIT_S:
            for name, rows in left.items():
                if rows:
                    ledger.accuse(f"never done: {name}", str(rows))
            return waited_s
        await asyncio.sleep(0.5)


async def audit(connection: Connection, ledger: Ledger, reader: dict[str, Client], urls: list[str]) -> None:
    """Hold the database and both services' words against the ledger.

    Args:
        connection: to the database.
        ledger: of the run.
        reader: by namespace, who asks the services for pages.
        urls: of the services.
    """
    for session in ledger.sessions:
        check_listed(ledger, session, await reader[session.namespace].list_all(session))
    rows = await connection.fetch(
        "SELECT id, namespace, user_id, group_id, role, kind, content, sender_name, message_uuid, score,"
        " corrects, expires_at, embedding_status, embedding::real[] AS vector FROM dialogues ORDER BY id"
    )
    _check_dialogues(ledger, rows)
    _check_vectors(ledger, rows)
    await _check_turns(connection, ledger, rows)
    await _check_windows(connection, ledger)
    await _check_counts(ledger, rows, reader)
    await _check_gone(connection, ledger)
    for table in ("embedding_jobs", "correction_jobs", "summaries", "window_messages"):
        for row in await connection.fetch(_ORPHANS.format(table)):
            ledger.accuse(f"rows of {table} whose message is gone", str(row["dialogue_id"]))
    # Who is killed between writing them and looking again leaves them to the daily sweep: an id and a time.
    orphans = len(await connection.fetch(_ORPHANS.format("retrievals")))
    ledger.tally["retrievals of deleted messages, left to the daily sweep"] = orphans
    await _check_health(ledger, rows, urls)
    # At last, since what is not there would be stored by it.
    for session in ledger.sessions:
        for message in session.messages.values():
            if message.name:
                await reader[session.namespace].repeat(session, message)
        for turn in session.turns.values():
            if turn.turn_id is not None:
                await reader[session.namespace].ask_again(session, turn)


def _place(row: Any) -> tuple[str, int, int | None]:
    return row["namespace"], row["user_id"], row["group_id"]


def _place_of(session: Session) -> tuple[str, int, int | None]:
    return session.namespace, session.user_id, session.group_id


def _check_dialogues(ledger: Ledger, rows: list[Any]) -> None:
    """Each acknowledged message is one row of its session; nobody else's row is there."""
    said = Counter((_place(row), row["content"]) for row in rows if row["role"] == "user")
    known = set()
    for session in ledger.sessions:
        for message in session.messages.values():
            key = (_place_of(session), message.content)
            known.add(key)
            if said[key] != 1:
                ledger.accuse(
                    "acknowledged messages not there once", f"{session.key} {message}: {said[key]} times"
                )
        known |= {(_place_of(session), turn.content) for turn in session.turns.values()}
    for place, content in said.keys() - known:
        ledger.accuse("messages that nobody wrote, or that are gone", f"{place}: {content}")
    uuids = Counter((row["namespace"], row["message_uuid"]) for row in rows)
    for uuid, times in uuids.items():
        if times > 1:
            ledger.accuse("two rows of one uuid", str(uuid))
    ledger.tally["messages stored at the end"] = len(rows)


def _check_vectors(ledger: Ledger, rows: list[Any]) -> None:
    """Each message has the vector of its text, or has failed for the reason that we know.

    What a provider refuses is tried once more, cut to half: a vector of the half without poison is in order.
    """
    for row in rows:
        is_poison = POISON in row["content"]
        if row["embedding_status"] == "failed":
            kind = "vectors refused for good, as they had to be" if is_poison else "vectors given up"
            ledger.tally[kind] += 1
            if not is_poison:
                ledger.accuse(
                    "vectors given up for a fault of the provider's", f"{row['id']}: {row['content']}"
                )
        elif row["embedding_status"] == "ready" and not is_poison:
            wanted = embed(indexed_text(row["content"], row["sender_name"]), len(row["vector"]))
            alike = sum(one * other for one, other in zip(wanted, row["vector"], strict=True))
            if alike < _ALIKE:
                ledger.accuse("vectors of another text", f"{row['id']}: {alike:.3f} {row['content']}")


async def _check_turns(connection: Connection, ledger: Ledger, rows: list[Any]) -> None:
    """Each turn is one row, judged or kept in full, with its two messages or none, as its score says."""
    turns = await connection.fetch("SELECT * FROM turns")
    by_uuid: dict[tuple[str, str], list[Any]] = {}
    for turn in turns:
        by_uuid.setdefault((turn["namespace"], turn["message_uuid"]), []).append(turn)
    by_id = {row["id"]: row for row in rows}
    users = Counter((_place(row), row["content"]) for row in rows if row["role"] == "user")
    # A verdict does not take back what has corrected another message.
    correcting = {(_place(row), row["content"]) for row in rows if row["corrects"] is not None}
    ledger.tally["turns kept before they were judged"] = sum(turn["kept_early"] for turn in turns)
    for session in ledger.sessions:
        for told in session.turns.values():
            found = by_uuid.get((session.namespace, told.message_uuid), [])
            if len(found) != 1 or (told.turn_id and found[0]["turn_id"] != told.turn_id):
                ledger.accuse("turns not there once", f"{session.key} {told}: {found}")
                continue
            turn = found[0]
            outcome = f"turns {turn['outcome'] or turn['status']}"
            ledger.tally[outcome] += 1
            ledger.tally[f"turns judged: {turn['retention'] or 'kept in full'}"] += 1
            key = (_place_of(session), told.content)
            kept = users[key]
            expected = 0 if turn["retention"] == "none" and key not in correcting else 1
            if kept != expected:
                ledger.accuse(
                    "turns kept otherwise than scored", f"{session.key} {told.token} {turn}: {kept} times"
                )
            if told.reply is not None and turn["reply"] != told.reply:
                ledger.accuse("turns with another reply than told", f"{session.key} {told}: {turn['reply']}")
            if told.turn_id is None or not expected:
                continue
            halves = [by_id.get(turn["user_dialogue_id"]), by_id.get(turn["assistant_dialogue_id"])]
            if None in halves or any(half["score"] != turn["score"] for half in halves if half):
                ledger.accuse("turns stored without both messages and their score", f"{session.key} {turn}")


async def _check_counts(ledger: Ledger, rows: list[Any], reader: dict[str, Client]) -> None:
    """What the services count in sessions and in all is what is there."""
    for namespace, client in reader.items():
        held = Counter(
            _place(row) for row in rows if row["namespace"] == namespace and row["kind"] != "summary"
        )
        told: dict[tuple[str, int, int | None], int] = {}
        params: dict[str, Any] = {"limit": 100}
        while True:
            page = (await client.send("GET", "/sessions", None, **params)).body
            told |= {
                (namespace, one["user_id"], one["group_id"]): one["dialogues"]
                for one in page["sessions"]
                if one["dialogues"]
            }
            if page["next_cursor"] is None:
                break
            params["cursor"] = page["next_cursor"]
        if told != held:
            ledger.accuse("sessions counted wrongly", f"{namespace}: {told} is {dict(held)}")


async def _check_windows(connection: Connection, ledger: Ledger) -> None:
    """What was said last stands in its session's window, and nothing stands in one twice."""
    windows: dict[tuple[str, int, int | None], set[str]] = {}
    for row in await connection.fetch("SELECT namespace, user_id, group_id, content FROM window_messages"):
        windows.setdefault(_place(row), set()).add(row["content"])
    for session in ledger.sessions:
        said = {message.token: message.content for message in session.messages.values() if message.name}
        said |= {turn.token: turn.content for turn in session.turns.values() if turn.turn_id is not None}
        if said and said[max(said)] not in windows.get(_place_of(session), set()):
            ledger.accuse("said last, and not in the window", f"{session.key} {said[max(said)]}")
    for row in await connection.fetch(
        "SELECT namespace, user_id, group_id, role, content, count(*) AS times FROM window_messages"
        " GROUP BY 1, 2, 3, 4, 5 HAVING count(*) > 1"
    ):
        if row["role"] == "user":
            ledger.accuse("messages twice in a window", str(dict(row)))


async def _check_gone(connection: Connection, ledger: Ledger) -> None:
    """Nothing of an erased session stands in any table; no message is one that was deleted."""
    tables = await connection.fetch(
        "SELECT table_name AS name FROM information_schema.tables"
        " WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"
    )
    for table in tables:
        for row in await connection.fetch(f"SELECT t::text AS row FROM {table['name']} t"):
            for token in ledger.erased.intersection(TOKEN.findall(row["row"])):
                ledger.accuse(f"erased, and back in {table['name']}", f"{token}: {row['row'][:300]}")
    for table, column in (
        ("dialogues", "content"),
        ("window_messages", "content"),
        ("turns", "user_content"),
    ):
        for row in await connection.fetch(f"SELECT {column} AS content FROM {table}"):
            if row["content"] in ledger.deleted:
                ledger.accuse(f"deleted or changed, and back in {table}", row["content"])
    # A reply may quote what is gone; the scripted model's summaries quote users only.
    for row in await connection.fetch("SELECT content FROM summaries"):
        for content in ledger.deleted:
            if content in row["content"]:
                ledger.accuse("deleted or changed, and told by a summary", f"{content}: {row['content']}")


async def _check_health(ledger: Ledger, rows: list[Any], urls: list[str]) -> None:
    """Both services say that they are ready, with the numbers that the tables hold."""
    failed = sum(row["embedding_status"] == "failed" for row in rows)
    async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
        for url in urls:
            ready = await client.get(f"{url}/health/ready")
            details = ready.json()["details"]
            told = {
                key: details.get(key) for key in ("embeddings_pending", "embeddings_failed", "turns_pending")
            }
            if ready.status_code != 200 or told != {
                "embeddings_pending": 0,
                "embeddings_failed": failed,
                "turns_pending": 0,
            }:
                ledger.accuse("health that did not tell the truth", f"{url}: {ready.text}")
            metrics = (await client.get(f"{url}/metrics")).text.splitlines()
            for line in ("memory_embeddings_pending 0.0", f"memory_embeddings_failed {float(failed)}"):
                if line not in metrics:
                    ledger.accuse("metrics that did not tell the truth", f"{url}: no {line}")
