"""The SQL of calibrations, which are kept with the model that they are of."""

from typing import Any

import orjson
from sqlalchemy import text

from app.database.engine import ReadSession, WriteSession


async def read_calibration(session: ReadSession, model_id: int) -> Any:
    """What was stored last, as JSON; None where nothing was."""
    found = await session.execute(
        text("SELECT CAST(calibration AS text) FROM embedding_models WHERE id = :id"), {"id": model_id}
    )
    written = found.scalar_one_or_none()
    return None if written is None else orjson.loads(written)


async def store_calibration(session: WriteSession, model_id: int, calibration: dict[str, Any]) -> None:
    """Keep it in place of what was there."""
    await session.execute(
        text("UPDATE embedding_models SET calibration = CAST(:calibration AS jsonb) WHERE id = :id"),
        {"id": model_id, "calibration": orjson.dumps(calibration).decode()},
    )
