"""Every problem a client can meet: /problems/{slug} and docs/problems.md are made of this table. Pure."""

from dataclasses import dataclass

from app.errors import (
    ChatModelNotConfiguredError,
    ConflictError,
    DatabaseUnavailableError,
    ForbiddenError,
    InvalidInputError,
    MalformedRequestError,
    NotFoundError,
    OverloadedError,
    PayloadTooLargeError,
    ProviderBusyError,
    ProviderDeniedError,
    ProviderError,
    ProviderRejectedError,
    ProviderTimeoutError,
    RateLimitedError,
    RequestError,
    TemporalMemoryError,
    UnauthorizedError,
    UnavailableError,
)


@dataclass(frozen=True)
class ProblemType:
    """One kind of problem: `explanation` says what happened and what the caller can do."""

    slug: str
    status: int
    title: str
    explanation: str


def _of(error: type[TemporalMemoryError], explanation: str) -> ProblemType:
    return ProblemType(error.slug, error.status, error.title, explanation)


METHOD_NOT_ALLOWED = ProblemType(
    "method-not-allowed",
    405,
    "This address does not take this method",
    "The `Allow` header of the answer names the methods that it takes.",
)
UNSUPPORTED_MEDIA_TYPE = ProblemType(
    "unsupported-media-type",
    415,
    "The request body must be JSON",
    "Send the body with `Content-Type: application/json` (curl -d sends a form unless it is told: "
    "`-H 'Content-Type: application/json'`). Nothing else is read, so that a web page cannot make a browser "
    "post to a service on this machine.",
)

PROBLEM_TYPES = (
    _of(RequestError, "The request cannot be understood; `detail` says why."),
    _of(
        MalformedRequestError,
        "The body is not JSON in UTF-8, is nested too deeply, or holds a number with thousands of digits. "
        "Nothing was done.",
    ),
    _of(
        UnauthorizedError,
        "Send `Authorization: Bearer <key>` with a key that the operator has made with `temporal-memory keys "
        "create`, or has set in `API_KEYS`, and has not revoked. Where there has never been any key, the "
        "service answers only on a loopback address, asked by a loopback name.",
    ),
    _of(
        ForbiddenError,
        "The key is good, but its role may not do this: a `reader` changes nothing, an `admin` sees no "
        "content. `x-roles` in the OpenAPI document names the roles that may.",
    ),
    _of(
        NotFoundError,
        "There is nothing at this address, or it belongs to another namespace: the two are not told apart.",
    ),
    METHOD_NOT_ALLOWED,
    _of(
        ConflictError,
        "A `message_uuid` is the name of one message for ever. It came again with other content or in "
        "another session; in a batch, `detail` names the index, and nothing of the batch was stored.",
    ),
    _of(PayloadTooLargeError, "A body may have up to 16 MiB. Send a large import in several batches."),
    UNSUPPORTED_MEDIA_TYPE,
    _of(
        InvalidInputError,
        "`errors` lists each fault: `pointer` is a JSON pointer into the body (`/dialogues/3/user_id`), or "
        "`query/limit`, `path/id` for what stands in the address. Fields that are not in the contract are "
        "faults, too. Nothing was done.",
    ),
    _of(
        RateLimitedError,
        "This key has used up what the operator allows it (`RATE_LIMIT`). Try again after `Retry-After` "
        "seconds; `RateLimit` says how many requests are left. Nothing was done.",
    ),
    _of(TemporalMemoryError, "A fault of the service. Its log has the cause under this `request_id`."),
    _of(ProviderError, "A model that the service calls failed. Trying again later may help."),
    _of(ProviderBusyError, "A model that the service calls is busy or out of reach. Try again later."),
    _of(
        ProviderDeniedError,
        "The provider refuses the key, the balance or the model's name: somebody must mend the settings.",
    ),
    _of(ProviderRejectedError, "The provider refuses this very input; the same input will fail again."),
    _of(UnavailableError, "The service cannot answer now. Try again after `Retry-After` seconds."),
    _of(
        DatabaseUnavailableError,
        "PostgreSQL does not answer, or its disk or memory is full. Try again after `Retry-After` seconds.",
    ),
    _of(
        ChatModelNotConfiguredError,
        "/chat needs a model: the operator has to set CHAT_BASE_URL, CHAT_MODEL and, where the provider "
        "wants one, CHAT_API_KEY. Storing, searching and composing prompts work without.",
    ),
    _of(OverloadedError, "More requests than the service can hold. Try again after `Retry-After` seconds."),
    _of(ProviderTimeoutError, "A model that the service calls did not answer in time. Try again later."),
)

BY_SLUG = {kind.slug: kind for kind in PROBLEM_TYPES}


def render_problem_types() -> str:
    """The text of docs/problems.md."""
    lines = [
        "# Problems",
        "",
        "Every answer of 400 and above is `application/problem+json` (RFC 9457): `type`, `title`, `status`,",
        "`detail`, `instance`, `request_id`, and `errors` where fields are at fault. `type` is one of these",
        "addresses of the service, which show the same text. This page is made by `make openapi`; a test",
        "keeps it true.",
    ]
    for kind in PROBLEM_TYPES:
        lines += ["", f"## /problems/{kind.slug}", "", f"{kind.status}: {kind.title}.", "", kind.explanation]
    return "\n".join(lines) + "\n"
