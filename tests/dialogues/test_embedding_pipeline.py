"""Vectors come after the answer, whatever the provider does, and are of the text that stands at the end."""

import asyncio
import json
from typing import Any

import pytest

from app.database.embedded import EmbeddedPostgres
from app.dialogues.indexed_text import indexed_text
from tests.conftest import LiveFactory, LiveService
from tests.dialogues.conftest import Provided
from tests.doubles.embedding_provider import embed
from tests.live import add, add_batch, eventually, fetch, listed, message, search

RATE_LIMITED = {"status": 429, "body": {"message": "Request was rejected"}, "headers": {"Retry-After": "1"}}
BROKEN = {"status": 503, "body": "System is busy", "headers": {"Retry-After": "1"}}


async def statuses(live: LiveService, *ids: int) -> list[str]:
    if len(ids) > 5:
        found = {one["id"]: one["embedding_status"] for one in await listed(live)}
        return [found[one] for one in ids]
    answers = [await live.client.get(f"/dialogues/{one}") for one in ids]
    return [answer.json()["embedding_status"] for answer in answers]


async def ids_of(live: LiveService, count: int, content: str = "第{}条") -> list[int]:
    items = [message(content.format(number)) for number in range(count)]
    return [one["id"] for one in (await add_batch(live, items))["dialogues"]]


async def all_are(live: LiveService, ids: list[int], status: str = "ready") -> None:
    async def nothing_waits() -> bool:
        details = (await live.client.get("/health/ready")).json()["details"]
        return bool(details["embeddings_pending"] == 0)

    await eventually(nothing_waits)
    assert set(await statuses(live, *ids)) == {status}


async def provider_is_asked(provided: Provided, count: int = 1) -> None:
    async def holds() -> bool:
        return int(provided.provider.requests()["count"]) >= count

    await eventually(holds)


async def similarity(postgres: EmbeddedPostgres, provided: Provided, dialogue_id: int, text: str) -> float:
    """Of the stored vector and a text's."""
    rows = await fetch(
        postgres, provided.database, "SELECT embedding::text AS v FROM dialogues WHERE id = $1", dialogue_id
    )
    stored: list[float] = json.loads(rows[0]["v"])
    return sum(a * b for a, b in zip(stored, embed(text, provided.dimensions), strict=True))


async def test_a_message_is_answered_before_it_has_a_vector_and_after_if_that_is_wanted(
    serve: LiveFactory, provided: Provided, postgres: EmbeddedPostgres
) -> None:
    async with serve(**provided.settings) as live:
        waited = await add(live, "苹果", sender_name="小明", wait=True)
        assert waited["embedding_status"] == "ready"
        text = indexed_text("苹果", "小明")
        assert await similarity(postgres, provided, waited["id"], text) > 0.99
        batch = await add_batch(live, [message("香蕉"), message("橘子", wait=True)])
        assert await statuses(live, *(one["id"] for one in batch["dialogues"])) == ["ready", "ready"]
        provided.provider.control(fail=[BROKEN | {"times": None}])
        stored = await add(live, "石榴")
        assert stored["embedding_status"] == "pending"
        assert (await add(live, "樱桃", wait=True))["embedding_status"] == "pending"
        again = await live.client.post(
            "/dialogues", json=message("苹果", message_uuid=waited["message_uuid"])
        )
        assert (again.status_code, again.json()["embedding_status"]) == (200, "ready")


@pytest.mark.parametrize("failure", [BROKEN, RATE_LIMITED, "hang_up"])
async def test_all_is_embedded_after_a_failure_with_few_calls(
    serve: LiveFactory, provided: Provided, failure: dict[str, Any] | str
) -> None:
    async with serve(**provided.settings) as live:
        if isinstance(failure, str):
            provided.provider.control(hang_up=1000)
        else:
            provided.provider.control(fail=[failure | {"times": None}])
        ids = await ids_of(live, 100, content="暗号{}")
        found = await search(live, "暗号7", mode="hybrid", min_similarity=0.9)
        assert found["degraded"] is True
        assert "暗号7" in {one["content"] for one in found["memories"]}
        ready = await live.client.get("/health/ready")
        assert ready.json()["details"]["embeddings_pending"] == 100
        provided.provider.reset()
        await all_are(live, ids)
        asked = provided.provider.requests()
        assert asked["count"] <= 100 / 32 + 4
        texts = [text for batch in asked["inputs"] for text in batch]
        assert len(texts) <= 100 + 32
        assert (await search(live, "暗号7"))["degraded"] is False


