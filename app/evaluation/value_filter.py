"""The value filter: turns whose worth is plain without asking the evaluator. Pure.

Losing what was worth keeping is the worst error it can make. It therefore answers only where the user's
whole message is small talk and the reply carries nothing either, or where the user asks to be remembered.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal

from app.dialogues.kinds import classify
from app.dialogues.utterances import fold, is_task, split_clauses, split_sentences
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

_REPLY_CHARS: Final = 80
# A short reply that says that something was done, when or where something is, or how something is done.
_CARRIES: Final = re.compile(
    r"\d|[一二两三四五六七八九十]+(?:[个块元斤号月楼层次件页步]|(?<!一)[二两三四五六七八九十]天|点(?!儿)|条"
    r"|份)|已经?|(?:帮|为|给"
    r"|替)[你您](?:把|查|改|订|定|取|下|设|安排|处理|办|退|换|开|登记|预|申请|更新|保存|记|约|买|发|找)"
    r"|改[成到为]|订好|约好|取消|提醒|设置|安排|下单|记住|记下|记得|保存|周[一二三四五六日天末]|星期|礼拜"
    r"|明天|后天|昨天|下个?月|[上下]周|月底|退款|快递|发货"
    r"|方案|因为|所以|建议|密码|地址|决定|定了|就按|确认|其实|另外|补充|注意|原因|首先|可以用|需要先|答案"
    r"|http|\b(?:done|i've|i'll|we'll|we've|cancel\w*|booked|scheduled|updated|changed|moved|ordered|saved"
    r"|removed|added|created|deleted|sent|set"
    r"|tomorrow(?!!?$)|monday|tuesday|wednesday|thursday|friday|saturday|sunday|because|steps?|first|should"
    r"|recommend|code|password|note that|remember)\b"
)
# What a reply says that says nothing else.
_POLITE: Final = re.compile(
    r"怎么[啦了]|^有的|有什么|有需要|随时|帮[到助您你忙]|问题|[聊谈]|叫我|找我|祝|愉快|开心|高兴|加油|客气"
    r"|不谢|请讲|请说|好梦|[早晚]安|[早晚上中下]+[午上]?好"
    r"|应该的|在[的呢]|[你您]好|欢迎|下次见|再见|嘿|哈|正常|随手|那就好|服务|灰心|厉害|不辛苦|乐意|荣幸|效劳"
    r"|慢慢来|放心|好笑|笑"
    r"|\b(?:help|let me know|anything|happy|glad|welcome|pleasure|problem|great|nice|have a|sleep|see you"
    r"|hello|hi"
    r"|hey|good|morning|perfect|anytime|i'm here|loud and clear|your message|random|received|i know|enjoy"
    r"|take care|no worries|cheers)\b"
)
_LETTER: Final = re.compile(r"[^\W_]")


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
    if len(reply) > _REPLY_CHARS:
        return True
    folded = fold(reply)
    return _CARRIES.search(folded) is not None or not all(
        _is_polite(sentence, end) for sentence, end in split_sentences(folded)
    )


def _is_polite(sentence: str, end: str) -> bool:
    *stated, last = split_clauses(sentence) or [""]
    if "?" not in end:
        stated.append(last)
    return all(
        _POLITE.search(clause) or not _LETTER.search(clause) or read_small_talk(clause) for clause in stated
    )
