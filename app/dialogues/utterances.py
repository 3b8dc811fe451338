"""How a message is put: its sentences and clauses, and which of these assert something. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from app.dialogues.text import normalize_text

# What a person wants to say of themselves comes early; a longer text is a document that was pasted.
_READ_CHARS: Final = 2000

# What stands in quotation marks is mentioned, not said. A sign is left where it stood, so that what was
# around it does not grow together.
_QUOTED: Final = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|“[^”]*”|「[^」]*」|『[^』]*』"
    r"|(?<!\w)\"[^\"]*\"(?!\w)|(?<=[\u4e00-\u9fff])\"[^\"]*\"|^>[^\n]*",
    re.DOTALL | re.MULTILINE,
)
QUOTED_SIGN: Final = "\u25a1"

_SENTENCE_END: Final = re.compile(r"([。!?;\n]{1,8}|\.{1,8}(?=\s|$|[\u4e00-\u9fff]))")
_CLAUSE_END: Final = re.compile(
    r"[,…~]{1,8}|(?<=[\u4e00-\u9fff])\s+(?=[\u4e00-\u9fff])|\s[-–—]+\s"
    r"|\s(?:and|but|so|because)\s(?=(?:i|i'm|we|my|our|it's)\b)"
)

_ASKS_ZH: Final = re.compile(
    r"吗|么$|呢$|了没有?$|什么|啥|怎么|怎样|咋|哪|谁|多少|多大|多久|为何|如何|来着|是否|凭啥"
    r"|(?<![十好])几(?:点|个|岁|号|月|天|次|年|口|楼)|(.)[不没]\1"
)
_ASKS_EN: Final = re.compile(
    r"^(?:what|when|where|who|whom|whose|which|why|how|do|does|did|is|are|am|was|were|can|could|would|should"
    r"|shall|will|won't|don't (?:you|i|we)|didn't|isn't|aren't|doesn't|has|have (?:you|i|we)|may)\b"
)
# 。。。，是吗？ puts all that came before it in question.
_TAG_QUESTION: Final = re.compile(
    r"^(?:是吗|是吧|对吗|对吧|没错吧|不是吗|是不是|对不对|没错吧|真的吗|right|correct|isn't it|is that right"
    r"|yes|(?:你|您)?.{0,3}(?:记得|知道|记住).{0,6})$"
)
_SUPPOSES: Final = re.compile(
    r"要是|如果|假如|假设|假使|倘若|若是|万一|的话|就好了|比方说|比如说"
    r"|\bif\b|\bsuppose\b|\bsupposing\b|\bimagine\b|\bwish\b|\bas though\b|\bwere i\b|\bpretend\b"
    r"|\bhypothetically\b"
)
_UNSURE: Final = re.compile(
    r"也许|或许|说不定|可能会?|不确定|没想好|犹豫|纠结|在考虑|\bmaybe\b|\bperhaps\b|\bmight\b|\bnot sure\b"
)
# After 他说, what follows is his.
_REPORTS: Final = re.compile(
    r"^(?:他|她|有人|别人|人家|听说|[^我你]{0,6}(?:老师|老板|医生|朋友|同事|同学|主角|歌词|小说|书))"
    r".{0,8}(?:说|讲|写|唱|问|道|听说)(?:的?是|过|了|道)?:?$"
    r"|^(?:he|she|they|someone|the \w+|my friend)(?: \w+)? (?:said|says|told me|wrote|asked)\b.{0,12}$"
)
# A text that is given to be worked on says nothing about its writer.
_TASK: Final = re.compile(
    r"^(?:请|请你|麻烦|帮忙|帮我|你来|能不能|可以)*(?:把|将|用)?.{0,12}?(?:翻译|润色|改写|造句|造个句|续写"
    r"|仿写|扩写|缩写|扮演|假装|模仿|写一|写个|写篇|写首|写段|念一下)"
    r"|^(?:please |can you |could you |help me )*(?:translate|rewrite|rephrase|proofread|paraphrase|write"
    r"|role-?play|act as"
    r"|summari[sz]e|pretend|complete the|fix the grammar|correct (?:this|the|my) (?:sentence|text|grammar))\b"
    r"|怎么说$|怎么翻译|用(?:英语|英文|法语|日语|中文|韩语|德语|西班牙语).{0,2}怎么(?:说|写|讲)"
)
# Two people talk to a bot with these before they come to the point.
_OPENING: Final = re.compile(
    r"^(?:嗯+|哦+|噢+|啊+|唉+|哎+|诶|呃+|好(?:的|吧|嘞|滴|哒)|好(?=,)|行吧?(?!李|程)(?=,|\s|$|就|那)"
    r"|ok(?:ay)?\b|对了|另外|(?:还有|最近|现在|目前)(?=我)|其实|不过|但是|但(?=我)"
    r"|所以|因为|然后|而且|顺便(?:说一下|说一句|说下|提一下)?|(?:我)?(?:跟|和|告诉)你(?:说|们)?(?:一下"
    r"|个事)?(?=我|,|:)|说实话|老实说|(?:你好|您好)(?:呀|啊)?|是这样的?|总之|其次|首先|亲|哈哈+|谢谢|收到"
    r"|(?:well|so|oh|hey|hi|hello|by the way|btw|actually|also|and|but|yes|yeah|yep|sure|honestly|fyi|then"
    r"|alright|great|cool|thanks|sorry|hmm+|um+|right|no)\b)[\s,:!]*"
)


@dataclass(frozen=True, slots=True)
class Clause:
    """A piece of a message between commas or stops, folded and without openings such as 嗯 or 对了.

    `asserted` is false where it is asked, supposed, doubted or reported of somebody else.
    """

    text: str
    asserted: bool


def fold(text: str) -> str:
    """Returns the start of a text, case and width folded, with what is quoted replaced by `QUOTED_SIGN`."""
    folded = normalize_text("NFKC", text[:_READ_CHARS]).casefold().replace("’", "'")
    return _QUOTED.sub(QUOTED_SIGN, folded)


def is_task(folded: str) -> bool:
    """Tells whether a folded message gives a text to be translated, written or played."""
    return _TASK.search(folded[:200].strip()) is not None


def is_question(clause: str) -> bool:
    """Tells whether a folded clause asks by its words, whatever sign stands at its end."""
    return _ASKS_ZH.search(clause) is not None or _ASKS_EN.search(clause) is not None


def split_sentences(folded: str) -> Iterator[tuple[str, str]]:
    """Yields each sentence of a folded text with the signs that end it."""
    pieces = _SENTENCE_END.split(folded)
    pieces.append("")
    for sentence, end in zip(pieces[::2], pieces[1::2], strict=True):
        if sentence.strip():
            yield sentence.strip(), end


def split_clauses(sentence: str) -> list[str]:
    """Returns the clauses of a sentence, without blanks around them and without empty ones."""
    return [clause for piece in _CLAUSE_END.split(sentence) if (clause := piece.strip())]


def strip_opening(clause: str) -> str:
    """Returns a clause without the words that only open it; all of it where it is nothing else."""
    for _ in range(4):
        shorter = _OPENING.sub("", clause)
        if shorter == clause or not shorter:
            break
        clause = shorter
    return clause


def read_clauses(folded: str) -> list[Clause]:
    """Returns the clauses of a folded message in order."""
    found: list[Clause] = []
    for sentence, end in split_sentences(folded):
        clauses = split_clauses(sentence)
        asked = "?" in end
        supposed = _SUPPOSES.search(sentence) is not None
        doubted = asked and len(clauses) > 1 and _TAG_QUESTION.match(clauses[-1]) is not None
        reported = False
        for number, clause in enumerate(clauses):
            last = number == len(clauses) - 1
            asserted = not (
                supposed
                or doubted
                or reported
                or (asked and last)
                or is_question(clause)
                or _UNSURE.search(clause) is not None
            )
            reported = reported or _REPORTS.match(clause) is not None
            found.append(Clause(strip_opening(clause), asserted))
    return found
