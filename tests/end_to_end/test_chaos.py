"""The chaos run, in short: no promise is broken; and the audit at its end sees what is."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from app.database.embedded import EmbeddedPostgres
from benchmarks.chaos import run_chaos
from benchmarks.chaos_audit import audit, wait_until_drained
from benchmarks.chaos_clients import Client
from benchmarks.chaos_ledger import Ledger, Message, Session, Turn
from tests.conftest import LiveFactory, LiveService, execute
from tests.doubles.chat_fixtures import ChatProvider
from tests.doubles.fixtures import EmbeddingProvider
from tests.live import add
from tests.talk import chat_settings, judged, say

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes as Linux tells")

_SECONDS = 20.0
_KEY = "key-of-the-environment"


def test_a_short_chaos_breaks_no_promise(tmp_path: Path) -> None:
    ledger, _ = run_chaos(seconds=_SECONDS, users=1, seed=20261207, logs=tmp_path)
    assert ledger.violations == {}
    assert ledger.tally["messages stored at the end"] > 0
    assert any(name.startswith("fault: ") for name in ledger.tally)


Tamper = Callable[[asyncpg.Connection, Ledger], Awaitable[object]]


async def _lose_a_message(connection: asyncpg.Connection, _: Ledger) -> None:
    await connection.execute("DELETE FROM dialogues WHERE content LIKE '%T9000001X'")


async def _store_twice(connection: asyncpg.Connection, _: Ledger) -> None:
    await connection.execute(
        "INSERT INTO dialogues (user_id, namespace, chat_type, message_uuid, written_hash, token_count, role,"
        " content, terms, embedding_status) SELECT user_id, namespace, chat_type, 'twice', written_hash,"
        " token_count, role, content, terms, 'failed' FROM dialogues WHERE content LIKE '%T9000001X'"
    )


async def _change_order(connection: asyncpg.Connection, _: Ledger) -> None:
    await connection.execute(
        "UPDATE dialogues SET created_at = created_at + interval '1 hour' WHERE content LIKE '%T9000001X'"
    )


async def _forget_an_erasure(_: asyncpg.Connection, ledger: Ledger) -> None:
    # As if the erasure of all that is there had been acknowledged.
    ledger.erase(ledger.sessions)


async def _forget_a_deletion(_: asyncpg.Connection, ledger: Ledger) -> None:
    ledger.delete(ledger.sessions[0], "T9000001X")


async def _give_up_a_vector(connection: asyncpg.Connection, _: Ledger) -> None:
    await connection.execute(
        "UPDATE dialogues SET embedding = NULL, embedding_model_id = NULL, embedding_status = 'failed'"
        " WHERE content LIKE '%T9000001X'"
    )


async def _swap_vectors(connection: asyncpg.Connection, _: Ledger) -> None:
    await connection.execute(
        "UPDATE dialogues SET embedding = (SELECT embedding FROM dialogues WHERE content LIKE '%T9000002X')"
        " WHERE content LIKE '%T9000001X'"
    )


async def _lose_half_a_turn(connection: asyncpg.Connection, _: Ledger) -> None:
    await connection.execute("DELETE FROM dialogues WHERE role = 'assistant'")


async def _lose_a_turn(connection: asyncpg.Connection, _: Ledger) -> None:
    await connection.execute("DELETE FROM turns")


async def _lose_a_window(connection: asyncpg.Connection, _: Ledger) -> None:
    await connection.execute("DELETE FROM window_messages")


async def _leave_a_correction(connection: asyncpg.Connection, _: Ledger) -> None:
    await connection.execute(
        "INSERT INTO correction_jobs (dialogue_id, available_at) VALUES (999999, now() + interval '1 hour')"
    )


@dataclass(frozen=True)
class Lived:
    """A service after a few promises, all of them kept and in the ledger."""

    live: LiveService
    ledger: Ledger
    connection: asyncpg.Connection
    client: Client

    async def hold_against_the_ledger(self) -> None:
        await audit(self.connection, self.ledger, {"default": self.client}, [self.live.url])


@pytest.fixture
async def lived(
    serve: LiveFactory,
    postgres: EmbeddedPostgres,
    embedding_provider: EmbeddingProvider,
    chat_provider: ChatProvider,
) -> AsyncIterator[Lived]:
    await execute(postgres, "CREATE DATABASE lived")
    settings = chat_settings(
        chat_provider,
        database_url=postgres.url_for("lived"),
        embedding_base_url=embedding_provider.base_url,
        embedding_api_key=EmbeddingProvider.key,
        embedding_dimensions=64,
        api_keys=f"default={_KEY}",
    )
    async with serve(**settings) as live:
        connection = await asyncpg.connect(postgres.dsn_for("lived"))
        session, ledger = Session("default", 1, None), Ledger()
        ledger.sessions.append(session)
        live.client.headers["Authorization"] = f"Bearer {_KEY}"
        for token, content in (("T9000001X", "我把快递放在抽屉了"), ("T9000002X", "我把合同放在书房了")):
            text = f"{content}，编号{token}"
            stored = await add(live, text, message_uuid=f"w-{token}", sender_name="小明")
            session.messages[token] = Message(stored["id"], token, text, {"message_uuid": f"w-{token}"})
        text = "我把钥匙放在门口了，编号T9000003X"
        done = await say(live, text, message_uuid="c-T9000003X", sender_name="小明")
        session.turns["T9000003X"] = Turn(done["turn_id"], "T9000003X", text, "c-T9000003X", done["reply"])
        await judged(live, done["turn_id"])
        client = Client([live.url], key=_KEY, sessions=[session], ledger=ledger, seed=1)
        await wait_until_drained(connection, ledger)
        yield Lived(live, ledger, connection, client)
        await client.aclose()
        await connection.close()
    await execute(postgres, "DROP DATABASE lived WITH (FORCE)")


async def test_the_audit_sees_nothing_where_promises_were_kept(lived: Lived) -> None:
    await lived.hold_against_the_ledger()
    assert lived.ledger.violations == {}


@pytest.mark.parametrize(
    ("tamper", "seen"),
    [
        (_lose_a_message, {"acknowledged messages lost or changed", "acknowledged messages not there once"}),
        (_store_twice, {"acknowledged messages not there once"}),
        (_change_order, {"messages in another order than written"}),
        (_forget_an_erasure, {"erased, and back in dialogues", "erased, and back in turns"}),
        (_forget_a_deletion, {"deleted or changed, and back in dialogues"}),
        (_give_up_a_vector, {"vectors given up for a fault of the provider's"}),
        (_swap_vectors, {"vectors of another text"}),
        (_lose_half_a_turn, {"turns stored without both messages and their score"}),
        (_lose_a_turn, {"turns not there once", "retries answered by another turn"}),
        (_lose_a_window, {"said last, and not in the window"}),
        (_leave_a_correction, {"rows of correction_jobs whose message is gone"}),
    ],
)
async def test_the_audit_sees_a_promise_that_was_broken(lived: Lived, tamper: Tamper, seen: set[str]) -> None:
    await tamper(lived.connection, lived.ledger)
    await lived.hold_against_the_ledger()
    assert seen <= lived.ledger.violations.keys()
