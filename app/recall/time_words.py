"""Reads when something was said from a question: 昨天, 上周三下午, 去年国庆, last Tuesday, in May 2023. Pure.

What is read is a half-open range in the user's zone.

- An expression is what adjoining words refine together (去年 + 国庆节, 前天 + 晚上 + 八点, `Friday` +
  `last week`); in Chinese a person may stand between (昨天我们下午三点). What lacks its coarser part is the
  most recent in the past: 3月5号 is this year's or last year's, 周三 and `last Tuesday` the last one before
  today. 上周三 is the Wednesday of the previous week; weeks start on Monday.
- Days, weeks, months and years are whole ones. Clock times are half an hour either way, or a quarter where
  minutes were said; 'N units ago' is as wide as `time_distances` says; 刚才 is the last half hour.
- Parts of the day have fixed hours (`time_places`); an evening lasts until two, so that 昨晚 and `last night`
  hold what was said after midnight. Without a part of the day, one to five o'clock is in the afternoon.
- 'From A to B' and 'A and B' give the hull, 'since A' and 'after A' end now, 'before A' is not read.
- Of several expressions, one beside a verb of saying comes first (上周说的 is when it was said, what follows
  is what was said), then any before the bare present (今天, this year), then the tightest, then the first.
- A range wholly in the future, or before the year 2000, gives none: no message can be there. Vague words
  (最近, 以前, recently), recurring ones (每天, on Mondays) and false friends (2000块钱, 第二天, `may I`) give
  none either.
"""

import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

