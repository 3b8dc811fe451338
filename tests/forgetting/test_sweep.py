"""A sweep deletes what it should, all of it, with everything that stands beside it, and nothing else."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.dialogues.records import Kind, NewDialogue, Session
from app.forgetting.sweep import Forgotten
from app.services import Services, open_services
from app.settings import Settings
from tests.forgetting.conftest import SetClock
from tests.live import eventually
from tests.recall.planting import Planted, World

_RUNS = count(1)
_INSTANT = timedelta(microseconds=1)
_DAYS_90 = timedelta(days=90)
# Ages around the one at which forgetting begins.
_AGES = st.sampled_from([timedelta(0), _DAYS_90 - _INSTANT, _DAYS_90, _DAYS_90 + _INSTANT, _DAYS_90 * 4])


@st.composite
def _messages(draw: st.DrawFn) -> dict[str, object]:
    return {
        "namespace": draw(st.sampled_from(["a", "b"])),
        "said": draw(_AGES),
        "stored": draw(_AGES),
        "retrieved": draw(st.none() | _AGES),
        "ends_in": draw(st.none() | st.sampled_from([-_DAYS_90, -_INSTANT, timedelta(0), _INSTANT])),
        "pinned": draw(st.booleans()),
        "score": draw(st.none() | st.sampled_from([0, 90, 91, 100])),
        "kind": draw(st.sampled_from(["chat", "chat", "fact", "preference", "decision"])),
        "outdated": draw(st.booleans()),
    }


def _fate(one: dict[str, object]) -> str:
    """What is to become of a message, in the words of the contract."""
    if one["ends_in"] is not None and one["ends_in"] <= timedelta(0):  # type: ignore[operator]
        return "expired"
    ages = [one["said"], one["stored"]] + ([one["retrieved"]] if one["retrieved"] is not None else [])
    lasting = one["pinned"] or (one["score"] or 0) >= 91 or one["kind"] != "chat"  # type: ignore[operator]
    return "unretrieved" if min(ages) > _DAYS_90 and not lasting else "kept"  # type: ignore[type-var,operator]


async def _lay(world: World, one: dict[str, object], *, now: datetime, namespace: str) -> int:
    ends_in = one["ends_in"]
    (key,) = await world.plant(
        [
            Planted(
                "话",
                now - one["said"],  # type: ignore[operator]
                namespace=namespace,
                pinned=bool(one["pinned"]),
                score=one["score"],  # type: ignore[arg-type]
                outdated=bool(one["outdated"]),
                expires_at=None if ends_in is None else now + ends_in,  # type: ignore[operator]
            )
        ]
    )
    await world.connection.execute(
        "UPDATE dialogues SET kind = $2, stored_at = $3 WHERE id = $1",
        key,
        one["kind"],
        now - one["stored"],  # type: ignore[operator]
    )
    if one["retrieved"] is not None:
        await world.connection.execute(
            "INSERT INTO retrievals VALUES ($1, $2)",
            key,
            now - one["retrieved"],  # type: ignore[operator]
        )
    return key


async def _ids(world: World) -> set[int]:
    return {row["id"] for row in await world.connection.fetch("SELECT id FROM dialogues")}


async def _age(world: World, clock: SetClock, days: float, *, kind: Kind = "chat") -> None:
    """Let everything that is stored be that old, never retrieved, and of a kind."""
    await world.connection.execute(
        "UPDATE dialogues SET kind = $1, created_at = $2, stored_at = $2 WHERE kind <> 'summary'",
        kind,
        clock.now - timedelta(days=days),
    )


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_messages(), max_size=12))
async def test_what_goes_is_what_a_model_says(
    world: World, clock: SetClock, messages: list[dict[str, object]]
) -> None:
    run = next(_RUNS)
    fates: dict[int, tuple[str, str]] = {}
    for one in messages:
        namespace = f"{one['namespace']}{run}"
        fates[await _lay(world, one, now=clock.now, namespace=namespace)] = (namespace, _fate(one))
    others = await _ids(world) - fates.keys()
    for namespace in (f"a{run}", f"b{run}"):
        expected = Forgotten(
            *(list(fates.values()).count((namespace, reason)) for reason in ("expired", "unretrieved"))
        )
        before = await _ids(world)
        assert await world.services.sweep.count(namespace) == expected
        assert await _ids(world) == before
        assert await world.services.sweep.forget(namespace) == expected
        assert await world.services.sweep.count(namespace) == Forgotten(0, 0)
    kept = {key for key, (_, fate) in fates.items() if fate == "kept"}
    assert await _ids(world) == kept | others


async def test_zero_days_forgets_only_what_has_expired(
    make_settings: Callable[..., Settings], world: World, clock: SetClock
) -> None:
    await world.plant([Planted("旧"), Planted("过期", expires_at=clock.now)])
    await _age(world, clock, 5000)
    async with open_services(
        make_settings(forget_unretrieved_days=0), clock=clock, background=False
    ) as services:
        assert await services.sweep.count(None) == Forgotten(1, 0)
        assert await services.sweep.forget(None) == Forgotten(1, 0)


async def test_all_that_stands_beside_a_message_goes_with_it(world: World, clock: SetClock) -> None:
    of = Session(1)
    gone = (await world.services.dialogues.add("default", NewDialogue(1, "user", "旧的"))).dialogue
    kept = (await world.services.dialogues.add("default", NewDialogue(1, "user", "新的"))).dialogue
    for key in (gone.id, kept.id):
        await world.connection.execute("INSERT INTO retrievals VALUES ($1, $2)", key, clock.now - _DAYS_90)
        await world.connection.execute(
            "INSERT INTO correction_jobs (dialogue_id) VALUES ($1) ON CONFLICT DO NOTHING", key
        )
    await world.connection.execute(
        "UPDATE dialogues SET expires_at = $2 WHERE id = $1", gone.id, clock.now - _INSTANT
    )
    assert await world.services.sweep.forget(None) == Forgotten(1, 0)
    for table in ("embedding_jobs", "retrievals", "correction_jobs"):
        left = await world.connection.fetch(f"SELECT dialogue_id FROM {table}")
        assert [row["dialogue_id"] for row in left] == [kept.id], table
    window = await world.services.sessions.window("default", of)
    assert [(one.content, one.dialogue_id) for one in window] == [("新的", kept.id)]
    # What only nobody asked for may still be talked about: the conversation is a tier of its own.
    await world.connection.execute(
        "UPDATE dialogues SET stored_at = $1, created_at = $1 WHERE id = $2",
        clock.now - 2 * _DAYS_90,
        kept.id,
    )
    await world.connection.execute("DELETE FROM retrievals")
    assert await world.services.sweep.forget(None) == Forgotten(0, 1)
    window = await world.services.sessions.window("default", of)
    assert [(one.content, one.dialogue_id) for one in window] == [("新的", None)]


async def _summarise(world: World, clock: SetClock, *, user_id: int, group_id: int | None = None) -> int:
    new = NewDialogue(user_id, "assistant", "他们谈了天气", group_id=group_id, kind="summary")
    stored = (await world.services.dialogues.add("default", new)).dialogue
    await world.connection.execute("DELETE FROM window_messages WHERE dialogue_id = $1", stored.id)
    await world.connection.execute(
        "INSERT INTO summaries (namespace, user_id, group_id, dialogue_id, content, since, until, messages,"
        " created_at) VALUES ('default', $1, $2, $3, '他们谈了天气', $4, $4, 2, $4)",
        user_id,
        group_id,
        stored.id,
        clock.now,
    )
    return stored.id


async def test_summaries_stay_as_long_as_their_session_lives(world: World, clock: SetClock) -> None:
    silent = await _summarise(world, clock, user_id=1)
    await _summarise(world, clock, user_id=1, group_id=7)
    clock.advance(days=60)
    await world.services.dialogues.add("default", NewDialogue(1, "user", "还在", group_id=7))
    clock.advance(days=31)
    assert await world.services.sweep.count(None) == Forgotten(0, 1)
    await world.services.sweep.forget(None)
    assert silent not in await _ids(world)
    assert await world.services.summaries.list_all("default", Session(1)) == []
    assert len(await world.services.summaries.list_all("default", Session(1, 7))) == 1


async def test_a_sweep_goes_on_over_what_stays(world: World, clock: SetClock) -> None:
    keys = await world.plant([Planted(f"第{number}条") for number in range(2600)])
    await _age(world, clock, 100)
    # A whole batch of old messages was asked for since, and is gone through without an end.
    await world.connection.execute(
        "INSERT INTO retrievals SELECT unnest($1::bigint[]), $2", keys[:1100], clock.now
    )
    assert await world.services.sweep.count(None) == Forgotten(0, 1500)
    assert await world.services.sweep.forget(None) == Forgotten(0, 1500)
    assert await _ids(world) == set(keys[:1100])
    text = world.services.metrics.registry.get_sample_value(
        "memory_forgotten_total", {"reason": "unretrieved"}
    )
    assert text == 1500


async def test_what_a_sweep_leaves_behind_is_cleaned_up(world: World, clock: SetClock) -> None:
    await world.plant([Planted("话", expires_at=clock.now)])
    await world.services.sweep.forget(None)
    await world.services.sweep.vacuum()

    async def vacuumed() -> bool:
        times = await world.connection.fetchval(
            "SELECT vacuum_count FROM pg_stat_user_tables WHERE relname = 'dialogues'"
        )
        return bool(times == 1)

    await eventually(vacuumed)
    await world.services.sweep.vacuum()
    assert await vacuumed()


_TURN = """
    INSERT INTO turns (turn_id, namespace, user_id, message_uuid, written_hash, user_content, reply, status,
        available_at, created_at)
    VALUES ($1, 'default', 1, $1, 0, '话', $2, $3, $4, $4)
