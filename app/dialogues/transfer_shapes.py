"""What stands in an import file, told apart and brought into the fields of `POST /dialogues`. Pure.

Three shapes are read, entry by entry: the contract's own fields (and so what `export` writes), events of
OneBot v11, and `{"role", "content", "ts"}` of a chat log, whose user the caller names.
"""

from dataclasses import dataclass
from typing import Any, Final

from app.dialogues.transfer_onebot import OneBotReader, UnreadableError, is_onebot_event

_TIMES: Final = ("created_at", "ts", "timestamp", "time")
_NAMES: Final = ("sender_name", "name")
_LOG_FIELDS: Final = frozenset({*_TIMES, *_NAMES, "role", "content", "message_id", "message_uuid"})


@dataclass(frozen=True, slots=True)
class LogOwner:
    """Whose chat log it is; `sender_name` is the user's, where the log does not say it."""

    user_id: int
    group_id: int | None = None
    sender_name: str | None = None


class ShapeReader:
    """Reads the entries of one file in order: who a bot answers in a group is known from what came before."""

    def __init__(self, owner: LogOwner | None = None) -> None:
        self._owner = owner
        self._onebot = OneBotReader()

    def read(self, value: Any) -> dict[str, Any] | None:
        """The fields of the message, still to be validated; None for what is no message (a heartbeat).

        Raises:
            UnreadableError: it is none of the shapes.
        """
        if not isinstance(value, dict):
            raise UnreadableError("is not a JSON object")
        if is_onebot_event(value):
            return self._onebot.read(value)
        if "user_id" in value and "ts" not in value:
            return value
        return self._read_log(value)

    def _read_log(self, value: dict[str, Any]) -> dict[str, Any]:
        if "role" not in value or "content" not in value:
            raise UnreadableError(
                "is neither a message with user_id, nor a OneBot event, nor role and content"
            )
        if self._owner is None:
            raise UnreadableError("has no user_id: name the user of a chat log with --user-id")
        unknown = sorted(value.keys() - _LOG_FIELDS)
        if unknown:
            raise UnreadableError(f"{unknown[0]}: is not a field of a chat log")
        name = _first(value, _NAMES)
        if name is None and value["role"] == "user":
            name = self._owner.sender_name
        fields = {
            "user_id": self._owner.user_id,
            "group_id": self._owner.group_id,
            "role": value["role"],
            "content": value["content"],
            "sender_name": name,
            "created_at": _first(value, _TIMES),
        }
        return fields | {key: value[key] for key in ("message_id", "message_uuid") if key in value}


def _first(value: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((value[name] for name in names if value.get(name) is not None), None)