from app.recall import time_words_en, time_words_zh
from app.recall.time_meanings import DAY, Level, Meaning, Moment, Span, span_of
from app.recall.time_places import calendar_date, clock
from app.recall.time_rules import RuleTable, TimeWord


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A time a text speaks of.

    Attributes:
        text: the words, as they stand in the text.
        since: aware, in the zone that was given.
        until: aware, in the zone that was given; since <= t < until.
    """

    text: str
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class _Expression:
    start: int
    end: int
    chain: tuple[Meaning, ...]


@dataclass(frozen=True, slots=True)
class _Reading:
    start: int
    end: int
    span: Span
    is_present: bool


# One sign for one sign, so that places in the folded text are places in the text.
_FOLDED: Final = str.maketrans(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ０１２３４５６７８９：／－．週個點號後剛兩節鐘時間禮這過幾聖誕國慶勞動兒淩裡裏歲隨兩陽婦萬來約當內開",
    "abcdefghijklmnopqrstuvwxyz0123456789:/-.周个点号后刚两节钟时间礼这过几圣诞国庆劳动儿凌里里岁随两阳妇万来约当内开",
)
_NOON_H: Final = 12
_EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)

_HAS_LETTERS: Final = re.compile(r"[a-z]")
_HAS_DIGITS: Final = re.compile(r"\d")
_HAS_CHINESE: Final = re.compile(r"[一-鿿]")
_LONGEST_GAP: Final = 24
_TIGHT_GAP: Final = re.compile(
    r"(?:[\s,，]|的|[那当这]天|那个?(?=[的\s])?|之|t$|['’]s\b|\b(?:of|in|on|at|the|around|during|from|for|back)\b){0,6}",
)
_PERSON_GAP: Final = re.compile(r"[我你您他她它们咱大家和跟在的那个是就]{0,8}")
_BETWEEN_PREFIX: Final = re.compile(r"\bbetween\s+(?:the\s+)?$")
_TO: Final = re.compile(r"\s*(?:到了?|至|[~～—–-]{1,2}|to|until|till|through)\s*(?:the\s|on\s)?")
_AND: Final = re.compile(r"\s*(?:和|与|跟|或者?|还是|以及|、|and|or)\s*(?:the\s|on\s|in\s|at\s)?")
_BEFORE_SUFFIX: Final = re.compile(r"的?(?:之前|以前|为止|前(?![后端台往面]))")
_AFTER_SUFFIX: Final = re.compile(r"的?(?:之后|以后|后(?![来天台面半悔续备]))")
_SINCE_SUFFIX: Final = re.compile(
    r"以来|至今|开始|起(?![床来码初因源点飞诉名步义])|到(?:现在|今天|目前|如今)|\s+onwards?\b|\s+(?:to|until|till)\s+now\b"
)
_BEFORE_PREFIX: Final = re.compile(r"\b(?:before|until|till|by|prior to|截至|截止到?)\s*(?:the\s+)?$")
_AFTER_PREFIX: Final = re.compile(r"\bafter\s+(?:the\s+)?$")
_SINCE_PREFIX: Final = re.compile(r"(?:\bsince\s+(?:the\s+)?|自从|自)$")
_LONGEST_PREFIX: Final = 16
_SAID_AFTER: Final = re.compile(r".{0,8}?(?:[说问聊讲提谈写发记]|告诉|回答|答应|推荐|分享|咨询)")
_SAYING: Final = re.compile(
    r"\b(?:say|said|tell|told|ask(?:ed)?|mention(?:ed)?|talk(?:ed)?|discuss(?:ed)?|chat(?:ted)?|wrote|write|sen[dt]|"
    r"recommend(?:ed)?|share[d]?)\b",
)
_SAID_BEFORE_WITHIN: Final = 40
_SAID_AFTER_WITHIN: Final = 15


def _iso_date(match: re.Match[str]) -> tuple[Meaning, ...]:
    year, month, day = (int(digits) for digits in re.findall(r"\d+", match[0]))
    try:
        return (calendar_date(date(year, month, day)),)
    except ValueError:
        return ()


def _iso_clock(match: re.Match[str]) -> tuple[Meaning, ...]:
    hour = int(match[1])
    is_24h = match[1].startswith("0") or hour == 0
    alone = match[3] is not None or match.string[: match.start()].endswith(("在", "at "))
    return (clock(hour, int(match[2]), is_24h=is_24h or hour > _NOON_H, alone=alone),)


_NUMERIC: Final = RuleTable(
    [
        (
            (
                r"(?<![a-z\d_.\-/])(?:19|20)\d\d"
                r"(?:-(?:0?[1-9]|1[0-2])-\d{1,2}|/(?:0?[1-9]|1[0-2])/\d{1,2}|\.(?:0?[1-9]|1[0-2])\.\d{1,2})"
                r"(?![a-su-z\d_]|[-/.]\d)"
            ),
            _iso_date,
        ),
        (
            (
                r"(?:(?<=\dt)|(?<![\d:.a-z/]))([01]?\d|2[0-3]):([0-5]\d)(?::[0-5]\d(?:\.\d{1,6})?)?"
                r"(?![\d:%]|\.\d|\s?[ap]\.?m\b)(?=(的时候|左右|那会|[我你他她咱])?)"
            ),
            _iso_clock,
        ),
    ],
    starts_with=r"(?=\d)",
)


def read_time_range(text: str, *, now: datetime, zone: ZoneInfo) -> TimeRange | None:
    """Read the time that a question asks about, or None where it names none.

    Args:
        text: the question, Chinese or English, of any length.
        now: aware; what 昨天 and `ago` count from.
        zone: whose calendar days are meant.
    """
    folded = text.translate(_FOLDED)
    words = _words(folded)
    if not words:
        return None
    try:
        local = now.astimezone(zone)
        moment = Moment(instant=local.astimezone(UTC), wall=local.replace(tzinfo=None, fold=0))
        readings = _readings(folded, _expressions(folded, words), moment=moment, zone=zone)
        best = min(readings, key=lambda reading: _rank(reading, folded), default=None)
        if best is None:
            return None
        since, until = (bound.astimezone(zone) for bound in best.span)
    except (OverflowError, ValueError):
        # Counted back beyond the first year, or forward beyond the last.
        return None
    return TimeRange(text[best.start : best.end], since, until)


def _words(text: str) -> list[TimeWord]:
    """Time words of all tables, the longer where two overlap."""
    found: list[TimeWord] = []
    if _HAS_CHINESE.search(text):
        found += time_words_zh.TABLE.words(text)
    if _HAS_LETTERS.search(text):
        found += time_words_en.TABLE.words(text)
    if _HAS_DIGITS.search(text):
        found += _NUMERIC.words(text)
    found.sort(key=lambda word: (word.start, -word.end))
    kept: list[TimeWord] = []
    for word in found:
        if not kept or word.start >= kept[-1].end:
            kept.append(word)
    return kept


def _expressions(text: str, words: list[TimeWord]) -> list[_Expression]:
    """Join words that refine each other."""
    joined = [_Expression(words[0].start, words[0].end, words[0].meanings)]
    for word in words[1:]:
        last = joined[-1]
        chain = _joined(last.chain, word.meanings)
        if chain is not None and _is_joint(text[last.end : word.start], chain, word.meanings):
            joined[-1] = _Expression(last.start, word.end, chain)
        else:
            joined.append(_Expression(word.start, word.end, word.meanings))
    return joined


def _joined(one: tuple[Meaning, ...], other: tuple[Meaning, ...]) -> tuple[Meaning, ...] | None:
    """One chain of both, from coarse to fine; None where they share a level or both are anchored."""
    chain = tuple(sorted(one + other, key=lambda meaning: meaning.top))
    for coarse, fine in pairwise(chain):
        if fine.needs is None or fine.top <= coarse.bottom:
            return None
    return chain


def _is_joint(gap: str, chain: tuple[Meaning, ...], word: tuple[Meaning, ...]) -> bool:
    if len(gap) > _LONGEST_GAP:
        return False
    if _TIGHT_GAP.fullmatch(gap):
        return True
    return chain[-1] is word[-1] and _PERSON_GAP.fullmatch(gap) is not None


def _readings(text: str, expressions: list[_Expression], *, moment: Moment, zone: ZoneInfo) -> list[_Reading]:
    """What each expression, or pair of them, stands for."""
    readings: list[_Reading] = []
    previous: _Expression | None = None
    for stated in expressions:
        expression = stated
        is_to = None if previous is None else _joint(text, previous, expression)
        if is_to is None or previous is None:
            reading = _reading(text, expression, moment=moment, zone=zone)
            if reading is not None:
                readings.append(reading)
            elif previous is not None and readings and _is_reference(text, previous, expression):
                # "the weekend before April 10" is counted from there, not from now.
                readings.pop()
        else:
            # 下午三点到五点, `May to July 2023`: each borrows from the other what it lacks.
            first = replace(previous, chain=_borrowed(expression.chain, previous.chain))
            expression = replace(expression, chain=_borrowed(previous.chain, expression.chain))
            one = _reading(text, first, moment=moment, zone=zone)
            other = _reading(text, expression, moment=moment, zone=zone)
            if readings and readings[-1].end >= previous.end:
                readings.pop()
            if one is not None and (is_to or other is not None):
                readings.append(
                    _hull(one, other, end=expression.end, is_to=is_to, tonight=_tonight(moment, zone))
                )
            else:
                readings += [reading for reading in (one, other) if reading is not None]
        previous = expression
    return readings


def _joint(text: str, one: _Expression, other: _Expression) -> bool | None:
    """Whether what stands between two expressions says 'to' (True) or 'and' (False)."""
    gap = text[one.end : other.start]
    if len(gap) > _LONGEST_GAP:
        return None
    if _TO.fullmatch(gap):
        return True
    if _AND.fullmatch(gap) is None:
        return None
    return _BETWEEN_PREFIX.search(text, max(0, one.start - _LONGEST_PREFIX), one.start) is not None


def _borrowed(lender: tuple[Meaning, ...], chain: tuple[Meaning, ...]) -> tuple[Meaning, ...]:
    """A chain headed by what it leans on, where the lender has that."""
    if chain[0].needs is None:
        return chain
    return (*(meaning for meaning in lender if meaning.bottom < chain[0].top), *chain)


def _stands(chain: tuple[Meaning, ...]) -> bool:
    """Whether a chain says enough to be read: 三点 alone does not."""
    return len(chain) > 1 or chain[0].alone


def _reading(text: str, expression: _Expression, *, moment: Moment, zone: ZoneInfo) -> _Reading | None:
    chain = expression.chain
    if not _stands(chain):
        return None
    prefix = text[max(0, expression.start - _LONGEST_PREFIX) : expression.start]
    end = expression.end
    is_since = bool(_SINCE_PREFIX.search(prefix))
    is_after = bool(_AFTER_PREFIX.search(prefix))
    if suffix := _BEFORE_SUFFIX.match(text, end):
        if len(chain) == 1 or chain[-1].top < Level.PART:
            return None
        # 昨天八点前: at least it was yesterday.
        chain = tuple(meaning for meaning in chain if meaning.top < Level.PART) or chain[:1]
        end = suffix.end()
    elif suffix := _AFTER_SUFFIX.match(text, end):
        is_after = True
        end = suffix.end()
    elif suffix := _SINCE_SUFFIX.match(text, end):
        is_since = True
        end = suffix.end()
    elif _BEFORE_PREFIX.search(prefix):
        return None
    span = span_of(chain, moment)
    if span is None:
        return None
    span = _pinned(span, zone)
    if is_since or is_after:
        span = Span(span.until if is_after else span.since, moment.instant)
    if not span.until > _EARLIEST or not span.since < span.until:
        return None
    return _Reading(expression.start, end, span, len(chain) == 1 and chain[0].is_present)


def _is_reference(text: str, previous: _Expression, expression: _Expression) -> bool:
    gap = text[previous.end : expression.start]
    return (
        len(gap) <= _LONGEST_PREFIX and re.fullmatch(r"\s*(?:before|prior to)\s+(?:the\s+)?", gap) is not None
    )


def _hull(one: _Reading, other: _Reading | None, *, end: int, is_to: bool, tonight: datetime) -> _Reading:
    """From the start of one to the end of the other; an end that is still to come is the end of today."""
    since, until = one.span
    if other is not None and not is_to:
        since, until = min(since, other.span.since), max(until, other.span.until)
    elif other is not None and other.span.until > until:
        until = other.span.until
    else:
        until = max(until, tonight)
    return _Reading(one.start, end, Span(since, until), is_present=False)


def _tonight(moment: Moment, zone: ZoneInfo) -> datetime:
    return _pinned(Span(moment.today, moment.today + DAY), zone).until


def _pinned(span: Span, zone: ZoneInfo) -> Span:
    """The span as instants in UTC."""
    since, until = (
        (bound if bound.tzinfo is not None else bound.replace(tzinfo=zone)).astimezone(UTC) for bound in span
    )
    return Span(since, until)


def _rank(reading: _Reading, text: str) -> tuple[bool, bool, timedelta, int]:
    """The less, the better."""
    is_said = bool(
        _SAID_AFTER.match(text, reading.end)
        or _SAYING.search(text, max(0, reading.start - _SAID_BEFORE_WITHIN), reading.start)
        or _SAYING.search(text, reading.end, reading.end + _SAID_AFTER_WITHIN)
    )
    return not is_said, reading.is_present, reading.span.until - reading.span.since, reading.start
