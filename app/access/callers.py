"""Callers: whose namespace, with what rights, under what name. Pure."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

Role = Literal["bot", "reader", "admin"]
"""`bot` writes, reads and erases its namespace; `reader` reads it; `admin` runs maintenance and counts what
is in any namespace, and sees the content of none."""

ROLES: Final[tuple[Role, ...]] = get_args(Role)
ANONYMOUS_NAMESPACE: Final = "default"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request.

    Attributes:
        namespace: what the key opens; None: no single one, the caller is an admin.
        role: what it may do there.
        name: tells callers apart in logs, limits and the audit log, and opens nothing: a key's prefix,
            `env:<namespace>/<place>` for a key of the setting API_KEYS, or `anonymous`.
    """

    namespace: str | None
    role: Role
    name: str


ANONYMOUS: Final = Caller(ANONYMOUS_NAMESPACE, "bot", "anonymous")


@dataclass(frozen=True, slots=True)
class Actor:
    """Whom the audit log names for what was done, and in which request."""

    name: str
    request_id: str | None = None


PROGRAM: Final = Actor("program")
"""A command, or a program that has the memory inside it: whoever runs it has the database anyway."""
