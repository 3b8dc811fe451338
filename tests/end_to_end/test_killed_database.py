"""The embedded PostgreSQL is killed under a running service."""

import os
import signal
from pathlib import Path

from app.database.cluster import open_cluster
from app.database.server_process import postmaster
from tests.live import add, eventually, search
from tests.processes import StartService


async def test_the_service_starts_its_killed_database_again(
    run_service: StartService, with_provider: dict[str, object], tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    async with run_service(**with_provider, data_dir=data_dir) as live:
        stored = await add(live, "我的订单号是ORD123456", wait=True)
        pid = postmaster(open_cluster(data_dir))
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

        async def is_up_again() -> bool:
            return (
                postmaster(open_cluster(data_dir)) not in {pid, None}
                and (await live.client.get("/health/ready")).status_code == 200
            )

        await eventually(is_up_again)
        found = await search(live, "订单号ORD123456", top_n=1)
        assert [one["id"] for one in found["memories"]] == [stored["id"]]
        assert live.interrupt() == 130
        assert postmaster(open_cluster(data_dir)) is None
