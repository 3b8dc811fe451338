"""`temporal-memory reembed`: another model, another width, a kill halfway, searches meanwhile."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from app.commands.reembedding import reembed_all
from app.database.embedded import EmbeddedPostgres
from app.database.migrations import MigrationOptions, migrate
from app.dialogues.records import DialogueChange, NewDialogue, Session
from app.dialogues.renewal_store import row_target
from app.dialogues.transfer_store import ExportScope
from app.errors import DatabaseSetupError, ProviderDeniedError, StartupError, UnavailableError
from app.recall.records import SearchQuery
from app.services import Services, open_reembedding, open_services
from app.settings import Settings
from tests.doubles.fixtures import EmbeddingProvider

_REPOSITORY = Path(__file__).parents[2]
USER = 7
MESSAGES = [f"第{number}号包裹的取件码是Q{number}" for number in range(1, 61)]


@pytest.fixture
def with_model(
    make_settings: Callable[..., Settings], embedding_provider: EmbeddingProvider
) -> Callable[..., Settings]:
    """Settings with one of the provider's models."""

    def make(name: str, dimensions: int = 512) -> Settings:
        return make_settings(
            embedding_base_url=embedding_provider.base_url,
            embedding_api_key=embedding_provider.key,
            embedding_model=name,
            embedding_dimensions=dimensions,
        )

    return make


async def fill(settings: Settings) -> None:
    # The test's database is as wide as the offline model.
    assert (await reembed(settings))[0] == 0
    async with open_services(settings, background=False) as services:
        await services.dialogues.add_many(
            "default", [NewDialogue(USER, "user", content) for content in MESSAGES], wait=True
        )


async def reembed(settings: Settings, *, only_failed: bool = False) -> tuple[int, list[str]]:
    told: list[str] = []
    code = await reembed_all(
        settings, only_failed=only_failed, agree=lambda _question: True, quiet=True, tell=told.append
    )
    return code, told


async def find(services: Services, query: str) -> list[str]:
    found = await services.recall.search(
        "default",
        SearchQuery(
            session=Session(USER),
            query=query,
            now=services.clock(),
            zone=services.settings.recall.zone,
            language="zh",
            top_n=3,
            window_size=0,
        ),
    )
    return [memory.dialogue.content for memory in found.memories]


async def vectors(settings: Settings) -> dict[str, int]:
    """How many vectors each model has made, `-` where there is none."""
    assert settings.database.url is not None
    url = settings.database.url.get_secret_value().replace("+asyncpg", "", 1)
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(
            "SELECT coalesce(m.name || ' ' || m.dimensions, '-') AS model, count(*) AS n FROM dialogues d"
            " LEFT JOIN embedding_models m ON m.id = d.embedding_model_id GROUP BY 1"
        )
    finally:
        await connection.close()
    return {row["model"]: row["n"] for row in rows}


async def test_another_model_of_the_same_width(with_model: Callable[..., Settings]) -> None:
    await fill(with_model("Qwen/Qwen3-Embedding-0.6B"))
    new = with_model("Pro/Qwen3-Embedding-0.6B")

    assert await reembed(new) == (0, ["Done."])
    assert await vectors(new) == {"Pro/Qwen3-Embedding-0.6B 512": len(MESSAGES)}
    assert await reembed(new) == (0, ["Every message has its vector of Pro/Qwen3-Embedding-0.6B."])


async def test_another_width_while_a_service_searches(with_model: Callable[..., Settings]) -> None:
    old, new = with_model("Qwen/Qwen3-Embedding-0.6B"), with_model("Qwen/Qwen3-Embedding-0.6B", 1024)
    await fill(old)
    with pytest.raises(DatabaseSetupError, match="temporal-memory reembed"):
        async with open_services(new, background=False):
            raise AssertionError

    async with open_services(old, background=False) as services:
        running = asyncio.create_task(reembed(new))
        searches = 0
        while not running.done() or searches < 3:
            assert MESSAGES[41] in await find(services, "42号包裹的取件码Q42")
            searches += 1
        assert await running == (0, ["Done."])

    assert await vectors(new) == {"Qwen/Qwen3-Embedding-0.6B 1024": len(MESSAGES)}
    async with open_services(new, background=False) as services:
        assert MESSAGES[41] in await find(services, "42号包裹的取件码")


