"""Keys of the database: kept as digests, revoked within seconds everywhere, use noted without a write."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.access.keyring_service import MAX_AGE_S, KeyringService
from app.access.keys import PREFIX_FORM, digest_key, make_key
from app.database.embedded import EmbeddedPostgres
from app.database.engine import Database
from app.errors import DatabaseUnavailableError
from app.services import Services, open_services
from app.settings import Settings
from tests.conftest import LiveFactory
from tests.live import eventually, fetch
from tests.processes import StartService, run_service

__all__ = ["run_service"]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@given(st.integers(1, 20))
def test_a_key_is_unlike_any_other_and_shows_its_prefix(count: int) -> None:
    keys = [make_key() for _ in range(count)]
    assert len({key.text for key in keys}) == len({digest_key(key.text) for key in keys}) == count
    for key in keys:
        assert PREFIX_FORM.fullmatch(key.prefix)
        assert re.fullmatch(re.escape(key.prefix) + "_[A-Za-z0-9]{43}", key.text)


async def test_no_key_stands_in_the_database(
    services: Services, postgres: EmbeddedPostgres, database_name: str
) -> None:
    key = await services.access.create_key(namespace="bot", role="bot", label="测试")
    await services.keyring.find(key.text)
    await services.access.revoke_keys(prefix=key.prefix, namespace=None)
    secret = key.text.rpartition("_")[2]
    for table in ("api_keys", "audit_log"):
        rows = await fetch(postgres, database_name, f"SELECT t::text AS line FROM {table} t")
        assert rows
        assert not [row for row in rows if secret in row["line"]]


@pytest.mark.parametrize(("namespace", "role"), [(None, "bot"), (None, "reader"), ("a", "admin")])
async def test_only_an_admin_has_no_namespace(services: Services, namespace: str | None, role: Any) -> None:
    with pytest.raises(ValueError, match="namespace"):
        await services.access.create_key(namespace=namespace, role=role)


async def test_a_revoked_key_opens_nothing_in_any_process_within_seconds(
    run_service: StartService, make_settings: Callable[..., Settings]
) -> None:
    settings = make_settings()
    assert settings.database.url is not None
    url = settings.database.url.get_secret_value()
    async with open_services(settings, background=False) as services:
        key = await services.access.create_key(namespace="bot", role="bot")
        other = await services.access.create_key(namespace="bot", role="bot")
        async with (
            run_service("--workers", "2", database_url=url) as several,
            run_service(database_url=url) as alone,
        ):

            async def statuses(text: str) -> set[int]:
                # New connections, so that both workers are among those that answer.
                answers = set()
                for process in (several, alone):
                    for _ in range(6):
                        async with httpx.AsyncClient(base_url=process.url, trust_env=False) as client:
                            answers.add((await client.get("/stats", headers=bearer(text))).status_code)
                return answers

            assert await statuses(key.text) == {200}
            made_now = await services.access.create_key(namespace="bot", role="reader")
            await asyncio.sleep(0.3)
            assert await statuses(made_now.text) == {200}
            await services.access.revoke_keys(prefix=key.prefix, namespace=None)
            await asyncio.sleep(MAX_AGE_S + 0.1)
            assert await statuses(key.text) == {401}
            assert await statuses(other.text) == {200}
            # When the last key is gone, the door is not open again.
            await services.access.revoke_keys(prefix=None, namespace="bot")
            await asyncio.sleep(MAX_AGE_S + 0.1)
            assert await statuses(other.text) == {401}
            assert (await alone.client.get("/stats")).status_code == 401


async def test_use_is_noted_in_memory_and_written_now_and_then(
    serve: LiveFactory, postgres: EmbeddedPostgres, database_name: str
) -> None:
    async with serve() as live:
        key = await live.services.access.create_key(namespace="bot", role="bot")
        live.services.keyring._known = None
        count = "SELECT xmin::text AS version, last_used_at FROM api_keys"
        (before,) = await fetch(postgres, database_name, count)
        for _ in range(20):
            assert (await live.client.get("/sessions", headers=bearer(key.text))).status_code == 200
        (after,) = await fetch(postgres, database_name, count)
        assert after == before
        await live.services.keyring.flush()
        (written,) = await fetch(postgres, database_name, count)
        assert written["last_used_at"] is not None
        await live.services.keyring.flush()
        assert (await fetch(postgres, database_name, count)) == [written]
        (listed,) = await live.services.access.list_keys()
        assert listed.last_used_at == written["last_used_at"]
    assert (await fetch(postgres, database_name, count)) == [written]


class CountingDatabase:
    """Counts how often it is read; fails when told."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.reads = 0
        self.is_away = False

    def read(self) -> Any:
        self.reads += 1
        if self.is_away:
            raise DatabaseUnavailableError("away")
        return self._database.read()


@pytest.fixture
def counting(services: Services) -> CountingDatabase:
    return CountingDatabase(services.access._database)


async def test_many_callers_cost_one_look(services: Services, counting: CountingDatabase) -> None:
    keys = [await services.access.create_key(namespace=f"n{place}", role="bot") for place in range(20)]
    keyring = KeyringService(database=counting, clock=services.clock)  # type: ignore[arg-type]
    callers = await asyncio.gather(*(keyring.find(key.text) for key in keys * 5))
    assert [caller and caller.namespace for caller in callers] == [f"n{place}" for place in range(20)] * 5
    assert counting.reads == 1


async def test_guesses_do_not_reach_the_database_one_by_one(
    services: Services, counting: CountingDatabase
) -> None:
    await services.access.create_key(namespace="a", role="bot")
    keyring = KeyringService(database=counting, clock=services.clock)  # type: ignore[arg-type]
    for _ in range(500):
        assert await keyring.find(make_key().text) is None
    assert counting.reads < 20


async def test_what_can_not_be_looked_up_opens_nothing(
    services: Services, counting: CountingDatabase
) -> None:
    key = await services.access.create_key(namespace="a", role="bot")
    keyring = KeyringService(database=counting, clock=services.clock)  # type: ignore[arg-type]
    assert await keyring.find(key.text)
    counting.is_away = True

    async def is_closed() -> bool:
        try:
            return await keyring.find(key.text) is None
        except DatabaseUnavailableError:
            return True

    await eventually(is_closed)
    with pytest.raises(DatabaseUnavailableError):
        await keyring.is_keyed()
    counting.is_away = False
    assert await keyring.find(key.text)
