"""Reads a score from 0 to 100 out of what a model answers. Pure.

The right score or none, never a wrong number: a turn without a score is asked for again or kept, one with a
wrong score may be deleted. So a number counts only where nothing else can be meant:

1. the answer is the number alone, or JSON with one score in it;
2. one number is named as the score (`评分：85`, `Score: 85/100`), whatever other numbers there are;
3. the answer is a sentence of few known words around one number (`我给这段对话打85分`);
4. its first or last line is the number alone, or it begins with the number, or with such words that name it,
   and goes on with the reason.

Ranges (90-95), limits (>80, 90+), other scales (8/10, 4 stars, a `Rating: 8`), negative numbers and numbers
over 100 are no scores. Other numbers up to 10, but for 0, are taken for scores only in 1. and after the word
for score.
"""

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

from app.dialogues.model_answers import strip_fence, strip_thinking
from app.evaluation.retention import MAX_SCORE

_MAX_ANSWER_CHARS: Final = 20_000
_UNREADABLE: Final = "¤"
# Up to here a scale of 0 to 10 is likely to be meant, unless it is ours by the form of the answer.
_SMALL_SCALE: Final = 10

_DASHES: Final = str.maketrans("−–—﹣", "----")
_QUOTED: Final = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|「[^」\n]*」|『[^』\n]*』")
_MARKUP: Final = re.compile(r"\\boxed|[*`#_$\\{}\[\]【】「」『』\"“”]")

# Where models are taught to put what they mean.
_TAGGED: Final = re.compile(
    r"(?i)<(?P<tag>answer|score|result|output|final|评分|分数|答案)>(?P<inner>[^<>]*)</(?P=tag)>"
)
_CONTROL_TOKEN: Final = re.compile(r"<\|[\w ]{1,30}\|>|</?s>")

_CHINESE_DIGITS: Final = {sign: value for value, sign in enumerate("零一二三四五六七八九")}
_CHINESE_NUMERAL: Final = re.compile(
    r"(?<![零〇一二两三四五六七八九十百千万几第])"
    r"(?P<numeral>一?百|[一二三四五六七八九]?十[一二三四五六七八九]?|[零一二三四五六七八九])"
    r"(?:(?=\s*分(?![之钟百制]))|(?=[\s.。!]*\Z))"
)