async def test_a_poison_item_fails_alone_and_is_healed_by_an_edit(
    serve: LiveFactory, provided: Provided, postgres: EmbeddedPostgres
) -> None:
    async with serve(**provided.settings) as live:
        provided.provider.control(reject=["毒"])
        ids = await ids_of(live, 40, content="好话{}")
        poison = await add(live, "毒苹果")
        await all_are(live, ids)
        await all_are(live, [poison["id"]], "failed")
        details = (await live.client.get("/health/ready")).json()["details"]
        assert (details["embeddings_pending"], details["embeddings_failed"]) == (0, 1)
        assert "memory_embeddings_pending 0.0" in (await live.client.get("/metrics")).text
        for mode in ("keyword", "hybrid"):
            provided.provider.control()
            found = await search(live, "毒苹果", mode=mode, top_n=1, window_size=0)
            assert [one["id"] for one in found["memories"]] == [poison["id"]]
        asked = provided.provider.requests()["count"]
        await live.client.patch(f"/dialogues/{poison['id']}", json={"content": "青苹果"})
        await all_are(live, [poison["id"]])
        assert provided.provider.requests()["count"] == asked + 1
        assert await similarity(postgres, provided, poison["id"], "青苹果") > 0.99


async def test_a_vector_that_is_none_is_refused(
    serve: LiveFactory, provided: Provided, postgres: EmbeddedPostgres
) -> None:
    async with serve(**provided.settings) as live:
        for answer in ("nan", "zero", "null", "strings", "wrong_width"):
            provided.provider.control(answer=answer, answer_for="坏")
            ids = await ids_of(live, 3, content=f"好{answer}{{}}")
            bad = await add(live, f"坏{answer}")
            await all_are(live, [bad["id"]], "failed")
            await all_are(live, ids)
        rows = await fetch(
            postgres,
            provided.database,
            "SELECT embedding, embedding_error FROM dialogues WHERE embedding_status = 'failed'",
        )
        assert len(rows) == 5
        for row in rows:
            assert row["embedding"] is None
            assert row["embedding_error"]
        assert (await fetch(postgres, provided.database, "SELECT count(*) FROM embedding_jobs"))[0][0] == 0


@pytest.mark.parametrize("answer", ["wrong_width", "nan"])
async def test_a_model_that_gives_no_vector_costs_no_message_its_own(
    serve: LiveFactory, provided: Provided, answer: str
) -> None:
    async with serve(**provided.settings) as live:
        provided.provider.control(answer=answer)
        alone = await add(live, "第一句", wait=True)
        ids = [alone["id"], *(await ids_of(live, 40))]
        assert alone["embedding_status"] == "pending"
        found = await search(live, "第一句")
        assert found["degraded"] is True
        assert set(await statuses(live, *ids)) == {"pending"}
        provided.provider.control()
        await all_are(live, ids)


async def test_an_edit_during_embedding_gets_the_vector_of_its_new_text(
    serve: LiveFactory, provided: Provided, postgres: EmbeddedPostgres
) -> None:
    async with serve(**provided.settings) as live:
        provided.provider.control(delay_s=1.5)
        stored = await add(live, "旧的话")
        other = await add(live, "另一条")
        await provider_is_asked(provided)
        changed = await live.client.patch(f"/dialogues/{stored['id']}", json={"content": "新写的内容"})
        assert changed.json()["embedding_status"] == "pending"
        provided.provider.control()
        await all_are(live, [stored["id"], other["id"]])
        assert await similarity(postgres, provided, stored["id"], "新写的内容") > 0.99
        assert await similarity(postgres, provided, other["id"], "另一条") > 0.99


async def test_an_edit_takes_the_old_vector_away_at_once(
    serve: LiveFactory, provided: Provided, postgres: EmbeddedPostgres
) -> None:
    async with serve(**provided.settings) as live:
        stored = await add(live, "旧的话", wait=True)
        provided.provider.control(fail=[BROKEN | {"times": None}])
        await live.client.patch(f"/dialogues/{stored['id']}", json={"content": "新写的内容"})
        rows = await fetch(postgres, provided.database, "SELECT * FROM dialogues")
        assert (rows[0]["embedding"], rows[0]["embedding_bits"], rows[0]["embedding_model_id"]) == (None,) * 3


@pytest.mark.parametrize("how", ["dialogue", "session", "user"])
async def test_what_is_erased_during_embedding_does_not_come_back(
    serve: LiveFactory, provided: Provided, postgres: EmbeddedPostgres, how: str
) -> None:
    async with serve(**provided.settings) as live:
        provided.provider.control(delay_s=1.0)
        gone = [await add(live, f"要忘掉的{number}", group_id=9) for number in range(3)]
        kept = await add(live, "要留下的", user_id=2)
        await provider_is_asked(provided)
        paths = {
            "dialogue": [f"/dialogues/{one['id']}" for one in gone],
            "session": ["/sessions/9:1"],
            "user": ["/users/1"],
        }
        for path in paths[how]:
            answer = await live.client.delete(path)
            assert answer.status_code in {200, 204}
            if answer.status_code == 200:
                assert answer.json()["erased"]["dialogues"] == 3
        await all_are(live, [kept["id"]])
        for table in ("dialogues", "embedding_jobs", "window_messages"):
            left = await fetch(postgres, provided.database, f"SELECT * FROM {table}")
            assert len(left) == (0 if table == "embedding_jobs" else 1)
        assert (await search(live, "要忘掉的", group_id=9))["memories"] == []


