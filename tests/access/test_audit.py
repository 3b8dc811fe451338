"""The audit log: each erasure once, with who and how much, and nothing that anybody said."""

import pytest
from sqlalchemy.exc import DBAPIError

from app.access import audit_store
from app.access.audit_store import Deed
from app.access.callers import PROGRAM
from app.database.embedded import EmbeddedPostgres
from app.dialogues.records import NewDialogue, Session
from app.errors import NotFoundError
from app.services import Services
from tests.conftest import LiveFactory
from tests.live import fetch, message

SECRET = "西瓜是秘密"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def test_every_erasure_over_http_is_told_of_with_its_caller_and_request(
    serve: LiveFactory, postgres: EmbeddedPostgres, database_name: str
) -> None:
    async with serve(api_keys="a=key-of-settings") as live:
        access = live.services.access
        key = await access.create_key(namespace="a", role="bot")
        admin = await access.create_key(namespace=None, role="admin")
        live.services.keyring._known = None
        bodies = [
            message(SECRET, user_id=1, sender_name=SECRET),
            message(SECRET, user_id=1, group_id=-5),
            message(SECRET, user_id=2),
            message(SECRET, user_id=3, expires_at="2020-01-01T00:00:00Z"),
        ]
        ids = []
        for body in bodies:
            answer = await live.client.post("/dialogues", json=body, headers=bearer(key.text))
            assert answer.status_code == 201, answer.text
            ids.append(answer.json()["id"])
        for method, path, by in (
            ("DELETE", f"/dialogues/{ids[0]}", key.text),
            ("DELETE", f"/dialogues/{ids[0]}", key.text),  # 404: nothing is done, nothing is told
            ("DELETE", "/sessions/-5:1", "key-of-settings"),
            ("DELETE", "/users/2", key.text),
            ("POST", "/maintenance/forget", admin.text),
            ("POST", "/maintenance/forget", admin.text),  # nothing is left to forget
        ):
            headers = bearer(by) | {"X-Request-ID": f"{method}{path}"}
            answer = await live.client.request(
                method, path, json={} if method == "POST" else None, headers=headers
            )
            assert answer.status_code in {200, 204, 404}, answer.text
        deeds = [entry for entry in await access.list_deeds() if not entry.deed.action.startswith("key_")]
        assert [
            (one.deed.action, one.actor.name, one.actor.request_id, one.deed.user_id, one.deed.group_id)
            for one in reversed(deeds)
        ] == [
            ("dialogue_deleted", key.prefix, f"DELETE/dialogues/{ids[0]}", 1, None),
            ("session_erased", "env:a/1", "DELETE/sessions/-5:1", 1, -5),
            ("user_erased", key.prefix, "DELETE/users/2", 2, None),
            ("memory_forgotten", admin.prefix, "POST/maintenance/forget", None, None),
        ]
        assert deeds[1].deed.counts == {"dialogues": 1, "window_messages": 1, "summaries": 0, "turns": 0}
        assert deeds[0].deed.counts == {"expired": 1, "unretrieved": 0}
        assert {one.deed.namespace for one in deeds} == {"a", None}
        assert all(one.deed.namespace == "a" for one in await access.list_deeds(namespace="a"))
        assert await access.list_deeds(namespace="b") == []
    rows = await fetch(postgres, database_name, "SELECT a::text AS line FROM audit_log a")
    assert not [row for row in rows if SECRET in row["line"] or "西瓜" in row["line"]]


async def test_what_is_not_done_is_not_told(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = await services.dialogues.add("a", NewDialogue(user_id=1, role="user", content=SECRET))
    with pytest.raises(NotFoundError):
        await services.dialogues.delete("b", stored.dialogue.id)
    assert await services.access.list_deeds() == []

    async def fail(session: object, deed: Deed, **_more: object) -> None:
        wrong = Deed("no such action", deed.namespace)  # type: ignore[arg-type]
        await audit_store.record_deed(session, wrong, by=PROGRAM)  # type: ignore[arg-type]

    # And what cannot be told is not done.
    for module in ("app.dialogues.service", "app.forgetting.erasure"):
        monkeypatch.setattr(f"{module}.record_deed", fail)
    with pytest.raises(DBAPIError):
        await services.dialogues.delete("a", stored.dialogue.id)
    with pytest.raises(DBAPIError):
        await services.erasure.erase_session("a", Session(1))
    assert (await services.dialogues.get("a", stored.dialogue.id)).content == SECRET