# None of them is a score, and patterns that look into them take long.
_LONG_NUMBER: Final = re.compile(r"\d{4,}(?:\.\d+)?|\d+\.\d{4,}")
_D: Final = r"\d+(?:\.\d+)?"
_OWN_SCALE: Final = re.compile(
    r"(?i)\(?\s*(?:满分|总分)\s*(?:为|是)?\s*:?\s*100\s*分?\s*\)?|(?<!\d)100\s*分制|"
    r"\(?(?:on\s+)?(?:(?:a|the)\s+scale\s+(?:of|from)\s+)?(?<!\d)0\s*(?:-|~|到|至|to)\s*100(?!\d)"
    r"\s*(?:分|points?)?(?:\s*(?:之间|中的?))?\s*\)?|"
    r"\s*分?\s*/\s*100(?!\d)\s*(?:分|points?)?|\s*(?:points?\s+)?out\s+of\s+(?:a\s+possible\s+)?100(?!\d)"
)
_OTHER_SCALE: Final = re.compile(
    rf"(?i)满分\s*[:为是]?\s*\d|(?:{_D}|[十五百])\s*分制|scale\s+(?:of|from)\s+\d"
)
_NO_SCORE: Final = re.compile(
    # dates, ranges, fractions, alternatives
    rf"(?i){_D}(?:[ \t]*分?[ \t]*(?:-|~|/|到|至|to|or|或|and|和|与|out[ \t]of|vs\.?)[ \t]*{_D})+|"
    # lists, thousands, versions
    rf"{_D},\d+|\d+\.\d+\.[\d.]*|{_D}[ \t]*[,、][ \t]*{_D}(?=\s*(?:分|\Z|\n|[.。]))|"
    # limits
    r"(?:[<>≤≥]=?|高于|低于|不低于|不高于|超过|大于|小于|至少|至多|最多|最少|百分之|"
    rf"\b(?:over|under|above|below|at\s+least|at\s+most|up\s+to|more\s+than|less\s+than))[ \t]*{_D}|"
    rf"{_D}[ \t]*分?[ \t]*(?:\+|以上|以下|左右|多分|or\s+(?:more|less|higher|lower|above|below))|"
    # negative
    rf"(?:(?<![\w)])-|负[ \t]*|\bminus\s|\bnegative\s){_D}|"
    # other things that are counted
    rf"{_D}[ \t]*(?:stars?|颗?星|[★⭐])"
)
_VALUE: Final = rf"(?P<value>(?<![\w.¤]){_D}(?![\d¤])|(?<![a-z\d])(?<!.[\d]){_D}(?![\d¤])|¤)"
_POINTS: Final = r"(?:[ \t]*(?:分(?!钟)|points?|pts|%))?(?![a-z\d])"
_LABEL: Final = (
    r"(?P<final>最终|最后|综合|总|overall\s+|final\s+|total\s+)?(?:记忆|价值)*"
    r"(?P<label>评分|打分|得分|分数|分值|(?<=价)值分|(?<![a-z])score|(?<![a-z])rating|"
    r"重要性|重要度|(?<![a-z])importance)"
)
_CONNECTION: Final = (
    r"'?\s*(?:值|结果)?\s*(?::|=|->|=>|\b(?:should|would|will)\s+be\b|\b(?:is|of|at|as)\b|应该?[为是]|定为|[为是])\s*"
    r"(?::\s*)?(?:\b(?:about|around|approximately|an?)\b|大?约)?\s*"
)
_OTHER_SCALE_LABELS: Final = {"rating", "importance", "重要性", "重要度"}
_COUNTED: Final = (
    r"(?![ \t]*[个次条位])(?![ \t]+(?!because|since|as\b|and\b|with|for\b|given|due|based|on\b)[a-z])"
)
# 评分 60: where nothing joins the two, nothing may come after them.
_BARE_CONNECTION: Final = rf"[ \t]+(?={_D}{_POINTS}[ \t]*(?:[,;:。()\n]|[.!](?!\d)|\Z))"
_LABELLED: Final = re.compile(rf"(?i){_LABEL}(?:{_CONNECTION}|{_BARE_CONNECTION}){_VALUE}{_POINTS}{_COUNTED}")
_KNOWN_WORD: Final = (
    r"(?:(?:i|would|will|i'd|i'll|say|give|assign|rate|rated|it|this|that|a|an|the|at|as|is|of|turn|dialogue|"
    r"dialog|conversation|exchange|memory|value|score|answer|result|final|output|think|about|around|my|it's|"
    r"sure|ok|okay|here|overall)(?![a-z])|"
    r"我|会|给(?!我)|出|打|认为|觉得|判断|应该?|可以?|建议|这|本|此|轮|段|次|个|的|对话|回合|记忆|价值|评估|结果|"
    r"最终|大?约|定|值|答案|输出|为|是|了|好的?|如下|综合|总体|来看|得|评分?|分[数值]|打分|得分|在|"
    r"不?(?:太|很)?(?:值得|推荐|需要|必)(?:保存|保留|记住|存储)?)[\s,:!]*"
)
_SENTENCE: Final = re.compile(rf"(?i)(?:[-•]\s+)?(?P<words>{_KNOWN_WORD})*{_VALUE}{_POINTS}[\s.。!]*")
_NAMES_IT: Final = r"(?i:answer|result|score|rate|give|assign|value|答案|结果|给|打|评|分|定|价值)"
_BEFORE_REASON: Final = re.compile(
    rf"(?i)(?:(?=\D{{0,40}}{_NAMES_IT})(?:{_KNOWN_WORD})+)?{_VALUE}{_POINTS}[ \t]*"
    r"(?:[,:;。(]|\s-\s|because\b|since\b|as\b|因为|理由)(?![ \t]*[\d¤])"
)

