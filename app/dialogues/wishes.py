"""When somebody asks to be remembered: 记住…, remember that…. Pure."""

import re
from dataclasses import dataclass
from typing import Final

from app.dialogues.utterances import is_question, split_clauses, split_sentences, strip_opening

_ASKED_ZH: Final = (
    r"(?P<asked>(?:请|麻烦|拜托|劳烦|务必|你们?|您|帮我|给我|替我|一定|必须|千万"
    r"|可|要|得|好好|都|先|永远|永久|一直|一辈子|牢牢|用心)*)"
)
_KEEP_ZH: Final = r"记住|记下来?|记一下|记一记|记个|记好|记牢|记着点?|牢记|谨记|备忘一下"
_FORGET_ZH: Final = r"别忘了?记?|不要忘了?记?|不许忘了?记?|不能忘了?记?|勿忘"
_TAIL_ZH: Final = r"(?P<tail>(?:了|啦|哈|哦|噢|喔|呀|啊|哟|咯)*)"
_START_ZH: Final = re.compile(
    rf"^{_ASKED_ZH}(?:(?P<keep>{_KEEP_ZH})|(?P<forget>{_FORGET_ZH})){_TAIL_ZH}"
    r"(?:这一?点|这个|这件事|一件事|以下|下面)?(?P<pause>[:\s]*)(?P<rest>.*)$"
)
_ADDRESSES: Final = re.compile("请|麻烦|拜托|劳烦|务必|你|您|帮我|给我|替我|一定|必须|千万")
# 记住的, 记住不了, 记住过: a word about remembering, no wish.
_NO_WISH_ZH: Final = re.compile(r"^(?:的|不|过|没|得|起|性|功能|密码功能|账号功能)")
_WHOSE_ZH: Final = re.compile(r"^.{0,6}(?:我|咱|俺|本人)")
_END_ZH: Final = re.compile(rf"^{_ASKED_ZH}(?:{_KEEP_ZH}|(?P<forget>{_FORGET_ZH})){_TAIL_ZH}$")

_START_EN: Final = re.compile(
    r"^(?:please |pls |you (?:should|must|need to) |always |just |and )*(?:"
    r"remember(?:: ?|,| that)? ?(?=(?:i|i'm|i've|i'll|my|me|we|we're|our|this|the|\w+'s)\b)"
    r"|remember: ?|note(?: that|:| down:?) ?"
    r"|(?:don't|do not|never) forget(?: that|:)? ?(?=(?:i|i'm|i've|my|me|we|we're|our|to remind)\b)"
    r"|(?:keep|bear) in mind(?: that|:)? ?|keep this in mind:? ?|make a note(?: that| of this|:) ?"
    r"|take note(?: that|:) ?"
    r"|(?:for (?:future|your) reference|for the record)[:,]? ?|remember this: ?|save this: ?"
    r")(?P<rest>.*)$"
)
_END_EN: Final = re.compile(
    r"^(?:please |pls |so |and )*(?:remember (?:this|that|it)|don't forget(?: (?:this|that|it))?"
    r"|keep (?:that|this|it) in mind"
    r"|(?:make|take) (?:a )?note(?: of (?:this|that|it))?|note (?:this|that|it) down)(?: please| ok(?:ay)?)?$"
)
# Less names nothing; 我爱她 does.
_LEAST_CHARS: Final = 4
_LEAST_CHARS_OF_ONES_OWN: Final = 3
# Who asks for points asks for them, whatever else they call it.
_ABOUT_RATING: Final = re.compile(
    r"\d\s*分(?!钟|之)|[打评]\S{0,4}分|满分|评分|分数|\bscores?\b|\brat(?:e|ing)\b|\bpoints?\b"
)


@dataclass(frozen=True, slots=True)
class Wish:
    """A wish to be remembered.

    Attributes:
        content: what is to be remembered, folded; empty where the wish comes after it.
        addressed: whether the listener is asked: 帮我记住了 is a wish, 记住了 may be an answer.
    """

    content: str
    addressed: bool


def read_wish(folded: str) -> Wish | None:
    """Returns the first wish in a folded message."""
    for sentence, end in split_sentences(folded):
        if "?" in end or _ABOUT_RATING.search(sentence):
            continue
        clauses = [strip_opening(clause) for clause in split_clauses(sentence)]
        for number, clause in enumerate(clauses):
            rest = ",".join(clauses[number + 1 :])
            wish = _wish_before(clause, rest) or (_wish_after(clause) if number and not rest else None)
            if wish is not None:
                return wish
    return None


def strip_wish(clause: str) -> str:
    """Returns a folded clause without the words that ask to remember it."""
    match = _START_ZH.match(clause) or _START_EN.match(clause)
    return strip_opening(match["rest"]) if match and match["rest"] else clause


def _wish_before(clause: str, following: str) -> Wish | None:
    english = _START_EN.match(clause)
    if english:
        content = english["rest"] or following
        return (
            Wish(content, addressed=True)
            if len(content) >= _LEAST_CHARS and not is_question(content)
            else None
        )
    match = _START_ZH.match(clause)
    if match is None:
        return None
    rest = match["rest"]
    content = rest or following
    least = _LEAST_CHARS_OF_ONES_OWN if content.startswith("我") else _LEAST_CHARS
    if len(content) < least or is_question(content) or _NO_WISH_ZH.match(rest):
        return None
    addressed = _ADDRESSES.search(match["asked"]) is not None
    # 记住了，下次不会了 is said by one who has remembered.
    answers = "了" in match["tail"] and match["keep"] is not None and not addressed
    paused = bool(match["pause"]) or not rest
    if (paused and not answers) or _WHOSE_ZH.match(content) or (match["keep"] and addressed):
        return Wish(content, addressed=True)
    return None


def _wish_after(clause: str) -> Wish | None:
    chinese = _END_ZH.match(clause)
    if chinese:
        return Wish("", addressed=bool(_ADDRESSES.search(chinese["asked"]) or chinese["forget"]))
    return Wish("", addressed=True) if _END_EN.match(clause) else None
