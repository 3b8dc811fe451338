"""Keys: how one is made, recognised and looked up. Pure, but for the operating system's randomness.

A key is `tm_<prefix>_<secret>`. The prefix tells keys apart, and is shown in lists and logs; the secret has
256 bits. Only the SHA-256 of the whole is kept: nothing slower is needed against guessing 256 bits, and a
lookup by it takes no time that depends on how much of a key is right.
"""

import hashlib
import re
import secrets
import string
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.access.callers import Role

_SIGNS: Final = string.ascii_letters + string.digits
_PREFIX_SIGNS: Final = 8
# 62**43 > 2**256.
_SECRET_SIGNS: Final = 43
PREFIX_FORM: Final = re.compile(rf"tm_[A-Za-z0-9]{{{_PREFIX_SIGNS}}}")


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made: `text` is shown once, and kept nowhere."""

    text: str
    prefix: str


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """What is kept of a key.

    Attributes:
        label: what it is for, in the words of who made it.
        last_used_at: to the minute.
        revoked_at: None: it opens.
    """

    id: int
    namespace: str | None
    role: Role
    prefix: str
    label: str | None
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


def make_key() -> NewKey:
    """A key that nobody has."""
    prefix = f"tm_{_draw(_PREFIX_SIGNS)}"
    return NewKey(f"{prefix}_{_draw(_SECRET_SIGNS)}", prefix)


def digest_key(key: str) -> bytes:
    """Returns 32 bytes, by which a key is found.

    Args:
        key: as it came in a header: each sign stands for one byte.
    """
    return hashlib.sha256(key.encode("latin-1")).digest()


def _draw(count: int) -> str:
    return "".join(secrets.choice(_SIGNS) for _ in range(count))