_SCORE_KEYS: Final = {
    "score",
    "rating",
    "评分",
    "分数",
    "得分",
    "记忆价值",
    "价值分",
    "memory_value",
    "value",
}
_SCALE_KEYS: Final = {"max", "maximum", "max_score", "scale", "out_of", "满分"}
_NUMBER_KEYS: Final = {"no", "id", "index", "turn", "序号", "编号"}
_NUMBERED: Final = re.compile(
    r"(?i)(?:[-*]\s+)?(?:第|turn\s*|no\.?\s*|#)?\s*[(\[]?(?P<number>\d{1,3})\s*"
    r"(?:(?:轮|回合|段)\s*(?:对话)?\s*[:=]?|[)\]]\s*[:=]?|[:=、]|\.(?=\s))\s*(?P<rest>\S.*)"
)
_ARRAY: Final = re.compile(r"\[[\d\s,]*\]")


def read_score(answer: str) -> int | None:
    """The score that an answer gives, 0 to 100; None where it gives none, or it is not clear which."""
    text = _plain(answer)
    if text is None:
        return None
    value = _load(text)
    if value is None and _is_cut_off(text):
        return None
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return _score_of_text(text) if value is None else _score_of_value(value)


def read_scores(answer: str, count: int) -> list[int] | None:
    """The scores of `count` turns, in order; None where the answer does not give exactly these.

    Read are a JSON array of numbers or objects, an object of them by number, numbered lines, bare numbers.

    Args:
        answer: any.
        count: at least 1.
    """
    text = _plain(answer)
    if text is None:
        return None
    if count == 1:
        score = read_score(answer)
        return None if score is None else [score]
    if _is_cut_off(text):
        return None
    scores = list(_scores_of(text))
    known = [score for score in scores if score is not None]
    return known if len(known) == len(scores) == count else None


def _plain(answer: str) -> str | None:
    if len(answer) > _MAX_ANSWER_CHARS:
        answer = strip_thinking(answer)
    if len(answer) > _MAX_ANSWER_CHARS:
        return None
    text = unicodedata.normalize("NFKC", answer).translate(_DASHES)
    text = strip_fence(strip_thinking(text))
    tagged = list(_TAGGED.finditer(text))
    return tagged[0].group("inner").strip() if len(tagged) == 1 else text


def _is_cut_off(text: str) -> bool:
    """Whether JSON has begun and not ended: of its last number, digits may be missing."""
    return any(text.startswith(left) and text.count(left) > text.count(right) for left, right in ("[]", "{}"))


def _load(text: str) -> object:
    try:
        return json.loads(text) if text[:1] in {"{", "["} else None
    except (ValueError, RecursionError):
        return None


