"""A correction makes what it corrects outdated: not found, kept, linked both ways, and reversible."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from app.database.embedded import EmbeddedPostgres
from app.dialogues.records import Dialogue, DialogueChange, NewDialogue, Session
from app.forgetting.corrections import read_correction
from app.services import Services, open_services
from app.settings import Settings
from tests.conftest import LiveFactory
from tests.forgetting.conftest import SetClock
from tests.live import add, eventually, fetch, message, search
from tests.recall.planting import World, contents

_WAS = "我住在北京朝阳区"
_IS = "不对，我搬家了，现在住在上海浦东"


async def _say(world: World, clock: SetClock, content: str, **more: Any) -> Dialogue:
    """Store a message a minute after the last, with its vector unless told otherwise."""
    clock.advance(minutes=1)
    given: dict[str, Any] = {"user_id": 1, "role": "user", "content": content} | more
    new = NewDialogue(**given)
    return (await world.services.dialogues.add("default", new, wait=True)).dialogue


async def _look(world: World, dialogue: Dialogue) -> tuple[bool, int | None, int | None]:
    now = await world.services.dialogues.get("default", dialogue.id)
    return now.outdated, now.corrects, now.corrected_by


async def _waiting(world: World) -> list[int]:
    rows = await world.connection.fetch("SELECT dialogue_id FROM correction_jobs ORDER BY 1")
    return [row["dialogue_id"] for row in rows]


async def _read_all(services: Services) -> None:
    while await services.corrections.work_once():
        pass


_PLAIN = (False, None, None)


async def test_what_was_corrected_is_found_no_more_until_that_is_undone(
    world: World, clock: SetClock
) -> None:
    old = await _say(world, clock, _WAS)
    await _say(world, clock, "今天天气不错")
    new = await _say(world, clock, _IS)
    await _read_all(world.services)
    assert await _waiting(world) == []
    assert await _look(world, old) == (True, None, new.id)
    assert await _look(world, new) == (False, old.id, None)
    asked: dict[str, Any] = {"now": clock.now, "top_n": 5}
    assert _WAS not in contents((await world.search("我住在哪里", **asked)).memories)
    everything = await world.search("我住在哪里", include_outdated=True, **asked)
    assert {_WAS, _IS} <= set(contents(everything.memories))
    undone = await world.services.dialogues.change("default", old.id, DialogueChange(outdated=False))
    assert (undone.outdated, undone.corrected_by) == (False, None)
    assert await _look(world, new) == _PLAIN
    assert _WAS in contents((await world.search("我住在哪里", **asked)).memories)
    # What was undone stays undone.
    await _read_all(world.services)
    assert await _look(world, old) == _PLAIN


async def test_a_reply_that_repeats_what_was_corrected_goes_with_it_and_comes_back_with_it(
    world: World, clock: SetClock
) -> None:
    old = await _say(world, clock, _WAS)
    echo = await _say(world, clock, "好的，记下了：你住在北京朝阳区", role="assistant")
    new = await _say(world, clock, _IS)
    answer = await _say(world, clock, "明白，上海浦东，不再是北京了", role="assistant")
    await _read_all(world.services)
    assert await _look(world, old) == (True, None, new.id)
    assert await _look(world, echo) == (True, None, new.id)
    assert await _look(world, answer) == _PLAIN
    asked: dict[str, Any] = {"now": clock.now, "top_n": 5, "window_size": 2}
    assert not {_WAS, echo.content} & set(contents((await world.search("住在北京", **asked)).memories))
    await world.services.dialogues.change("default", old.id, DialogueChange(outdated=False))
    for dialogue in (old, echo, new):
        assert await _look(world, dialogue) == _PLAIN
    assert echo.content in contents((await world.search("住在北京", **asked)).memories)


@pytest.mark.parametrize(
    "reply",
    [
        {"content": "好的，记住了"},
        {"content": "那里现在冷吗？"},
        {"content": "你住在北京朝阳区", "pinned": True},
        {"content": "我也住在北京朝阳区", "role": "user"},
        {"content": "你住在北京朝阳区", "group_id": 5},
    ],
)
async def test_what_repeats_nothing_or_is_not_the_reply_stays(
    world: World, clock: SetClock, reply: dict[str, Any]
) -> None:
    old = await _say(world, clock, _WAS)
    beside = await _say(world, clock, **({"role": "assistant"} | reply))
    new = await _say(world, clock, _IS)
    await _read_all(world.services)
    corrected = beside if reply.get("role") == "user" else old
    assert await _look(world, corrected) == (True, None, new.id)
    if beside is not corrected:
        assert await _look(world, beside) == _PLAIN


async def test_a_summary_of_that_time_goes_when_what_it_tells_is_corrected(
    world: World, clock: SetClock
) -> None:
    old = await _say(world, clock, _WAS)
    for number, (since, until) in enumerate([(-1, 1), (60, 120)]):
        await world.connection.execute(
            """
            WITH d AS (
                INSERT INTO dialogues (namespace, message_uuid, user_id, chat_type, role, content, kind,
                    written_hash, token_count, terms)
                VALUES ('default', gen_random_uuid(), 1, 'private', 'assistant', $1, 'summary', 0, 1,
                    repeat('0', 512)::bit(512)) RETURNING id
            )
            INSERT INTO summaries
                (namespace, user_id, dialogue_id, content, since, until, messages, created_at)
            SELECT 'default', 1, d.id, $1, $2, $3, 2, now() FROM d
            """,
            f"摘要{number}",
            old.created_at + timedelta(seconds=since),
            old.created_at + timedelta(seconds=until),
        )
    await _say(world, clock, _IS)
    await _read_all(world.services)
    left = await world.connection.fetch("SELECT content FROM summaries")
    assert [row["content"] for row in left] == ["摘要1"]
    told = await world.connection.fetch("SELECT content FROM dialogues WHERE kind = 'summary'")
    assert [row["content"] for row in told] == ["摘要1"]


@pytest.mark.parametrize(
    "elsewhere", [{"user_id": 2}, {"group_id": 7}, {"role": "assistant"}, {"outdated": True}]
)
async def test_only_the_same_user_in_the_same_session_is_corrected(
    world: World, clock: SetClock, elsewhere: dict[str, Any]
) -> None:
    old = await _say(world, clock, _WAS, **elsewhere)
    new = await _say(world, clock, _IS)
    await _read_all(world.services)
    assert (await _look(world, old))[2] is None
    assert await _look(world, new) == _PLAIN


async def test_what_is_said_later_or_corrects_nothing_is_left_alone(world: World, clock: SetClock) -> None:
    first = await _say(world, clock, _IS)
    second = await _say(world, clock, _WAS, created_at=clock.now)
    third = await _say(world, clock, "我住在北京朝阳区，你呢？")
    await _read_all(world.services)
    for dialogue in (first, second, third):
        assert await _look(world, dialogue) == _PLAIN
    assert await _waiting(world) == []


async def test_a_chain_of_corrections_leaves_the_last(world: World, clock: SetClock) -> None:
    said = [await _say(world, clock, content) for content in (_WAS, _IS, "又搬家了，现在住在广州天河")]
    await _read_all(world.services)
    looks = [await _look(world, one) for one in said]
    assert [look[0] for look in looks] == [True, True, False]
    assert [look[2] for look in looks] == [said[1].id, said[2].id, None]


async def test_an_old_statement_among_many_is_found_by_its_vector(world: World, clock: SetClock) -> None:
    old = await _say(world, clock, _WAS)
    chatter = [NewDialogue(1, "user", f"今天看了第{number}集电视剧") for number in range(60)]
    clock.advance(minutes=1)
    await world.services.dialogues.add_many("default", chatter, wait=True)
    new = await _say(world, clock, _IS)
    await _read_all(world.services)
    assert await _look(world, old) == (True, None, new.id)


async def test_a_correction_waits_for_its_vector_but_not_for_ever(world: World, clock: SetClock) -> None:
    old = await _say(world, clock, _WAS)
    clock.advance(minutes=1)
    new = (await world.services.dialogues.add("default", NewDialogue(1, "user", _IS))).dialogue
    await _read_all(world.services)
    assert await _look(world, old) == _PLAIN
    assert await _waiting(world) == [new.id]
    clock.advance(seconds=61)
    await world.connection.execute("UPDATE correction_jobs SET available_at = now()")
    await _read_all(world.services)
    assert await _look(world, old) == (True, None, new.id)


async def test_a_correction_waits_for_an_earlier_turn_that_is_still_judged(
    world: World, clock: SetClock
) -> None:
    await world.connection.execute(
        "INSERT INTO turns (turn_id, namespace, user_id, message_uuid, written_hash, user_content, reply,"
        " status, available_at, created_at) VALUES ('t', 'default', 1, 't', 0, $1, '好', 'pending', $2, $2)",
        _WAS,
        clock.now,
    )
    new = await _say(world, clock, _IS)
    await _read_all(world.services)
    assert await _waiting(world) == [new.id]
    old = await _say(world, clock, _WAS, created_at=clock.now)
    await world.connection.execute(
        "UPDATE dialogues SET created_at = created_at - interval '1 hour' WHERE id = $1", old.id
    )
    await world.connection.execute("UPDATE turns SET status = 'scored'")
    await world.connection.execute("UPDATE correction_jobs SET available_at = now()")
    await _read_all(world.services)
    assert await _look(world, old) == (True, None, new.id)


@pytest.mark.parametrize("whole_user", [False, True])
async def test_what_is_erased_while_a_correction_waits_stays_erased(
    world: World, clock: SetClock, *, whole_user: bool
) -> None:
    await _say(world, clock, _WAS)
    await _say(world, clock, _IS)
    other = await _say(world, clock, _WAS, user_id=2)
    erasure = world.services.erasure
    await (erasure.erase_user("default", 1) if whole_user else erasure.erase_session("default", Session(1)))
    assert await _waiting(world) == [other.id]
    await _read_all(world.services)
    assert await world.connection.fetchval("SELECT count(*) FROM dialogues") == 1


async def test_a_deleted_message_leaves_nothing_to_correct(world: World, clock: SetClock) -> None:
    old = await _say(world, clock, _WAS)
    new = await _say(world, clock, _IS)
    await world.services.dialogues.delete("default", old.id)
    assert await _waiting(world) == [new.id]
    await _read_all(world.services)
    assert await _look(world, new) == _PLAIN


async def test_two_processes_correct_once(
    make_settings: Callable[..., Settings], world: World, clock: SetClock
) -> None:
    pairs = [
        (await _say(world, clock, _WAS, user_id=user), await _say(world, clock, _IS, user_id=user))
        for user in range(1, 9)
    ]
    async with open_services(make_settings(), clock=clock, background=False) as other:
        await asyncio.gather(*(_read_all(one) for one in (world.services, other)))
    for old, new in pairs:
        assert await _look(world, old) == (True, None, new.id)
        assert await _look(world, new) == (False, old.id, None)


def test_what_is_not_queued_is_nothing_that_would_be_read() -> None:
    assert read_correction(_IS) is not None
    assert read_correction(_IS + "。" * (201 - len(_IS))) is None


async def test_only_short_messages_of_users_are_queued(world: World, clock: SetClock) -> None:
    queued = [await _say(world, clock, "早"), await _say(world, clock, "啊" * 200)]
    await _say(world, clock, "啊" * 201)
    await _say(world, clock, "早", role="assistant")
    assert await _waiting(world) == [one.id for one in queued]


async def test_over_http_a_correction_comes_about_by_itself(
    serve: LiveFactory, postgres: EmbeddedPostgres, database_name: str
) -> None:
    async with serve(ids_as_strings=True) as live:
        old = await add(live, _WAS, created_at="2024-01-16T10:00:00")
        assert (old["corrects"], old["corrected_by"]) == (None, None)
        new = await add(live, _IS)

        async def marked() -> bool:
            answer = (await live.client.get(f"/dialogues/{old['id']}")).json()
            return bool(answer["outdated"])

        await eventually(marked)
        answer = (await live.client.get(f"/dialogues/{old['id']}")).json()
        assert (answer["corrects"], answer["corrected_by"]) == (None, new["id"])
        found = (await search(live, "我住在哪里"))["memories"]
        assert [(one["id"], one["corrects"]) for one in found] == [(new["id"], old["id"])]
        answer = await live.client.patch(f"/dialogues/{old['id']}", json={"outdated": False})
        assert (answer.json()["outdated"], answer.json()["corrected_by"]) == (False, None)
        await live.client.post("/dialogues", json=message("好"))

        async def read() -> bool:
            return not await fetch(postgres, database_name, "SELECT FROM correction_jobs")

        await eventually(read)
        assert (await live.client.get(f"/dialogues/{new['id']}")).json()["corrects"] is None
