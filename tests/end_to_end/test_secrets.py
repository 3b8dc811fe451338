"""A key that is put anywhere, by anybody, shows in no log, no error and no metric."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.database.embedded import EmbeddedPostgres
from app.settings import load_settings
from tests.doubles.chat_fixtures import ChatProvider
from tests.live import fetch
from tests.processes import StartService, run_service

__all__ = ["run_service"]

# One that looks like nothing: only its value tells that it is a secret.
PLAIN = "correct.horse-battery_staple"
PROVIDER = "another.plain~secret0"
SECRETS = (PLAIN, PROVIDER)


def requests(secret: str) -> list[dict[str, Any]]:
    """Every place of a request that a secret can get into by mistake."""
    message = {"user_id": 1, "role": "user", "content": "你好"}
    return [
        {"method": "GET", "url": f"/{secret}"},
        {"method": "GET", "url": f"/dialogues/{secret}"},
        {"method": "GET", "url": f"/sessions/{secret}/window"},
        {"method": "GET", "url": f"/chat/turns/{secret}"},
        {"method": "GET", "url": f"/problems/{secret}"},
        {"method": "DELETE", "url": f"/users/{secret}"},
        {"method": "GET", "url": "/sessions", "params": {"cursor": secret}},
        {"method": "GET", "url": "/sessions", "params": {"limit": secret, secret: secret}},
        {"method": "GET", "url": "/stats", "params": {"namespace": secret}},
        {"method": secret.replace(".", "-").replace("~", "-"), "url": "/sessions"},
        {"method": "GET", "url": "/sessions", "headers": {"X-Request-ID": secret}},
        {"method": "GET", "url": "/sessions", "headers": {"X-Request-ID": f"Bearer-{secret}"}},
        {"method": "GET", "url": "/sessions", "headers": {"Host": secret, "User-Agent": secret}},
        {"method": "GET", "url": "/sessions", "headers": {"Origin": secret, "Referer": f"http://{secret}/"}},
        {"method": "GET", "url": "/sessions", "headers": {"Authorization": f"Bearer {secret}x"}},
        {"method": "GET", "url": "/sessions", "headers": {"Authorization": f"Basic {secret}"}},
        {"method": "GET", "url": "/sessions", "headers": {"Authorization": secret}},
        {
            "method": "GET",
            "url": "/sessions",
            "headers": {"X-Api-Key": secret, secret.replace("~", "-"): "1"},
        },
        {"method": "POST", "url": "/dialogues", "json": message | {secret: secret}},
        {"method": "POST", "url": "/dialogues", "json": message | {"role": secret}},
        {"method": "POST", "url": "/dialogues", "json": message | {"user_id": secret}},
        {"method": "POST", "url": "/dialogues", "json": message | {"created_at": secret}},
        {"method": "POST", "url": "/dialogues", "json": message | {"message_uuid": [secret]}},
        {"method": "POST", "url": "/dialogues/batch", "json": {"dialogues": [{secret: 1}, secret]}},
        {
            "method": "POST",
            "url": "/memory/search",
            "json": {"user_id": 1, "query": "你好", "timezone": secret},
        },
        {"method": "POST", "url": "/memory/search", "json": {"user_id": 1, "query": secret, "mode": secret}},
        {
            "method": "POST",
            "url": "/dialogues",
            "content": secret,
            "headers": {"Content-Type": "application/json"},
        },
        {"method": "POST", "url": "/dialogues", "content": secret, "headers": {"Content-Type": secret}},
    ]


@pytest.mark.parametrize("is_keyed", [True, False], ids=["with a key", "without"])
async def test_no_secret_shows_wherever_it_is_put(
    run_service: StartService, postgres: EmbeddedPostgres, database_name: str, tmp_path: Path, is_keyed: bool
) -> None:
    settings = {
        "database_url": postgres.dsn_for(database_name),
        "log_level": "DEBUG",
        "api_keys": f"a={PLAIN}",
        "chat_base_url": "http://127.0.0.1:9/v1",
        "chat_model": "m",
        "chat_api_key": PROVIDER,
        "rate_limit": "1000/minute",
    }
    refused = 0
    async with run_service(**settings) as service:
        own = {"Authorization": f"Bearer {PLAIN}"} if is_keyed else {}
        for secret in SECRETS:
            for request in requests(secret):
                headers = own | request.pop("headers", {})
                answer = await service.client.request(**request, headers=headers)
                assert answer.status_code != 500
                if answer.status_code >= 400:
                    refused += 1
                    for one in SECRETS:
                        assert one not in answer.text, (request, answer.text)
                        assert one not in str(answer.headers.get("x-request-id"))
        chat = {"user_id": 1, "user_input": "你好"}
        assert (await service.client.post("/chat", json=chat, headers=own)).status_code in {401, 502}
        metrics = (await service.client.get("/metrics")).text
    log = (tmp_path / "service0.log").read_text(encoding="utf-8")
    assert refused > 40
    assert len(log.splitlines()) > 50
    for secret in SECRETS:
        assert secret not in log
        assert secret not in metrics
    assert all(json.loads(line) for line in log.splitlines() if line.startswith("{"))


async def test_nothing_that_was_said_stands_in_the_log(
    run_service: StartService,
    postgres: EmbeddedPostgres,
    database_name: str,
    tmp_path: Path,
    chat_provider: ChatProvider,
) -> None:
    """All is well; a provider fails and says what it was asked; a table is gone; a row is refused."""
    said = "西瓜暗号XYZZY"
    settings = {
        "database_url": postgres.dsn_for(database_name),
        "log_level": "INFO",
        "chat_base_url": chat_provider.base_url,
        "chat_model": chat_provider.model,
        "chat_api_key": chat_provider.key,
    }
    message = {"user_id": 1, "role": "user", "content": said, "sender_name": said}
    query = {"user_id": 1, "query": said, "keywords": [said]}
    requests: list[tuple[str, dict[str, Any]]] = [
        ("/dialogues", message),
        ("/dialogues", message | {"message_uuid": "u-1", "wait": True}),
        ("/dialogues", message | {"message_uuid": "u-1", "content": f"另一句{said}"}),
        ("/dialogues/batch", {"dialogues": [message, message | {"user_id": 2}]}),
        ("/dialogues", message | {"user_id": 0}),
        ("/memory/search", query),
        ("/memory/prompt", query | {"system_prompt": said}),
        ("/chat", {"user_id": 1, "user_input": said, "assistant_name": said, "system_prompt": said}),
        ("/chat", {"user_id": 2, "user_input": said, "stream": True}),
    ]
    async with run_service(**settings) as service:
        for rules in ([], [{"times": None, "status": 400, "body": {"message": f"cannot take {said}"}}]):
            chat_provider.control(*rules)
            for path, body in requests:
                await service.client.post(path, json=body)
        await fetch(postgres, database_name, "ALTER TABLE embedding_jobs RENAME TO gone_jobs")
        assert (await service.client.post("/dialogues", json=message)).status_code == 500
        await fetch(postgres, database_name, "ALTER TABLE gone_jobs RENAME TO embedding_jobs")
        await fetch(postgres, database_name, "ALTER TABLE dialogues ADD CHECK (user_id <> 7)")
        assert (await service.client.post("/dialogues", json=message | {"user_id": 7})).status_code == 500
    log = (tmp_path / "service0.log").read_text(encoding="utf-8")
    assert "request_failed" in log
    assert "西瓜" not in log
    assert "XYZZY" not in log


def test_every_secret_of_the_settings_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    given = {
        "api_keys": "a=first-secret-1,b=second-secret-2",
        "database_url": "postgresql://u:p%40ss%2Fw0rd@db.example/m",
        "chat_api_key": "chat-secret-3",
        "evaluation_api_key": "judge-secret-4",
        "embedding_api_key": "embed-secret-5",
    }
    found = set(load_settings(given).secrets())
    assert found == {
        "first-secret-1", "second-secret-2", "p@ss/w0rd", "chat-secret-3", "judge-secret-4", "embed-secret-5",
    }  # fmt: skip