"""


async def test_old_turns_go_once_they_are_judged(world: World, clock: SetClock) -> None:
    month = timedelta(days=30)
    for name, reply, status, age in (
        ("old", "好", "scored", month + _INSTANT),
        ("unscored", "好", "unscored", month + _INSTANT),
        ("failed", None, "failed", month + _INSTANT),
        ("waiting", "好", "pending", month * 2),
        ("young", "好", "scored", month),
    ):
        await world.connection.execute(_TURN, name, reply, status, clock.now - age)
    await world.services.sweep.forget("default")
    assert await world.connection.fetchval("SELECT count(*) FROM turns") == 5
    await world.services.sweep.forget(None)
    left = {row["turn_id"] for row in await world.connection.fetch("SELECT turn_id FROM turns")}
    assert left == {"waiting", "young"}


@pytest.mark.parametrize("reason", ["expired", "unretrieved"])
async def test_sweeping_erasing_and_recalling_at_once_does_not_fail(
    world: World, clock: SetClock, reason: str
) -> None:
    services: Services = world.services
    for _ in range(5):
        expires_at = clock.now if reason == "expired" else None
        keys = await world.plant([Planted(f"第{number}条", expires_at=expires_at) for number in range(300)])
        await _age(world, clock, 100)
        await world.connection.execute(
            "INSERT INTO retrievals SELECT unnest($1::bigint[]), $2", keys, clock.now - _DAYS_90 * 2
        )
        services.retrievals.note(keys)
        outcomes = await asyncio.gather(
            services.sweep.forget(None),
            services.erasure.erase_session("default", Session(1)),
            services.sweep.forget("default"),
            services.erasure.erase_user("default", 1),
            services.retrievals.flush(),
            world.search("第3条"),
        )
        # What is recorded before a sweep comes to it, that sweep keeps; an erasure keeps nothing.
        gone = sum(getattr(one, reason, 0) + getattr(one, "dialogues", 0) for one in outcomes)
        assert gone == 300
