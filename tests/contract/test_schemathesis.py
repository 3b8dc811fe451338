"""Every operation of the OpenAPI document, asked with what it allows and with what it does not."""

import asyncio
import os
import sys
from pathlib import Path

from app.database.embedded import EmbeddedPostgres
from tests.doubles.chat_fixtures import ChatProvider
from tests.live import message
from tests.processes import StartService

_SCHEMATHESIS = Path(sys.executable).with_name("schemathesis")
_KEY = "key-of-the-contract"
_NOT_APPLICABLE = (
    # What JSON Schema can not say is refused, too: blank text, unknown zones, 3.0 for an integer.
    "positive_data_acceptance,"
    # The path of POST /dialogues/batch is also one of PATCH /dialogues/{id}, with a bad id: 422, not 405.
    "unsupported_method,allow_header_conformance"
)


async def test_every_operation_keeps_its_document(
    run_service: StartService,
    postgres: EmbeddedPostgres,
    database_name: str,
    chat_provider: ChatProvider,
    tmp_path: Path,
) -> None:
    keys = f"contract={_KEY},other=key-of-another"
    async with run_service(
        api_keys=keys,
        database_url=postgres.dsn_for(database_name),
        log_level="ERROR",
        chat_base_url=chat_provider.base_url,
        chat_api_key=chat_provider.key,
        chat_model=chat_provider.model,
    ) as live:
        live.client.headers["Authorization"] = f"Bearer {_KEY}"
        await live.client.post("/dialogues", json=message("我的订单号是ORD123456", wait=True))
        checking = await asyncio.create_subprocess_exec(
            _SCHEMATHESIS,
            "run",
            f"{live.url}/openapi.json",
            *("--header", f"Authorization: Bearer {_KEY}"),
            *("--checks", "all", "--exclude-checks", _NOT_APPLICABLE),
            *("--phases", "examples,coverage,fuzzing", "--max-examples", "10", "--seed", "1"),
            *("--workers", "1", "--warnings", "off"),
            *("--suppress-health-check", "all", "--generation-database", "none", "--no-color"),
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output = (await checking.communicate())[0].decode()
        log = (tmp_path / "service0.log").read_text()
        assert checking.returncode == 0, f"{output}\n{log[-20_000:]}"
        assert "Tested: " in output
        # It is still there, and all that was thrown at it is in one namespace.
        assert (await live.client.get("/health/ready")).status_code in {200, 503}
        other = {"Authorization": "Bearer key-of-another"}
        assert (await live.client.get("/sessions", headers=other)).json()["sessions"] == []
