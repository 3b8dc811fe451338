"""The SQL of keys."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import text

from app.access.callers import Role
from app.access.keys import KeyRecord
from app.database.engine import ReadSession, WriteSession

_COLUMNS = "id, namespace, role, prefix, label, created_at, last_used_at, revoked_at"


async def insert_key(
    session: WriteSession,
    *,
    namespace: str | None,
    role: Role,
    prefix: str,
    digest: bytes,
    label: str | None,
    now: datetime,
) -> KeyRecord | None:
    """Keep a new key's digest; None where the prefix is another key's."""
    row = (
        await session.execute(
            text(
                "INSERT INTO api_keys (namespace, role, prefix, digest, label, created_at)"
                " VALUES (:namespace, :role, :prefix, :digest, :label, :now)"
                f" ON CONFLICT (prefix) DO NOTHING RETURNING {_COLUMNS}"
            ),
            {
                "namespace": namespace,
                "role": role,
                "prefix": prefix,
                "digest": digest,
                "label": label,
                "now": now,
            },
        )
    ).one_or_none()
    return _read(row) if row else None


async def revoke_keys(
    session: WriteSession, *, prefix: str | None, namespace: str | None, now: datetime
) -> list[KeyRecord]:
    """Revoke the key with this prefix, or all of a namespace; those that were revoked by this.

    Args:
        session: to write in.
        prefix: None: any.
        namespace: None: any; of the two, one at least is given.
        now: from when on it opens nothing.
    """
    rows = await session.execute(
        text(
            "UPDATE api_keys SET revoked_at = :now WHERE revoked_at IS NULL"
            " AND (prefix = :prefix OR (CAST(:prefix AS text) IS NULL AND namespace IS NOT NULL))"
            " AND (namespace = :namespace OR CAST(:namespace AS text) IS NULL)"
            " AND (CAST(:prefix AS text) IS NOT NULL OR CAST(:namespace AS text) IS NOT NULL)"
            f" RETURNING {_COLUMNS}"
        ),
        {"prefix": prefix, "namespace": namespace, "now": now},
    )
    return [_read(row) for row in rows]


async def list_keys(session: ReadSession, *, namespace: str | None) -> list[KeyRecord]:
    """Keys by (namespace, creation), those of admins last; of one namespace, or all.

    Args:
        session: to read in.
        namespace: None: all.
    """
    rows = await session.execute(
        text(
            f"SELECT {_COLUMNS} FROM api_keys"
            " WHERE CAST(:namespace AS text) IS NULL OR namespace = :namespace ORDER BY namespace, id"
        ),
        {"namespace": namespace},
    )
    return [_read(row) for row in rows]


async def read_digests(session: ReadSession) -> tuple[dict[bytes, KeyRecord], bool]:
    """The keys that open, by digest; and whether there has ever been one."""
    rows = await session.execute(text(f"SELECT {_COLUMNS}, digest FROM api_keys WHERE revoked_at IS NULL"))
    keys = {bytes(row.digest): _read(row) for row in rows}
    if keys:
        return keys, True
    return keys, bool(await session.scalar(text("SELECT EXISTS (SELECT FROM api_keys)")))


async def record_use(session: WriteSession, used: Sequence[tuple[int, datetime]]) -> None:
    """Note when keys were last used, given by id in order."""
    await session.execute(
        text(
            """
            UPDATE api_keys k SET last_used_at = given.at
            FROM unnest(CAST(:ids AS bigint[]), CAST(:ats AS timestamptz[])) AS given (id, at)
            WHERE k.id = given.id AND (k.last_used_at IS NULL OR k.last_used_at < given.at)
            """
        ),
        {"ids": [key for key, _ in used], "ats": [at for _, at in used]},
    )


def _read(row: Sequence[Any]) -> KeyRecord:
    return KeyRecord(*row[:8])
