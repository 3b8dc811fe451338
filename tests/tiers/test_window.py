"""The hot window: the conversation that is going on, newest first kept, within its budget."""

from datetime import UTC, datetime, timedelta
from itertools import count
from zoneinfo import ZoneInfo

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.clock import utc_now
from app.database.embedded import EmbeddedPostgres
from app.dialogues.records import NewDialogue, Session
from app.services import Services
from app.tiers.service import SessionService
from app.tiers.summary_service import SummaryService
from tests.conftest import LiveFactory, LiveService
from tests.live import add, add_batch, fetch, message

_USERS = count(1000)


def ago(**span: float) -> str:
    return (datetime.now(UTC) - timedelta(**span)).isoformat()


async def contents(live: LiveService, key: str = "1") -> list[str]:
    answer = await live.client.get(f"/sessions/{key}/window")
    assert answer.status_code == 200
    window = answer.json()
    assert window["token_count"] == sum(one["token_count"] for one in window["messages"])
    return [one["content"] for one in window["messages"]]


async def test_live_messages_enter_and_imports_do_not(live_service: LiveService) -> None:
    await add(live_service, "现在说的")
    await add(live_service, "刚才说的", created_at=ago(minutes=30), sender_name="小明", role="assistant")
    await add(live_service, "早就说的", created_at=ago(hours=2))
    await add(live_service, "去年说的", created_at="2024-01-16T10:30:15")
    await add(live_service, "群里说的", group_id=-5)
    await add(live_service, "别人说的", user_id=11)
    assert await contents(live_service) == ["刚才说的", "现在说的"]
    assert await contents(live_service, "-5:1") == ["群里说的"]
    assert await contents(live_service, "12") == []
    first = (await live_service.client.get("/sessions/1/window")).json()["messages"][0]
    assert (first["role"], first["sender_name"]) == ("assistant", "小明")


async def test_what_has_expired_already_does_not_enter(
    live_service: LiveService, postgres: EmbeddedPostgres, database_name: str
) -> None:
    await add_batch(
        live_service,
        [message("过期的", expires_at=ago(minutes=1)), message("未过期的", expires_at="2099-01-01")],
    )
    rows = await fetch(postgres, database_name, "SELECT content FROM window_messages")
    assert [row["content"] for row in rows] == ["未过期的"]


async def test_a_retry_does_not_enter_twice(live_service: LiveService) -> None:
    for _ in range(3):
        await live_service.client.post("/dialogues", json=message("一次", message_id=1))
    await add_batch(live_service, [message("两次", message_uuid="a"), message("两次", message_uuid="a")])
    assert await contents(live_service) == ["一次", "两次"]


async def test_a_deleted_message_leaves(live_service: LiveService) -> None:
    stored = await add(live_service, "说错了")
    await add(live_service, "说对了")
    await live_service.client.delete(f"/dialogues/{stored['id']}")
    assert await contents(live_service) == ["说对了"]


async def test_a_junk_key_is_refused(live_service: LiveService) -> None:
    for key in ("0", "*", "1:0", "0:1", "-1", "1:-1", "x", str(2**63)):
        assert (await live_service.client.get(f"/sessions/{key}/window")).status_code == 422, key


async def test_a_window_of_no_tokens_is_empty(serve: LiveFactory) -> None:
    async with serve(hot_window_tokens=0) as live:
        await add(live)
        assert await contents(live) == []


async def test_a_newest_message_over_the_budget_is_cut_to_it(serve: LiveFactory) -> None:
    async with serve(hot_window_tokens=5) as live:
        await add(live, "早先的")
        await add(live, "很长的一段话，一口气说了许多许多许多许多")
        window = (await live.client.get("/sessions/1/window")).json()
        assert len(window["messages"]) == 1
        assert window["messages"][0]["content"].startswith("很长")
        assert 0 < window["token_count"] <= 5


async def test_what_has_expired_is_not_shown(live_service: LiveService) -> None:
    await add(live_service, "过期的", expires_at="2024-01-16")
    stored = await add(live_service, "将过期的", expires_at="2099-01-16")
    assert await contents(live_service) == ["将过期的"]
    await live_service.client.patch(f"/dialogues/{stored['id']}", json={"expires_at": "2024-01-16"})
    assert await contents(live_service) == []


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    said=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 9)), max_size=12),
    budget=st.integers(8, 120),
)
async def test_a_window_is_the_newest_that_fit_together(
    services: Services,
    postgres: EmbeddedPostgres,
    database_name: str,
    *,
    said: list[tuple[int, int]],
    budget: int,
) -> None:
    """Said are lengths and minutes; without a model, compression drops exactly what reading does not show."""
    session = Session(next(_USERS))
    now = datetime.now(UTC) - timedelta(minutes=20)
    stored = await services.dialogues.add_many(
        "bot",
        [
            NewDialogue(session.user_id, "user", "hello " * words, created_at=now + timedelta(minutes=minute))
            for words, minute in said
        ],
    )
    in_order = sorted(
        (one.dialogue for one in stored), key=lambda dialogue: (dialogue.created_at, dialogue.id)
    )
    expected: list[int] = []
    for dialogue in reversed(in_order):
        taken = sum(one.token_count for one in in_order if one.id in expected)
        if expected and taken + dialogue.token_count > budget:
            break
        expected.insert(0, dialogue.id)
    database = services.sessions._database
    sessions = SessionService(database=database, hot_window_tokens=budget, clock=utc_now)
    assert [one.dialogue_id for one in await sessions.window("bot", session)] == expected
    summaries = SummaryService(
        database=database,
        model=None,
        pipeline=services.dialogues._embedding,
        clock=utc_now,
        metrics=services.metrics,
        zone=ZoneInfo("Asia/Shanghai"),
        hot_window_tokens=budget,
        max_chars=200,
    )
    while await summaries.work_once():
        pass
    left = await fetch(
        postgres,
        database_name,
        "SELECT dialogue_id FROM window_messages WHERE user_id = $1 ORDER BY created_at, id",
        session.user_id,
    )
    assert [row["dialogue_id"] for row in left] == expected
