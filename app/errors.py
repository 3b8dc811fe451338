"""Every error this service raises on purpose.

TemporalMemoryError
├── RequestError                 what the caller can mend; the HTTP status is the class's
│   ├── MalformedRequestError    400  not JSON, not UTF-8
│   ├── UnauthorizedError        401  no key, or a wrong one
│   ├── ForbiddenError           403  a key that may not do this
│   ├── NotFoundError            404  not there, or another namespace's
│   ├── ConflictError            409  the same message_uuid with other content or session
│   ├── PayloadTooLargeError     413  a body over the limit
│   ├── InvalidInputError        422  a field out of its range; carries `errors`
│   └── RateLimitedError         429  more requests than RATE_LIMIT; carries `retry_after_s`
├── UnavailableError             503  come back later; may carry `retry_after_s`
│   ├── DatabaseUnavailableError 503  PostgreSQL does not answer
│   ├── OverloadedError          503  a pool or queue is full
│   └── ChatModelNotConfiguredError 503  there is no model to chat with
├── ProviderError                502  another machine failed us
│   ├── ProviderTimeoutError     504  it did not answer in time                 (transient)
│   ├── ProviderBusyError        502  429, 5xx, connection refused or reset     (transient)
│   ├── ProviderDeniedError      502  401, 403, 404: key, balance, model  (until somebody acts)
│   └── ProviderRejectedError    502  it will never take this input             (permanent for the input)
├── StartupError                 the process cannot start; str() is one line that says what to do
│   ├── SettingsError            a setting is wrong
│   └── DatabaseSetupError       the database cannot be used as it is
└── DumpError                    a backup was not made, or not put back; nothing has changed
"""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class FieldFault:
    """One thing wrong with one field.

    Attributes:
        pointer: JSON pointer into the body (`/dialogues/3/user_id`), or `query/limit`, `path/id` outside it.
        detail: what is wrong, in words for the caller.
    """

    pointer: str
    detail: str


class TemporalMemoryError(Exception):
    """Base of all errors raised on purpose."""

    status: ClassVar[int] = 500
    slug: ClassVar[str] = "internal-error"
    title: ClassVar[str] = "Internal error"


class RequestError(TemporalMemoryError):
    """The caller can mend it."""

    status = 400
    slug = "bad-request"
    title = "Bad request"


class MalformedRequestError(RequestError):
    slug = "malformed-request"
    title = "The request body could not be read"


class UnauthorizedError(RequestError):
    status = 401
    slug = "unauthorized"
    title = "A valid API key is needed"


class ForbiddenError(RequestError):
    status = 403
    slug = "forbidden"
    title = "This key may not do this"


class NotFoundError(RequestError):
    status = 404
    slug = "not-found"
    title = "Not found"


class ConflictError(RequestError):
    status = 409
    slug = "message-uuid-conflict"
    title = "This message_uuid belongs to another message"


class PayloadTooLargeError(RequestError):
    status = 413
    slug = "payload-too-large"
    title = "The request body is too large"


class InvalidInputError(RequestError):
    """One or more fields are out of their range."""

    status = 422
    slug = "invalid-input"
    title = "The request has invalid fields"

    def __init__(self, faults: list[FieldFault]) -> None:
        self.faults = faults
        super().__init__("; ".join(f"{fault.pointer}: {fault.detail}" for fault in faults))


class RateLimitedError(RequestError):
    """This caller asks too often; others are served."""

    status = 429
    slug = "rate-limited"
    title = "Too many requests with this key"

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnavailableError(TemporalMemoryError):
    """Come back later."""

    status = 503
    slug = "unavailable"
    title = "Temporarily unavailable"

    def __init__(self, message: str, *, retry_after_s: int = 5) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class DatabaseUnavailableError(UnavailableError):
    slug = "database-unavailable"
    title = "The database does not answer"


class OverloadedError(UnavailableError):
    slug = "overloaded"
    title = "Too many requests at once"


class ChatModelNotConfiguredError(UnavailableError):
    slug = "chat-model-not-configured"
    title = "No chat model is configured"


class ProviderError(TemporalMemoryError):
    """Another machine failed us.

    Attributes:
        outcome: short metric label: `timeout`, `busy`, `denied`, `rejected`.
        retry_after_s: how long the provider asked us to wait, if it did.
    """

    status = 502
    slug = "provider-failed"
    title = "A provider failed"
    outcome: ClassVar[str] = "failed"

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class ProviderTimeoutError(ProviderError):
    status = 504
    slug = "provider-timeout"
    title = "A provider did not answer in time"
    outcome = "timeout"


class ProviderBusyError(ProviderError):
    slug = "provider-busy"
    title = "A provider is busy or out of reach"
    outcome = "busy"


class ProviderDeniedError(ProviderError):
    slug = "provider-denied"
    title = "A provider refuses our key, balance or model"
    outcome = "denied"


class ProviderRejectedError(ProviderError):
    slug = "provider-rejected"
    title = "A provider does not take this input"
    outcome = "rejected"


class StartupError(TemporalMemoryError):
    """The process cannot start; `str()` is one line that says what to do."""


class SettingsError(StartupError):
    """A setting is wrong; the line names it."""


class DatabaseSetupError(StartupError):
    """The database cannot be used as it is; the line says what to do."""


class DumpError(TemporalMemoryError):
    """A backup was not made, or not put back; `str()` is one line, and nothing has changed."""

    title = "Nothing was done"
