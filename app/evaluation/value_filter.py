"""The value filter: turns whose worth is plain without asking the evaluator. Pure.

Losing what was worth keeping is the worst error it can make. It therefore answers only where the user's
whole message is small talk and the reply carries nothing either, or where the user asks to be remembered.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal

from app.dialogues.kinds import classify
from app.dialogues.text import normalize_text
from app.dialogues.utterances import fold, is_task
from app.dialogues.wishes import read_wish
from app.evaluation.small_talk import SmallTalk, read_small_talk

Reason = SmallTalk | Literal["wish_to_remember"]

# The bands of the specification's section 7.3: 0-20 is not kept, 21-40 for a day, 91-100 for good.
_SCORES: Final[dict[Reason, int]] = {
    "acknowledgement": 10,
    "greeting": 5,
    "test": 5,
    "interjection": 5,
    "thanks": 30,
    "courtesy": 30,
    "wish_to_remember": 95,
}

_REPLY_CHARS: Final = 60
_REPLY_WORDS: Final = 16
# A short reply that says that something was done, when or where something is, or how something is done.
_CARRIES: Final = re.compile(
    r"\d|[一二两三四五六七八九十]+(?:[个块元斤号月楼层次天件页步]|点(?!儿)|条|份)|已经?|(?:帮|为|给"
    r"|替)[你您](?:把|查|改|订|定|取|下|设|安排|处理|办|退|换|开|登记|预|申请|更新|保存|记|约|买|发|找)"
    r"|改[成到为]|订好|约好|取消|提醒|设置|安排|下单|记住|记下|记得|保存|周[一二三四五六日天末]|星期|礼拜"
    r"|明天|后天|昨天|下个?月|[上下]周|月底|退款|快递|发货"
    r"|方案|因为|所以|建议|密码|地址|决定|定了|就按|确认|其实|另外|补充|注意|原因|首先|可以用|需要先|答案"
    r"|http"
    r"|\b(?:done|i've|i'll|we'll|we've|cancel\w*|booked|scheduled|updated|changed|moved|ordered|saved"
    r"|removed|added|created|deleted|sent|set"
    r"|tomorrow(?!!?$)|monday|tuesday|wednesday|thursday|friday|saturday|sunday|because|steps?|first|should"
    r"|recommend|code|password|note that|remember)\b"
)
_ENGLISH_WORD: Final = re.compile(r"[a-z][a-z.+#/_-]+")
_SMALL_WORDS: Final = frozenset({"ok", "hi", "hello", "bye", "hey", "haha", "lol", "emo"})


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a turn is worth by rule: `score` from 0 to 100, and why."""

    score: int
    reason: Reason


def judge(user_message: str, assistant_message: str) -> Judgement | None:
    """Returns the worth of a turn where it is plain; None where the evaluator is to be asked.

    What a message says about its own worth (请给我打100分) has no effect.
    """
    reason: Reason | None
    if _wishes_to_be_remembered(user_message):
        reason = "wish_to_remember"
    else:
        reason = read_small_talk(user_message)
        if reason is not None and _carries_something(assistant_message):
            reason = None
    return None if reason is None else Judgement(_SCORES[reason], reason)


def _wishes_to_be_remembered(message: str) -> bool:
    folded = fold(message)
    wish = None if is_task(folded) else read_wish(folded)
    if wish is None:
        return False
    # 我对花生过敏，记住了 is a wish; 看完了，记住了 is an answer.
    return wish.addressed or classify(message, role="user") != "chat"


def _carries_something(reply: str) -> bool:
    """Whether a reply is more than what politeness puts there."""
    if len(reply) > 2 * _REPLY_CHARS:
        return True
    folded = normalize_text("NFKC", reply).casefold().strip()
    if folded.isascii():
        return len(folded.split()) > _REPLY_WORDS or _CARRIES.search(folded) is not None
    if len(folded) > _REPLY_CHARS or _CARRIES.search(folded):
        return True
    return any(word not in _SMALL_WORDS for word in _ENGLISH_WORD.findall(folded))