def _score_of_value(value: object) -> int | None:
    if isinstance(value, dict):
        return _score_of_object({str(key).lower(): item for key, item in value.items()})
    if isinstance(value, str):
        return _score_of_text(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return _score_of_number(value)


def _score_of_object(values: dict[str, object]) -> int | None:
    names = _SCORE_KEYS & values.keys()
    scales = [values[name] for name in _SCALE_KEYS & values.keys()]
    if len(names) != 1 or any(scale != MAX_SCORE for scale in scales):
        return None
    name = names.pop()
    score = _score_of_value(values[name]) if not isinstance(values[name], dict) else None
    return None if name == "rating" and score is not None and score <= _SMALL_SCALE else score


def _score_of_number(number: float) -> int | None:
    if not 0 <= number <= MAX_SCORE or (number <= _SMALL_SCALE and number != int(number)):
        return None
    return math.floor(number + 0.5)


def _score_of_text(answer: str) -> int | None:
    text = _readable(answer)
    if _OTHER_SCALE.search(text):
        return None
    labelled = list(_LABELLED.finditer(text))
    if labelled:
        return _agreed(labelled)
    sentence = _SENTENCE.fullmatch(text)
    if sentence:
        return _score_of_sentence(sentence)
    return _score_before_or_after_reason(text)


def _readable(answer: str) -> str:
    """Only what the model says itself, in which a number that can not be a score is unreadable."""
    text = _CONTROL_TOKEN.sub("", answer).strip()
    if not _QUOTED.fullmatch(text):
        text = _QUOTED.sub(_without_sentence, text)
    # Runs of blanks are what patterns take long for.
    text = "\n".join(" ".join(line.split()) for line in _MARKUP.sub("", text).splitlines() if line.strip())
    text = _LONG_NUMBER.sub(_UNREADABLE, text)
    text = _OWN_SCALE.sub(" ", text).strip(" \t\r\n'(),:;")
    return _NO_SCORE.sub(_UNREADABLE, _CHINESE_NUMERAL.sub(_in_digits, text))


def _without_sentence(quoted: re.Match[str]) -> str:
    text = quoted.group()
    is_sentence = re.search(r"\d", text) and re.search(r"[^\W\d_]", text)
    return " " if is_sentence else text


def _in_digits(match: re.Match[str]) -> str:
    numeral = match.group("numeral")
    if numeral.endswith("百"):
        return str(MAX_SCORE)
    tens, ten, ones = numeral.rpartition("十")
    if not ten:
        return str(_CHINESE_DIGITS[numeral])
    if not tens and not ones and match.string[match.end() :].strip(" .。!"):
        return numeral  # 十分 is "very"
    return str(10 * _CHINESE_DIGITS.get(tens, 1) + _CHINESE_DIGITS.get(ones, 0))


def _agreed(labelled: list[re.Match[str]]) -> int | None:
    finals = [match for match in labelled if match.group("final")]
    scores = {
        _accept(match, small=match.group("label").lower() not in _OTHER_SCALE_LABELS)
        for match in finals or labelled
    }
    return scores.pop() if len(scores) == 1 else None


def _score_of_sentence(sentence: re.Match[str]) -> int | None:
    return _accept(sentence, small=sentence.group("words") is None)


def _score_before_or_after_reason(text: str) -> int | None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > 1:
        first, last = (_SENTENCE.fullmatch(line) for line in (lines[0], lines[-1]))
        scores = {_score_of_sentence(first)} if first else set()
        scores |= {_accept(last, small=False)} if last else set()
        if scores:
            return scores.pop() if len(scores) == 1 else None
    leading = _BEFORE_REASON.match(text)
    return _accept(leading, small=False) if leading else None


def _accept(match: re.Match[str], *, small: bool) -> int | None:
    digits = match.group("value")
    if digits == _UNREADABLE or len(digits) > len("100.000") or re.match(r"0\d", digits):
        return None
    score = _score_of_number(float(digits))
    return score if not score or small or score > _SMALL_SCALE else None


def _scores_of(text: str) -> Iterable[int | None]:
    value = _load(text)
    if isinstance(value, dict) and len(value) == 1 and isinstance(inner := next(iter(value.values())), list):
        value = inner
    if isinstance(value, dict):
        return _scores_by_number(list(value.items()))
    if isinstance(value, list):
        return _scores_of_list(value)
    arrays = _ARRAY.findall(text)
    if len(arrays) == 1 and isinstance(value := _load(arrays[0]), list):
        return _scores_of_list(value)
    return _scores_of_lines([line.strip() for line in text.splitlines() if line.strip()])


def _scores_of_list(values: list[object]) -> Iterator[int | None]:
    for place, value in enumerate(values, start=1):
        is_placed = not isinstance(value, dict) or all(
            str(value[key]) == str(place) for key in _NUMBER_KEYS & value.keys()
        )
        yield _score_of_value(value) if is_placed else None


def _scores_by_number(items: list[tuple[str, object]]) -> Iterator[int | None]:
    for place, (key, value) in enumerate(items, start=1):
        yield _score_of_value(value) if key == str(place) else None


def _scores_of_lines(lines: list[str]) -> Iterator[int | None]:
    if len(lines) == 1:
        lines = [part.strip() for part in re.split(r"[,;、]", lines[0])]
    is_numbered = all(_NUMBERED.fullmatch(line) for line in lines)
    for place, line in enumerate(lines, start=1):
        numbered = _NUMBERED.fullmatch(line) if is_numbered else None
        if numbered and int(numbered.group("number")) != place:
            yield None
        else:
            yield _score_of_text(numbered.group("rest") if numbered else line)
