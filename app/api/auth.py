"""Who calls: a key, of the settings or of the database; where there has never been one, loopback callers."""

import hmac
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from starlette.datastructures import Headers
from starlette.types import Scope

from app.access.callers import ANONYMOUS, Caller
from app.access.keys import digest_key
from app.errors import UnauthorizedError
from app.settings import is_loopback


class Keyring(Protocol):
    """Where keys of the database are looked up."""

    async def find(self, key: str) -> Caller | None: ...

    async def is_keyed(self) -> bool: ...


class Authenticator:
    """Finds the caller of a request, before its body is read."""

    def __init__(self, *, keys: Iterable[tuple[str, str]], allow_anonymous: bool) -> None:
        """Args: `keys`: (namespace, key) of the settings; they have all rights of a bot."""
        places: Counter[str] = Counter()
        self._callers: list[tuple[bytes, Caller]] = []
        for namespace, key in keys:
            places[namespace] += 1
            caller = Caller(namespace, "bot", f"env:{namespace}/{places[namespace]}")
            self._callers.append((digest_key(key), caller))
        self._allow_anonymous = allow_anonymous

    async def identify(self, scope: Scope, keyring: Keyring) -> Caller:
        """Whose request this is.

        Raises:
            UnauthorizedError: no key, a wrong one, or an open service reached from elsewhere.
            UnavailableError: the keys of the database cannot be looked up; nobody is let in unseen.
        """
        headers = Headers(scope=scope)
        scheme, _, given = headers.get("authorization", "").partition(" ")
        key = given.strip() if scheme.lower() == "bearer" else ""
        of_settings = self._find(key) if key else None
        if of_settings is not None:
            return of_settings
        if not self._callers and not await keyring.is_keyed():
            if self._allow_anonymous or _is_local(scope, headers):
                return ANONYMOUS
            raise UnauthorizedError(
                "Without any key, only requests to a loopback address by a loopback name are served."
            )
        if not key:
            raise UnauthorizedError("Send the header Authorization: Bearer <key>.")
        caller = await keyring.find(key)
        if caller is None:
            raise UnauthorizedError("This API key is not known, or was revoked.")
        return caller

    def _find(self, key: str) -> Caller | None:
        given = digest_key(key)
        found = None
        # All keys are compared, each in constant time: the time taken tells nothing about any of them.
        for digest, caller in self._callers:
            if hmac.compare_digest(digest, given):
                found = caller
        return found


def _is_local(scope: Scope, headers: Headers) -> bool:
    server = scope.get("server")
    if not server or not is_loopback(server[0]):
        return False
    # A web page can make its own name resolve to 127.0.0.1; the Host header still tells that name.
    host = headers.get("host", "")
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name)
