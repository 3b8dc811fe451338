"""Who calls: a bearer key opens one namespace; where none is configured, loopback callers share `default`."""

import hashlib
import hmac
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import Scope

from app.errors import UnauthorizedError
from app.settings import is_loopback

ANONYMOUS_NAMESPACE = "default"


class Authenticator:
    """Finds the namespace of a request, before its body is read."""

    def __init__(self, *, keys: Iterable[tuple[str, str]], allow_anonymous: bool) -> None:
        self._namespaces = [(_digest(key.encode("latin-1")), namespace) for namespace, key in keys]
        self._allow_anonymous = allow_anonymous

    def identify(self, scope: Scope) -> str:
        """The caller's namespace.

        Raises:
            UnauthorizedError: no key, a wrong one, or an open service reached from elsewhere.
        """
        headers = Headers(scope=scope)
        if not self._namespaces:
            if self._allow_anonymous or _is_local(scope, headers):
                return ANONYMOUS_NAMESPACE
            raise UnauthorizedError(
                "Without API_KEYS, only requests to a loopback address by a loopback name are served."
            )
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise UnauthorizedError("Send the header Authorization: Bearer <key>.")
        given = _digest(key.strip().encode("latin-1"))
        found = None
        # All keys are compared, each in constant time: the time taken tells nothing about any of them.
        for digest, namespace in self._namespaces:
            if hmac.compare_digest(digest, given):
                found = namespace
        if found is None:
            raise UnauthorizedError("This API key is not known.")
        return found


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _is_local(scope: Scope, headers: Headers) -> bool:
    server = scope.get("server")
    if not server or not is_loopback(server[0]):
        return False
    # A web page can make its own name resolve to 127.0.0.1; the Host header still tells that name.
    host = headers.get("host", "")
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return is_loopback(name)
