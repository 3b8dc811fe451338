"""Message events of OneBot v11, as bots log them, brought into the fields of `POST /dialogues`. Pure.

Source: botuniverse/onebot-11, event/message.md, message/segment.md, message/string.md.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

_MESSAGES: Final = frozenset({"message", "message_sent"})
_CODE: Final = re.compile(r"\[CQ:([A-Za-z0-9_-]+)((?:,[^\[\],]*)*)\]")
_LABELS: Final = {
    "face": "[表情]",
    "mface": "[表情]",
    "bface": "[表情]",
    "image": "[图片]",
    "record": "[语音]",
    "video": "[视频]",
    "file": "[文件]",
    "share": "[链接]",
    "location": "[位置]",
    "contact": "[名片]",
    "music": "[音乐]",
    "forward": "[合并转发]",
    "node": "[合并转发]",
    "xml": "[卡片消息]",
    "json": "[卡片消息]",
    "markdown": "[卡片消息]",
    "poke": "[戳一戳]",
    "shake": "[窗口抖动]",
    "dice": "[骰子]",
    "rps": "[猜拳]",
    "redbag": "[红包]",
    "gift": "[礼物]",
}
# A reply only points at another message, and `anonymous` only says how this one was sent.
_SILENT: Final = frozenset({"reply", "anonymous"})
_REMEMBERED_MESSAGES: Final = 10_000

Segment = tuple[str, dict[str, Any]]


class UnreadableError(ValueError):
    """An entry of a file is no message in any shape that is known; the text says why."""


def is_onebot_event(value: dict[str, Any]) -> bool:
    """Whether this is an event of OneBot v11, a message or not."""
    return "post_type" in value or (
        "message_type" in value and ("message" in value or "raw_message" in value)
    )


class OneBotReader:
    """Reads the events of one log in order.

    What the bot said itself becomes role `assistant` in the session of the person it speaks to: in private
    `target_id`; in a group the first person it mentions, else the one whose message it replies to, else the
    one who spoke last in that group.
    """

    def __init__(self) -> None:
        self._last_speakers: dict[Any, Any] = {}
        self._speakers: OrderedDict[tuple[Any, str], Any] = OrderedDict()

    def read(self, event: dict[str, Any]) -> dict[str, Any] | None:
        """The fields of the message, still to be validated; None for an event without one, or without words.

        Raises:
            UnreadableError: it is a message that cannot be placed.
        """
        # All who hide in a group share one number: theirs is nobody's memory.
        if event.get("post_type", "message") not in _MESSAGES or event.get("anonymous"):
            return None
        kind = event.get("message_type")
        if kind not in {"private", "group"}:
            raise UnreadableError("message_type: must be private or group")
        segments = read_segments(event.get("message", event.get("raw_message")))
        group = event.get("group_id") if kind == "group" else None
        if kind == "group" and group is None:
            raise UnreadableError("group_id: is missing from a message of a group")
        own = _is_own(event)
        user = self._find_peer(event, group, segments) if own else event.get("user_id")
        if user is None:
            raise UnreadableError(
                "target_id: is missing from what the bot said in private"
                if group is None
                else "user_id: nobody is known to whom the bot spoke in this group"
                if own
                else "user_id: is missing"
            )
        self._remember(event, group, user, own=own)
        content = plain_text(segments)
        if not content.strip():
            return None
        return {
            "user_id": user,
            "group_id": group,
            "role": "assistant" if own else "user",
            "content": content,
            "sender_name": _sender_name(event.get("sender")),
            "message_id": event.get("message_id"),
            "created_at": event.get("time"),
        }

    def _find_peer(self, event: dict[str, Any], group: Any, segments: list[Segment]) -> Any:
        if group is None:
            return event.get("target_id")
        for kind, data in segments:
            if (
                kind == "at"
                and str(data.get("qq", "")).isdigit()
                and str(data["qq"]) != str(event.get("self_id"))
            ):
                return data["qq"]
        for kind, data in segments:
            answered = self._speakers.get((group, str(data.get("id")))) if kind == "reply" else None
            if answered is not None:
                return answered
        return self._last_speakers.get(group)

    def _remember(self, event: dict[str, Any], group: Any, user: Any, *, own: bool) -> None:
        if group is None:
            return
        if not own:
            self._last_speakers[group] = user
        self._speakers[group, str(event.get("message_id"))] = user
        if len(self._speakers) > _REMEMBERED_MESSAGES:
            self._speakers.popitem(last=False)


def _is_own(event: dict[str, Any]) -> bool:
    if event.get("post_type") == "message_sent":
        return True
    return "self_id" in event and str(event.get("user_id")) == str(event["self_id"])


def _sender_name(sender: Any) -> str | None:
    if not isinstance(sender, dict):
        return None
    for key in ("card", "nickname"):
        name = sender.get(key)
        if isinstance(name, str) and name.strip():
            return name
    return None


def read_segments(message: Any) -> list[Segment]:
    """The segments of a message in array form, or in the string form with CQ codes.

    Raises:
        UnreadableError: it is neither.
    """
    if isinstance(message, str):
        return list(_split_codes(message))
    if isinstance(message, dict):
        message = [message]
    if not isinstance(message, list):
        raise UnreadableError("message: must be an array of segments, or a string")
    segments = []
    for segment in message:
        if not isinstance(segment, dict) or not isinstance(segment.get("type"), str):
            raise UnreadableError("message: holds something that is not a segment")
        data = segment.get("data")
        segments.append((segment["type"], data if isinstance(data, dict) else {}))
    return segments


def _split_codes(message: str) -> Iterable[Segment]:
    end = 0
    for code in _CODE.finditer(message):
        if code.start() > end:
            yield "text", {"text": unescape(message[end : code.start()])}
        parameters = (part.partition("=") for part in code[2].split(",")[1:])
        yield code[1], {key: unescape(value) for key, _, value in parameters}
        end = code.end()
    if end < len(message):
        yield "text", {"text": unescape(message[end:])}


def unescape(text: str) -> str:
    """The text as it was before it was put into a CQ string."""
    # The ampersand last: `&amp;#91;` is the text `&#91;`, not a bracket.
    for written, meant in (("&#91;", "["), ("&#93;", "]"), ("&#44;", ","), ("&amp;", "&")):
        text = text.replace(written, meant)
    return text


def plain_text(segments: Iterable[Segment]) -> str:
    """What the segments say: text as it is, mentions as @name, everything else as a label such as [图片]."""
    said, mentioned = "", False
    for kind, data in segments:
        piece = _say(kind, data)
        # Clients put a space after a mention, but not all of them do.
        if mentioned and piece and not piece[:1].isspace():
            said += " "
        said += piece
        mentioned = kind == "at"
    return said.strip()


def _say(kind: str, data: dict[str, Any]) -> str:
    if kind == "text":
        return str(data.get("text", ""))
    if kind in _SILENT:
        return ""
    if kind == "at":
        if str(data.get("qq")) == "all":
            return "@全体成员"
        # The name has the @ already where the implementation copies it from the message.
        return f"@{str(data.get('name') or data.get('qq', '')).removeprefix('@')}"
    name = data.get("name") if kind == "file" else data.get("title") if kind == "share" else None
    label = _LABELS.get(kind, f"[{kind}]")
    return f"{label[:-1]}: {name}]" if isinstance(name, str) and name else label