async def test_no_connection_is_held_while_the_provider_is_waited_for(
    serve: LiveFactory, provided: Provided
) -> None:
    async with serve(**provided.settings) as live:
        await add(live, "先来的", wait=True)
        provided.provider.reset()
        provided.provider.control(delay_s=6)
        writing = [
            asyncio.create_task(live.client.post("/dialogues", json=message(f"第{n}条", wait=True)))
            for n in range(20)
        ]
        searching = [
            asyncio.create_task(
                live.client.post("/memory/search", json={"user_id": 2, "query": f"问{n}", "mode": "hybrid"})
            )
            for n in range(20)
        ]
        await provider_is_asked(provided, 2)
        database = live.services.dialogues._database

        async def all_are_back() -> bool:
            return database.checked_out == 0

        await eventually(all_are_back)
        assert (await live.client.get("/health/live")).status_code == 200
        assert (await live.client.get("/dialogues?user_id=1")).status_code == 200
        assert provided.provider.requests()["statuses"] == []
        provided.provider.control()
        answers = await asyncio.gather(*writing, *searching)
        assert {answer.status_code for answer in answers} == {200, 201}


async def test_two_services_share_the_queue_without_double_work(
    serve: LiveFactory, provided: Provided
) -> None:
    settings = provided.settings | {"embedding_batch_size": 8}
    async with serve(**settings) as first, serve(**settings) as second:
        provided.provider.control(delay_s=0.2)
        outcomes = await asyncio.gather(
            *(
                ids_of(live, 60, content=f"第{batch}批第{{}}条")
                for batch, live in enumerate((first, second, first, second))
            )
        )
        for ids in outcomes:
            await all_are(first, ids)
        asked = [text for batch in provided.provider.requests()["inputs"] for text in batch]
        assert len(asked) == len(set(asked)) == 240
        assert provided.provider.requests()["max_in_flight"] > 1


async def test_what_was_written_is_found_by_the_next_search(serve: LiveFactory, provided: Provided) -> None:
    async with serve(**provided.settings) as live:
        for number in range(5):
            stored = await add(live, f"第{number}个暗号是芝麻")
            found = await search(live, f"第{number}个暗号是芝麻", mode="vector", top_n=1, window_size=0)
            assert [one["id"] for one in found["memories"]] == [stored["id"]]
            assert found["memories"][0]["similarity"] == pytest.approx(1.0, abs=0.01)
        # Its query has a vector already, and what is pending takes too long.
        await search(live, "慢慢来的甘蔗")
        provided.provider.control(delay_s=4)
        stored = await add(live, "慢慢来的甘蔗")
        found = await search(live, "慢慢来的甘蔗", top_n=1, window_size=0)
        assert [one["id"] for one in found["memories"]] == [stored["id"]]
        assert found["memories"][0]["similarity"] is None
        provided.provider.control()


async def test_what_somebody_waits_for_does_not_wait_behind_an_import(
    serve: LiveFactory, provided: Provided
) -> None:
    async with serve(**provided.settings, embedding_batch_size=4, embedding_concurrency=2) as live:
        provided.provider.control(delay_s=1.0)
        await ids_of(live, 120)
        await provider_is_asked(provided)
        assert (await add(live, "急件", wait=True))["embedding_status"] == "ready"
        provided.provider.control()
        asked = provided.provider.requests()["inputs"]
        before = [text for texts in asked for text in texts].index(indexed_text("急件", None))
        assert before < 32


async def test_what_no_provider_was_asked_about_yet_survives_a_restart(
    serve: LiveFactory, provided: Provided
) -> None:
    provided.provider.control(fail=[BROKEN | {"times": None}])
    async with serve(**provided.settings) as live:
        ids = await ids_of(live, 10)
    provided.provider.control()
    async with serve(**provided.settings) as live:
        await all_are(live, ids)


async def test_a_message_that_was_tried_without_end_is_tried_again(
    serve: LiveFactory, provided: Provided, postgres: EmbeddedPostgres
) -> None:
    async with serve(**provided.settings) as live:
        provided.provider.control(fail=[BROKEN | {"times": None}])
        ids = await ids_of(live, 3)
        await fetch(postgres, provided.database, "UPDATE embedding_jobs SET attempts = 32767")
        provided.provider.control()
        await all_are(live, ids)


async def test_the_loop_gives_way_to_who_writes_much_but_not_for_ever(
    serve: LiveFactory, provided: Provided, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(**provided.settings) as live:
        pipeline = live.services.dialogues._embedding
        monkeypatch.setattr("app.dialogues.embedding._GIVES_WAY_AT_MOST_S", 60)
        with pipeline.giving_way():
            ids = await ids_of(live, 40)
            await asyncio.sleep(0.3)
            assert provided.provider.requests()["count"] == 0
            assert set(await statuses(live, *ids)) == {"pending"}
        await all_are(live, ids)
        monkeypatch.setattr("app.dialogues.embedding._GIVES_WAY_AT_MOST_S", 0.1)
        with pipeline.giving_way():
            await all_are(live, await ids_of(live, 40, "又{}条"))