async def copied(postgres_url: str) -> int:
    """How many messages the copy holds that a renewal makes; 0 before it has begun."""
    connection = await asyncpg.connect(postgres_url)
    try:
        if await connection.fetchval("SELECT to_regclass('dialogues_next') IS NULL"):
            return 0
        return int(await connection.fetchval("SELECT count(*) FROM dialogues_next"))
    finally:
        await connection.close()


async def test_killed_halfway_and_run_again(
    with_model: Callable[..., Settings],
    embedding_provider: EmbeddingProvider,
    postgres: EmbeddedPostgres,
    database_name: str,
) -> None:
    old, new = with_model("Qwen/Qwen3-Embedding-0.6B"), with_model("Qwen/Qwen3-Embedding-0.6B", 1024)
    await fill(old)
    more = [NewDialogue(USER + 1, "user", f"第{number}份报表") for number in range(1500)]
    async with open_services(old, background=False) as services:
        for start in (0, 750):
            await services.dialogues.add_many("default", more[start : start + 750], wait=True)
    total = len(MESSAGES) + len(more)
    embedding_provider.control(delay_s=0.2)
    environment = os.environ | {
        "DATABASE_URL": postgres.url_for(database_name),
        "EMBEDDING_BASE_URL": embedding_provider.base_url,
        "EMBEDDING_API_KEY": embedding_provider.key,
        "EMBEDDING_DIMENSIONS": "1024",
        "LOG_LEVEL": "ERROR",
    }
    command = [sys.executable, "-m", "app.cli", "reembed", "--yes", "--quiet"]
    process = await asyncio.create_subprocess_exec(
        *command,
        env=environment | {"PYTHONPATH": str(_REPOSITORY)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not await copied(postgres.dsn_for(database_name)):
            assert process.returncode is None
            await asyncio.sleep(0.05)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()
    done = await copied(postgres.dsn_for(database_name))
    assert 0 < done < total
    assert await vectors(old) == {"Qwen/Qwen3-Embedding-0.6B 512": total}
    async with open_services(old, background=False) as services:
        assert MESSAGES[41] in await find(services, "42号包裹的取件码Q42")

    embedding_provider.reset()
    assert await reembed(new) == (0, ["Done."])
    assert await vectors(new) == {"Qwen/Qwen3-Embedding-0.6B 1024": total}
    made = [content for batch in embedding_provider.requests()["inputs"] for content in batch]
    assert len(made) == total - done + 1, "the trial, and what the first run had not copied"


async def test_all_that_happens_meanwhile_is_in_the_copy(
    with_model: Callable[..., Settings], embedding_provider: EmbeddingProvider
) -> None:
    old, new = with_model("Qwen/Qwen3-Embedding-0.6B"), with_model("Qwen/Qwen3-Embedding-0.6B", 1024)
    await fill(old)
    embedding_provider.control(delay_s=0.3)
    async with open_services(old, background=False) as services:
        running = asyncio.create_task(reembed(new))
        record = services.dialogues
        page = await record.list_page(
            "default",
            session=Session(USER),
            role=None,
            since=None,
            until=None,
            descending=False,
            limit=60,
            after=None,
        )
        ids = [one.id for one in page.dialogues]
        number = 0
        while not running.done() or number < 12:
            if number < 12:
                await record.delete("default", ids[number])
                await record.change("default", ids[20 + number], DialogueChange(content=f"改成了R{number}"))
                await record.change("default", ids[40 + number], DialogueChange(pinned=True, score=number))
            await record.add("default", NewDialogue(USER, "assistant", f"其间的第{number}条"))
            number += 1
            await asyncio.sleep(0.05)
        assert await running == (0, ["Done."])
    # What came after the change-over waits for whoever has the new settings.
    assert (await reembed(new))[0] == 0

    expected = [content for place, content in enumerate(MESSAGES) if place >= 12]
    expected[8:20] = [f"改成了R{place}" for place in range(12)]
    expected += [f"其间的第{place}条" for place in range(number)]
    async with open_services(new, background=False) as services:
        found = [one async for page in services.dialogues.export("default", ExportScope()) for one in page]
        assert sorted(one.content for one in found) == sorted(expected)
        assert [one.score for one in found if one.pinned] == list(range(12))
        assert {one.embedding_status for one in found} == {"ready"}
        assert len({one.id for one in found}) == len(found)
        assert "改成了R7" in await find(services, "改成了R7")
    assert await vectors(new) == {"Qwen/Qwen3-Embedding-0.6B 1024": len(expected)}


async def test_the_start_with_the_new_settings_changes_over_to_what_was_prepared(
    with_model: Callable[..., Settings],
) -> None:
    old, new = with_model("Qwen/Qwen3-Embedding-0.6B"), with_model("Qwen/Qwen3-Embedding-0.6B", 1024)
    await fill(old)
    code = await reembed_all(
        new, only_failed=False, prepare=True, agree=lambda _: True, quiet=True, tell=lambda _: None
    )
    assert code == 0
    assert await vectors(old) == {"Qwen/Qwen3-Embedding-0.6B 512": len(MESSAGES)}
    async with open_services(old, background=False) as services:
        await services.dialogues.add("default", NewDialogue(USER, "user", "最后一条"), wait=True)
        assert MESSAGES[41] in await find(services, "42号包裹的取件码Q42")
    async with open_reembedding(new) as one, open_reembedding(new) as other:
        # As two workers do that start at once.
        await asyncio.gather(one.take_over(), other.take_over())
    assert await vectors(new) == {"Qwen/Qwen3-Embedding-0.6B 1024": len(MESSAGES) + 1}
    async with open_services(new, background=False) as services:
        assert "最后一条" in await find(services, "最后一条")


async def test_a_start_changes_over(with_model: Callable[..., Settings]) -> None:
    new = with_model("Qwen/Qwen3-Embedding-0.6B", 1024)
    await fill(with_model("Qwen/Qwen3-Embedding-0.6B"))
    async with open_reembedding(new) as reembedding:
        async for _ in reembedding.renew(change_over=False):
            pass
    async with open_services(new, background=False) as services:
        assert MESSAGES[41] in await find(services, "42号包裹的取件码Q42")
    assert await vectors(new) == {"Qwen/Qwen3-Embedding-0.6B 1024": len(MESSAGES)}


async def test_what_is_erased_leaves_a_copy_that_nobody_finishes(
    with_model: Callable[..., Settings], postgres: EmbeddedPostgres, database_name: str
) -> None:
    old = with_model("Qwen/Qwen3-Embedding-0.6B")
    await fill(old)
    async with open_reembedding(with_model("Qwen/Qwen3-Embedding-0.6B", 1024)) as reembedding:
        renewing = reembedding.renew()
        while (await anext(renewing)).left:
            pass
        assert await copied(postgres.dsn_for(database_name)) == len(MESSAGES)
        await renewing.aclose()
    async with open_services(old, background=False) as services:
        await services.erasure.erase_session("default", Session(USER))
    assert await copied(postgres.dsn_for(database_name)) == 0


async def test_a_renewal_for_a_third_model_starts_anew(with_model: Callable[..., Settings]) -> None:
    await fill(with_model("Qwen/Qwen3-Embedding-0.6B"))
    async with open_reembedding(with_model("Qwen/Qwen3-Embedding-0.6B", 1024)) as reembedding:
        renewing = reembedding.renew()
        while (await anext(renewing)).left:
            pass
        await renewing.aclose()
    third = with_model("Pro/Qwen3-Embedding-0.6B", 256)
    assert await reembed(third) == (0, ["Done."])
    assert await vectors(third) == {"Pro/Qwen3-Embedding-0.6B 256": len(MESSAGES)}


async def test_one_renews_at_a_time(with_model: Callable[..., Settings]) -> None:
    new = with_model("Qwen/Qwen3-Embedding-0.6B", 1024)
    await fill(with_model("Qwen/Qwen3-Embedding-0.6B"))
    async with open_reembedding(new) as reembedding:
        renewing = reembedding.renew()
        await anext(renewing)
        with pytest.raises(UnavailableError, match="another temporal-memory reembed"):
            await reembed(new)
        await renewing.aclose()


async def test_what_failed_is_tried_again(
    with_model: Callable[..., Settings], embedding_provider: EmbeddingProvider
) -> None:
    settings = with_model("Qwen/Qwen3-Embedding-0.6B")
    embedding_provider.control(reject=["Q7"])
    await fill(settings)
    assert await vectors(settings) == {"-": 1, "Qwen/Qwen3-Embedding-0.6B 512": len(MESSAGES) - 1}
    assert await reembed(settings, only_failed=True) == (1, ["Done; 1 messages cannot be embedded."])

    embedding_provider.control()
    assert await reembed(settings, only_failed=True) == (0, ["Done."])
    assert await vectors(settings) == {"Qwen/Qwen3-Embedding-0.6B 512": len(MESSAGES)}


async def test_a_model_that_does_not_answer_costs_no_vector(with_model: Callable[..., Settings]) -> None:
    old = with_model("Qwen/Qwen3-Embedding-0.6B")
    await fill(old)
    with pytest.raises(ProviderDeniedError, match="Model does not exist"):
        await reembed(with_model("nobody/no-such-model"))
    assert await vectors(old) == {"Qwen/Qwen3-Embedding-0.6B 512": len(MESSAGES)}


async def test_nothing_is_changed_without_consent(with_model: Callable[..., Settings]) -> None:
    old, new = with_model("Qwen/Qwen3-Embedding-0.6B"), with_model("Qwen/Qwen3-Embedding-0.6B", 1024)
    await fill(old)
    asked: list[str] = []

    def refuse(question: str) -> bool:
        asked.append(question)
        return False

    assert await reembed_all(new, only_failed=False, agree=refuse, quiet=True, tell=asked.append) == 1
    assert len(asked) == 1
    assert "1024 instead of 512" in asked[0]
    with pytest.raises(StartupError, match="without --failed"):
        await reembed(new, only_failed=True)
    assert await vectors(old) == {"Qwen/Qwen3-Embedding-0.6B 512": len(MESSAGES)}


_SCHEMA = """
SELECT 'column ' || attname || ' ' || format_type(atttypid, atttypmod) || ' ' || attstorage::text || ' '
       || attnotnull || ' ' || attcollation::regcollation || ' ' || coalesce(pg_get_expr(adbin, adrelid), '')
FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attrelid = 'dialogues'::regclass AND attnum > 0 AND NOT attisdropped
UNION ALL SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'dialogues'::regclass
UNION ALL SELECT conname || pg_get_constraintdef(oid) FROM pg_constraint
WHERE conrelid = 'dialogues'::regclass
UNION ALL SELECT unnest(reloptions) FROM pg_class WHERE oid = 'dialogues'::regclass
UNION ALL SELECT 'grant ' || relacl::text FROM pg_class WHERE oid = 'dialogues'::regclass
UNION ALL SELECT 'identity ' || attname || attidentity::text || pg_get_serial_sequence('dialogues', attname)
FROM pg_attribute WHERE attrelid = 'dialogues'::regclass AND attidentity <> ''
UNION ALL SELECT 'relation ' || relname || ' ' || relkind::text || ' ' || relrowsecurity FROM pg_class
WHERE relnamespace = current_schema()::regnamespace
UNION ALL SELECT 'function ' || proname FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
    AND prolang <> (SELECT oid FROM pg_language WHERE lanname = 'c')
UNION ALL SELECT 'trigger ' || tgname FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT 'policy ' || polname FROM pg_policy
ORDER BY 1
"""


async def read_schema(postgres: EmbeddedPostgres, name: str) -> list[Any]:
    connection = await asyncpg.connect(postgres.dsn_for(name))
    try:
        return [row[0] for row in await connection.fetch(_SCHEMA)]
    finally:
        await connection.close()


@pytest.mark.parametrize("dimensions", [384, 1024])
async def test_a_renewal_makes_what_the_migrations_make(
    with_model: Callable[..., Settings], postgres: EmbeddedPostgres, database_name: str, dimensions: int
) -> None:
    """The same width as the test's database, and another: columns, checks, indexes, options, grants."""
    wide = f"{database_name}_wide"
    connection = await asyncpg.connect(postgres.dsn_for("postgres"))
    await connection.execute(f"CREATE DATABASE {wide}")
    try:
        await migrate(MigrationOptions(postgres.url_for(wide), dimensions, zone="Asia/Shanghai"))
        await grant(postgres, wide)
        await grant(postgres, database_name)
        async with open_reembedding(with_model("Qwen/Qwen3-Embedding-0.6B", dimensions)) as reembedding:
            async for _ in reembedding.renew():
                pass
        assert await read_schema(postgres, database_name) == await read_schema(postgres, wide)
    finally:
        await connection.execute(f"DROP DATABASE {wide} WITH (FORCE)")
        await connection.close()


async def grant(postgres: EmbeddedPostgres, name: str) -> None:
    connection = await asyncpg.connect(postgres.dsn_for(name))
    try:
        await connection.execute("GRANT SELECT ON dialogues TO PUBLIC")
    finally:
        await connection.close()


@pytest.mark.parametrize("dimensions", [8, 384, 1024, 2560, 3500, 3501, 4096])
def test_the_row_target_is_one_that_postgresql_takes(dimensions: int) -> None:
    assert 128 <= row_target(dimensions) <= 8160
