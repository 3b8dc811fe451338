"""The SQL of what holds a message besides its row: the turn it is half of, the hot window, summaries."""

from collections.abc import Sequence

from sqlalchemy import text

from app.database.engine import WriteSession


async def find_wanted(session: WriteSession, dialogue_ids: Sequence[int]) -> set[int]:
    """Those of these messages that are pinned, or have corrected another."""
    rows = await session.execute(
        text(
            "SELECT id FROM dialogues WHERE id = ANY(CAST(:ids AS bigint[]))"
            " AND (pinned OR corrects IS NOT NULL)"
        ),
        {"ids": list(dialogue_ids)},
    )
    return set(rows.scalars())
