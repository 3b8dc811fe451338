"""How single settings are read from text; what is wrong is a ValueError that does not show the value."""

import re
from dataclasses import dataclass
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import SecretStr

NAMESPACE_FORM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_RATE = re.compile(r"([1-9]\d{0,8})/(second|minute|hour)")
_UNIT_S = {"second": 1, "minute": 60, "hour": 3600}
_ORIGIN = re.compile(r"https?://(\[[0-9a-f:.]+\]|[a-z0-9.-]+)(:\d{1,5})?")


@dataclass(frozen=True)
class ApiKey:
    """A key and the one namespace it opens."""

    namespace: str
    secret: SecretStr


def read_zone(name: str) -> str:
    """The name of an IANA time zone."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError("is not an IANA time zone such as Asia/Shanghai") from error
    return name


def read_url(url: str) -> str:
    """An address, without a slash at its end."""
    if not url.startswith(("http://", "https://")):
        raise ValueError("must start with http:// or https://")
    return url.rstrip("/")


def read_time_of_day(value: object) -> object:
    """HH:MM, still as text."""
    if isinstance(value, str) and not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", value):
        raise ValueError("must be a time of day such as 03:30")
    return value


def read_keys(value: object) -> object:
    """`namespace=key,…` as a tuple of ApiKey."""
    if not isinstance(value, str):
        return value
    keys = []
    for part in filter(None, (part.strip() for part in value.split(","))):
        namespace, separator, secret = part.partition("=")
        if not separator or not NAMESPACE_FORM.fullmatch(namespace.strip()):
            raise ValueError(
                "must be namespace=key,namespace=key (namespace: letters, digits, . _ -, at most 64)"
            )
        if (
            not secret.strip()
            or not secret.isascii()
            or any(character.isspace() for character in secret.strip())
        ):
            raise ValueError(f"has an empty or unusable key for namespace {namespace.strip()}")
        keys.append(ApiKey(namespace.strip(), SecretStr(secret.strip())))
    if len({key.secret.get_secret_value() for key in keys}) < len(keys):
        raise ValueError("gives the same key twice")
    return tuple(keys)


def read_rate(value: object) -> object:
    """`600/minute` as (requests, seconds)."""
    if not isinstance(value, str):
        return value
    found = _RATE.fullmatch(value.replace(" ", ""))
    if found is None:
        raise ValueError("must be a number of requests and a time, such as 600/minute (second, minute, hour)")
    return int(found[1]), _UNIT_S[found[2]]


def read_origins(value: object) -> object:
    """Origins with commas between, as a tuple."""
    if not isinstance(value, str):
        return value
    origins = tuple(part.strip() for part in value.split(",") if part.strip())
    if not all(_ORIGIN.fullmatch(origin) for origin in origins):
        raise ValueError("must be origins as browsers send them, such as https://console.example, one by one")
    return origins
