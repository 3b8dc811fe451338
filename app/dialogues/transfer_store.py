"""The SQL of an export."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text

from app.database.engine import ReadSession
from app.dialogues.records import Dialogue
from app.dialogues.store import DIALOGUE_COLUMNS, read_dialogue


@dataclass(frozen=True, slots=True)
class ExportScope:
    """Whose messages: a user's in private and in every group, a whole group's, one member's, or all."""

    user_id: int | None = None
    group_id: int | None = None


async def read_export_page(
    session: ReadSession,
    namespace: str,
    scope: ExportScope,
    *,
    after: Dialogue | None,
    limit: int,
    now: datetime,
) -> list[Dialogue]:
    """Unexpired messages by (session, `created_at`, `id`), private sessions as group 0, after one of them."""
    conditions = ["d.namespace = :namespace", "d.visible_until > :now"]
    values: dict[str, Any] = {"namespace": namespace, "now": now, "limit": limit}
    if scope.user_id is not None:
        conditions.append("d.user_id = :user_id")
        values["user_id"] = scope.user_id
    if scope.group_id is not None:
        conditions.append("d.group_key = :group_id")
        values["group_id"] = scope.group_id
    if after is not None:
        conditions.append(
            "(d.group_key, d.user_id, d.created_at, d.id) > (CAST(:after_group AS bigint),"
            " CAST(:after_user AS bigint), CAST(:after_at AS timestamptz), CAST(:after_id AS bigint))"
        )
        values |= {
            "after_group": after.session.group_key,
            "after_user": after.user_id,
            "after_at": after.created_at,
            "after_id": after.id,
        }
    rows = await session.execute(
        text(
            f"SELECT {DIALOGUE_COLUMNS} FROM dialogues d WHERE {' AND '.join(conditions)}"
            " ORDER BY d.group_key, d.user_id, d.created_at, d.id LIMIT :limit"
        ),
        values,
    )
    return [read_dialogue(row) for row in rows]
