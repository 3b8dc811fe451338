"""The SQL of forgetting."""

from sqlalchemy import text

from app.database.engine import WriteSession
from app.dialogues.records import Session
from app.dialogues.store import erasure_condition, erasure_values


async def erase_companions(session: WriteSession, namespace: str, of: Session | int) -> None:
    """Delete what stands beside a session's messages, or all of a user's: retrievals, pending corrections."""
    values = {"namespace": namespace, **erasure_values(of)}
    for table in ("retrievals", "correction_jobs"):
        await session.execute(
            text(
                f"DELETE FROM {table} WHERE dialogue_id IN"
                f" (SELECT id FROM dialogues WHERE {erasure_condition(of)})"
            ),
            values,
        )
