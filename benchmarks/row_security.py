"""What PostgreSQL's row-level security would cost: the service's own reads and writes, with it and without.

`.venv/bin/python benchmarks/row_security.py`: one database, three sets of services on it, asked in turn.
`plain` is the service as it is. `policy` runs as a role under policies on every table that has a namespace,
whose connections are told their namespace once: the price of the policies alone. `per use` tells a connection
its namespace each time it is taken from the pool, as a service of many namespaces has to.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, the root is not on the path

import asyncpg
from sqlalchemy import event, text

from app.clock import utc_now
from app.database.embedded import start_embedded
from app.dialogues.records import NewDialogue, Session
from app.recall.records import SearchQuery
from app.services import Services, open_services
from app.settings import Settings, load_settings
from benchmarks.corpus import corpus_until_now
from benchmarks.metrics import markdown_table

_TABLES = ("dialogues", "window_messages", "summaries", "turns", "compressions")
_NAMESPACE = "bot-1"
_VARIANTS = ("plain", "policy", "per use")
_TELL = f"SELECT set_config('app.namespace', '{_NAMESPACE}', false)"
_DATABASE = "row_security"


async def put_under_policies(dsn: str) -> None:
    """Make the role, its rights, and the policies; the owner stays above them."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(
            "CREATE ROLE tenant NOLOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO tenant"
        )
        for table in _TABLES:
            await connection.execute(
                f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;"
                f" CREATE POLICY own ON {table} TO tenant"
                " USING (namespace = current_setting('app.namespace'))"
                " WITH CHECK (namespace = current_setting('app.namespace'))"
            )
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


@asynccontextmanager
async def opened(settings: Settings, variant: str) -> AsyncIterator[Services]:
    """Services whose connections are those of the variant."""
    async with open_services(settings, background=False) as services:
        database = services.access._database  # noqa: SLF001 - what is measured is how it connects
        for engine in (database._reading, database._writing):  # noqa: SLF001
            if variant == "plain":
                continue
            await engine.dispose()

            def become_tenant(connection: Any, _record: object) -> None:
                connection.run_async(lambda driver: driver.execute(f"SET ROLE tenant; {_TELL}"))

            def tell_namespace(connection: Any, _record: object, _proxy: object) -> None:
                connection.run_async(lambda driver: driver.execute(_TELL))

            event.listen(engine.sync_engine, "connect", become_tenant)
            if variant == "per use":
                event.listen(engine.sync_engine, "checkout", tell_namespace)
        async with database.read() as session:
            foreign = await session.scalar(
                text("SELECT count(*) FROM dialogues WHERE namespace <> :own"), {"own": _NAMESPACE}
            )
        if bool(foreign) != (variant == "plain"):
            raise RuntimeError(f"{variant} sees {foreign} messages of another namespace")
        yield services


def operations(
    users: list[int], questions: list[str]
) -> dict[str, Callable[[Services, int], Awaitable[object]]]:
    """What is measured: each takes the services and the number of the round."""

    async def search(services: Services, place: int) -> object:
        return await services.recall.search(
            _NAMESPACE,
            SearchQuery(
                session=Session(users[place % len(users)]),
                query=questions[place % len(questions)],
                now=services.clock(),
                zone=services.settings.recall.zone,
                language="zh",
                top_n=3,
                window_size=2,
            ),
        )

    async def read_page(services: Services, place: int) -> object:
        return await services.dialogues.list_page(
            _NAMESPACE,
            session=Session(users[place % len(users)]),
            role=None,
            since=None,
            until=None,
            descending=True,
            limit=50,
            after=None,
        )

    async def add(services: Services, place: int) -> object:
        new = NewDialogue(user_id=10**6 + place % 50, role="user", content=f"第{place}次说的话")
        return await services.dialogues.add(_NAMESPACE, new)

    return {"search": search, "page of 50": read_page, "add one": add}


async def measure(url: str, dsn: str, *, messages: int, rounds: int) -> None:
    settings = load_settings({"database_url": url, "log_level": "ERROR"})
    corpus = corpus_until_now(messages=messages, sessions=4)
    async with open_services(settings) as filling:
        for namespace in (_NAMESPACE, "bot-2"):
            for first in range(0, messages, 500):
                bodies = [corpus.message(number) for number in range(first, min(first + 500, messages))]
                await filling.dialogues.add_many(
                    namespace,
                    [
                        NewDialogue(
                            user_id=body["user_id"], role=body["role"], content=body["content"],
                            created_at=corpus.created_at(first + place), expires_at=None,
                        )
                        for place, body in enumerate(bodies)
                    ],
                )  # fmt: skip
        while (await filling.dialogues.queue_facts()).pending:  # noqa: ASYNC110 - the queue is in the database
            await asyncio.sleep(0.5)
    await put_under_policies(dsn)
    users = sorted({int(corpus.message(number)["user_id"]) for number in range(messages)})
    questions = [str(corpus.message(number)["content"])[:20] for number in range(0, messages, messages // 20)]
    async with AsyncExitStack() as stack:
        variants = {name: await stack.enter_async_context(opened(settings, name)) for name in _VARIANTS}
        rows = []
        for name, run in operations(users, questions).items():
            spent: dict[str, list[float]] = {variant: [] for variant in _VARIANTS}
            for place in range(-50, rounds):
                # Who is first in a round has the colder caches: everybody is, in turn.
                turn = place % len(_VARIANTS)
                for variant in (*_VARIANTS[turn:], *_VARIANTS[:turn]):
                    begun = time.perf_counter()
                    await run(variants[variant], place)
                    if place >= 0:
                        spent[variant].append((time.perf_counter() - begun) * 1000)
            medians = {variant: statistics.median(times) for variant, times in spent.items()}
            rows.append(
                [name]
                + [f"{medians[variant]:.2f}" for variant in _VARIANTS]
                + [f"{(medians[variant] / medians['plain'] - 1) * 100:+.0f} %" for variant in _VARIANTS[1:]]
            )
    headings = ["median, ms", *_VARIANTS, *(f"{variant} costs" for variant in _VARIANTS[1:])]
    print(f"{messages} messages in each of two namespaces, {rounds} rounds, {utc_now():%Y-%m-%d}")
    print(markdown_table(headings, rows))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=600)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = await asyncio.to_thread(start_embedded, Path(folder) / "data")
        try:
            connection = await asyncpg.connect(server.dsn_for("postgres"))
            await connection.execute(f"CREATE DATABASE {_DATABASE}")
            await connection.close()
            await measure(
                server.url_for(_DATABASE), server.dsn_for(_DATABASE),
                messages=options.messages, rounds=options.rounds,
            )  # fmt: skip
        finally:
            await asyncio.to_thread(server.close)


if __name__ == "__main__":
    asyncio.run(main())
