"""English time words, in lower case (`time_words` folds them). Pure."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from app.recall.numerals import ENGLISH_AMOUNT, Amount, english_amount
from app.recall.time_distances import Distance, Unit, ago, before_today, earlier, just_now, recent
from app.recall.time_meanings import Meaning
from app.recall.time_places import (
    EVENING,
    clock,
    day_of_month,
    festival,
    last_festival,
    last_months,
    last_weekday,
    months,
    never,
    part_of_day,
    part_of_relative_day,
    relative_day,
    relative_month,
    relative_quarter,
    relative_week,
    relative_weekend,
    relative_year,
    same_day,
    third,
    weekday,
    weekend,
    year,
)
from app.recall.time_rules import Handler, RuleTable
from app.recall.time_vocabulary_en import (
    COUNTED,
    DAY_NUMBER,
    FESTIVAL_WORDS,
    LONG_MONTH,
    LONG_WEEKDAY,
    MONTH,
    MONTHS,
    PARTS,
    PLAIN_MONTH,
    SEASON,
    SEASONS,
    UNIT,
    UNITS,
    VERB_MONTHS,
    WEEKDAY,
    WEEKDAYS,
    YEAR,
)

_Match = re.Match[str]
_NOTHING: Final[Sequence[Meaning]] = ()
_SEASON_LENGTH: Final = 3
_FORTNIGHT_WEEKS: Final = 2
_MAX_YEARS: Final = 200
_NOON_H: Final = 12
_MIDNIGHT_H: Final = 24
_OTHER_DAY: Final = Amount(2, 14)
_PERIODS: Final = {
    "day": relative_day,
    "week": relative_week,
    "weekend": relative_weekend,
    "month": relative_month,
    "quarter": relative_quarter,
    "year": relative_year,
}


def _fold(words: str | None) -> str:
    return " ".join((words or "").split())


def _step_over(_match: _Match) -> Sequence[Meaning]:
    return _NOTHING


def _never(_match: _Match) -> Sequence[Meaning]:
    return (never(),)


def _weekday_number(name: str) -> int:
    return WEEKDAYS[name[:3]]


def _month_number(name: str) -> int:
    return MONTHS[name[:3]]


def _quantity(amount: str, unit_name: str, *, and_a_half: bool = False) -> tuple[Amount, Unit] | None:
    read = english_amount(_fold(amount))
    unit = UNITS[unit_name[:3]]
    if unit_name.startswith("fort"):
        read = Amount(read.low * _FORTNIGHT_WEEKS, read.high * _FORTNIGHT_WEEKS)
    if unit is Unit.YEAR and read.high > _MAX_YEARS:
        return None
    if and_a_half:
        read = Amount(read.low + 0.5, read.high + 0.5)
    return read, unit


def _ago(match: _Match) -> Sequence[Meaning]:
    amount, unit_name, half, or_two, second_amount, second_unit = match.groups()
    quantity = _quantity(amount, unit_name, and_a_half=half is not None)
    if quantity is None:
        return _NOTHING
    if or_two:
        quantity = Amount(1, 2), quantity[1]
    distance: Distance = [quantity]
    if second_amount:
        second = _quantity(second_amount, second_unit)
        if second is None:
            return _NOTHING
        distance.append(second)
    if unit_name.startswith("night"):
        return ago(distance), part_of_day(EVENING)
    return (ago(distance),)


def _weekends_ago(match: _Match) -> Sequence[Meaning]:
    amount = english_amount(_fold(match[1]))
    if amount.low == amount.high == int(amount.low):
        return (relative_weekend(-int(amount.low)),)
    return (ago([(amount, Unit.WEEK)]),)


def _recent(match: _Match) -> Sequence[Meaning]:
    quantity = _quantity(match[1] or "a", match[2])
    return _NOTHING if quantity is None else (recent(*quantity),)


def _before_last(match: _Match) -> Sequence[Meaning]:
    return (_PERIODS[match[1]](-2),)


def _relative_period(match: _Match) -> Sequence[Meaning]:
    return (_PERIODS[match[2]](0 if match[1] == "this" else -1),)


def _earlier(match: _Match) -> Sequence[Meaning]:
    return (earlier(_PERIODS[(match[1] or "day")](0)),)


def _relative_weekday(match: _Match) -> Sequence[Meaning]:
    number = _weekday_number(match[2])
    return (relative_week(0), weekday(number)) if _fold(match[1]) == "this" else (last_weekday(number),)


def _weekday(match: _Match) -> Sequence[Meaning]:
    return (weekday(_weekday_number(match[0])),)


def _weekdays_ago(match: _Match) -> Sequence[Meaning]:
    amount = english_amount(_fold(match[1]))
    return (last_weekday(_weekday_number(match[2]), nth=max(1, int(amount.low))),)


def _season_before_last(match: _Match) -> Sequence[Meaning]:
    return (last_months(SEASONS[match[1]], length=_SEASON_LENGTH, nth=2),)


def _weekend(match: _Match) -> Sequence[Meaning]:
    leads = ("over the ", "on the ", "at the ", "during the ")
    return (weekend(alone=match.string.endswith(leads, 0, match.start())),)


def _relative_part(match: _Match) -> Sequence[Meaning]:
    lead, part = _fold(match[1]), _fold(match[2])
    return (part_of_relative_day(PARTS[part or "night"], shift=-1 if lead == "last" else 0),)


def _relative_month_name(match: _Match) -> Sequence[Meaning]:
    number = _month_number(match[2])
    return (last_months(number),) if match[1] == "last" else (relative_year(0), months(number))


def _month(match: _Match) -> Sequence[Meaning]:
    return (months(_month_number(match[0])),)


def _month_and_year(match: _Match) -> Sequence[Meaning]:
    return year(int(match[2])), months(_month_number(match[1]))


def _month_and_day(match: _Match, *, month: int) -> Sequence[Meaning]:
    """A date; groups 1 and 3 are month and day or the other way round, 2 an ordinal ending, 4 a year."""
    name, number = match[month], match[4 - month]
    is_sure = month == 1 or match[2] or match[4] or match.string.endswith("on ", 0, match.start())
    if name in VERB_MONTHS and not is_sure:
        # "the top 5 may change"
        return _NOTHING
    date = months(_month_number(name)), day_of_month(int(number))
    return (year(int(match[4])), *date) if match[4] else date


def _day_of_month(match: _Match) -> Sequence[Meaning]:
    return (day_of_month(int(match[1]), alone=match.string.endswith("on the ", 0, match.start())),)


def _year(match: _Match, *, alone: bool) -> Sequence[Meaning]:
    return (year(int(match[1]), alone=alone),)


def _season(match: _Match) -> Sequence[Meaning]:
    lead = _fold(match[1])
    first = SEASONS[match[2]]
    if lead in {"last", "past", "this past"}:
        return (last_months(first, length=_SEASON_LENGTH),)
    if lead == "this":
        return relative_year(0), months(first, length=_SEASON_LENGTH)
    return (months(first, length=_SEASON_LENGTH, alone=bool(lead)),)


def _quarter(match: _Match) -> Sequence[Meaning]:
    number = {"first": 1, "second": 2, "third": 3, "fourth": 4}.get(_fold(match[2])) or int(match[1])
    return (months(3 * number - 2, length=3, alone=False),)


def _third(match: _Match, *, of_year: bool = False, alone: bool = False) -> Sequence[Meaning]:
    word = match[1]
    which = 0 if word in {"early", "beginning", "start"} else 1 if word.startswith("mid") else 2
    return (third(which, of_year=of_year, alone=alone),)


def _festival(name: str, match: _Match) -> Sequence[Meaning]:
    lead = _fold(match[1])
    if lead == "last":
        return (last_festival(name),)
    return (relative_year(0), festival(name)) if lead == "this" else (festival(name),)


def _part(match: _Match) -> Sequence[Meaning]:
    return (part_of_day(PARTS.get(_fold(match[0])) or PARTS[match[1]]),)


def _clock(match: _Match) -> Sequence[Meaning]:
    hour, minute = int(match[1]), int(match[2]) if match[2] else None
    if match[3]:
        if not 1 <= hour <= _NOON_H:
            return _NOTHING
        hour = hour % _NOON_H + (_NOON_H if match[3] == "p" else 0)
        return (clock(hour, minute, is_24h=True, alone=True),)
    is_24h = hour > _NOON_H or match[1].startswith("0")
    return (clock(hour, minute, is_24h=is_24h, alone=bool(match[2] or match[4])),)


def _after_any(*words: str) -> str:
    """Pattern that holds behind one of some words and a blank."""
    return f"(?:{'|'.join(rf'(?<={word} )' for word in words)})"


_LAST: Final = r"(?:last|past|previous)"
_OF_PERIOD: Final = rf"(?=(?:(?:last|this)\s+(?:month|year)|(?:last\s+|this\s+)?{LONG_MONTH}|{YEAR})\b)"

_YEAR: Final = rf"({YEAR})\b(?![%'’\-/]|[.,]\d|\s+{COUNTED})"

_RULES: Final[list[tuple[str, Handler]]] = [
    (
        (
            r"good\s+(?:morning|afternoon|evening|night)|sunday\s+school|ruby\s+tuesday|wednesday\s+addams"
            r"|sheffield\s+wednesday|man\s+friday|night\s+(?:clubs?|shifts?)|last\s+(?:minute|second)\b"
        ),
        _step_over,
    ),
    (r"the\s+day\s+before\s+yesterday", lambda _m: (relative_day(-2),)),
    (r"the\s+night\s+before\s+last", lambda _m: (part_of_relative_day(EVENING, shift=-2),)),
    (r"the\s+(week|weekend|month|year)\s+before\s+last\b(?!\s+week)", _before_last),
    (rf"{_LAST}\s+({ENGLISH_AMOUNT})\s+({UNIT})", _recent),
    (
        r"(?:(?:in|over|during|within)\s+(?:the\s+)?last|past)\s+()(minute|hour|day|week|month|year)\b",
        _recent,
    ),
    (
        (
            rf"({ENGLISH_AMOUNT})[\s-]+({UNIT})(\s+and\s+a\s+half)?(\s+or\s+(?:two|so\s+two))?"
            rf"(?:(?:\s+and)?\s+({ENGLISH_AMOUNT})\s+({UNIT}))?\s+(?:ago|back)\b"
        ),
        _ago,
    ),
    (rf"({ENGLISH_AMOUNT})\s+weekends?\s+ago\b", _weekends_ago),
    (rf"({ENGLISH_AMOUNT})\s+({LONG_WEEKDAY})s?\s+ago\b", _weekdays_ago),
    (rf"the\s+({SEASON})\s+before\s+last\b", _season_before_last),
    (r"just\s+now\b|(?:a\s+)?moments?\s+ago\b", lambda _m: (just_now(),)),
    (r"the\s+other\s+(?:day|night)\b", lambda _m: (before_today(_OTHER_DAY, Unit.DAY),)),
    (r"earlier\s+(?:today|this\s+(week|month|year))\b", _earlier),
    # To come, recurring, or told from elsewhere.
    (
        (
            r"(?:the\s+)?day\s+after\s+tomorrow\b|tomorrow\b|later\s+(?:today|this\s+(?:week|month|year))\b"
            r"|(?:next|coming|following|upcoming|every|each|any|some|that)\s+(?:other\s+|single\s+|few\s+)?"
            rf"(?:{UNIT}|morning|afternoon|evening|weekend|quarter|(?:{WEEKDAY}|{LONG_MONTH}|{SEASON}|christmas"
            r"|easter|thanksgiving|halloween|new\s+year)\b)"
            rf"|(?:in|within)\s+(?:the\s+next\s+)?{ENGLISH_AMOUNT}\s+{UNIT}"
            rf"|{ENGLISH_AMOUNT}\s+{UNIT}\s+(?:from\s+now|later|after|before|earlier)\b"
            rf"|the\s+(?:same|previous)\s+{UNIT}"
        ),
        _never,
    ),
    (r"yesterday\b", lambda _m: (relative_day(-1),)),
    (r"today\b", lambda _m: (relative_day(0),)),
    (r"(?:(last|this)\s+(morning|afternoon|evening|night)|tonight)\b", _relative_part),
    (r"this\s+(?:same\s+)?time\s+(?=last\s+(?:year|month)\b)", lambda _m: (same_day(margin_days=15),)),
    (rf"this\s+day\s+(?=last\s+(?:year|month)\b|in\s+{YEAR})", lambda _m: (same_day(margin_days=0),)),
    (r"(last|this)\s+(week|weekend|month|quarter|year)\b", _relative_period),
    (r"(?:this\s+)?(past)\s+(weekend)\b", _relative_period),
    (rf"(last|this\s+past|past|this)\s+({WEEKDAY})\b", _relative_weekday),
    (rf"{LONG_WEEKDAY}\b|{_after_any('on', 'since', 'until')}{WEEKDAY}\b", _weekday),
    (r"weekend\b", _weekend),
    *(
        (rf"(?:(last|this)\s+)?(?:{pattern})", partial(_festival, name))
        for name, pattern in FESTIVAL_WORDS.items()
    ),
    (rf"(last|this)\s+({LONG_MONTH})", _relative_month_name),
    (
        (
            rf"({MONTH})\s+(?:the\s+)?(?=\d{{1,2}}(st|nd|rd|th)?\b)({DAY_NUMBER})(?:st|nd|rd|th)?\b"
            rf"(?:,?\s+({YEAR})\b)?(?!:|[.,]\d|%|\s*[ap]\.?m\b|\s+{COUNTED})"
        ),
        partial(_month_and_day, month=1),
    ),
    (
        rf"({DAY_NUMBER})(st|nd|rd|th)?\s+(?:of\s+)?({MONTH})(?:,?\s+({YEAR})\b)?",
        partial(_month_and_day, month=3),
    ),
    (rf"({MONTH})(?:\s*,)?\s+(?:of\s+)?({YEAR})\b", _month_and_year),
    (
        (
            rf"(?:{_after_any('in', 'of', 'during', 'since', 'until', 'early', 'late', 'mid', 'after')}"
            rf"|(?<=mid-)){LONG_MONTH}|{_after_any('in', 'during', 'since', 'until')}{MONTH}"
            rf"|{_after_any('from', 'between')}{LONG_MONTH}(?=\s+(?:to|through|until|and)\b)"
            rf"|{_after_any('from', 'to', 'through', 'by', 'before', 'and', 'or')}{PLAIN_MONTH}"
        ),
        _month,
    ),
    (
        (
            rf"({DAY_NUMBER})(?:st|nd|rd|th)\b(?:(?<=on the \d\w\w)|(?<=on the \d\d\w\w)"
            r"|(?=\s+of\s+(?:last|this)\s+month\b))(?!\s+(?:floor|street|avenue|grade|time|place|century))"
        ),
        _day_of_month,
    ),
    (rf"(early|late|mid)(?:[-\s]|\s+in\s){_OF_PERIOD}", _third),
    (rf"(beginning|start|middle|end)\s+of\s+{_OF_PERIOD}", _third),
    (r"(beginning|start|middle|end)\s+of\s+the\s+month\b", partial(_third, alone=True)),
    (r"(beginning|start|middle|end)\s+of\s+the\s+year\b", partial(_third, of_year=True, alone=True)),
    (
        (
            rf"(?:(last|this\s+past|past|this|in\s+the|during\s+the|over\s+the)\s+)?\b({SEASON})(?:time)?\b"
            rf"(?:(?<!fall)|(?=\s+(?:of\s+)?{YEAR})|(?<=last fall)|(?<=this fall)|(?<=the fall))"
        ),
        _season,
    ),
    (r"(?:q([1-4])\b|(first|second|third|fourth)\s+quarter\b)", _quarter),
    (
        rf"{_after_any('in', 'during', 'since', 'of', 'from', 'year', 'until', 'before', 'after')}{_YEAR}",
        partial(_year, alone=True),
    ),
    (rf"(?<![$€£¥#.,/\-]){_YEAR}", partial(_year, alone=False)),
    (r"(?:(?:early|late|mid)[-\s]+)?(morning|afternoon|evening|night)\b", _part),
    (r"noon\b", lambda _m: (clock(_NOON_H, is_24h=True),)),
    (r"midnight\b", lambda _m: (clock(_MIDNIGHT_H, is_24h=True),)),
    (
        (
            r"(?<![:.$#/\-])(2[0-4]|1\d|0?\d)(?::([0-5]\d))?"
            r"(?:\s?([ap])\.?m\b|\s?(o['’]?clock\b)|(?=\s+in\s+the\s+(?:morning|afternoon|evening)\b)"
            r"|(?<=at \d)|(?<=at \d\d)|(?<=around \d)|(?<=around \d\d)|(?<=at \d:\d\d)|(?<=at \d\d:\d\d))"
            rf"(?![\d:%]|[.,/\-]\d|\s+{COUNTED})"
        ),
        _clock,
    ),
]
# Every pair of signs that a rule begins with.
_STARTS: Final = (
    r"\b(?=\d|q[1-4]|a[\sfnpu]|b[el]|c[hou]|d[aeru]|e[ailnv]|f[aeior]|go|h[ao]|in|j[aeu]|l[aosu]|m[aeiot]"
    r"|n[eio]|o[cnv]|p[ar]|qi|ru|s[aehiopu]|t[ehouw]|up|va|w[eio]|xm|ye)"
)
TABLE: Final = RuleTable(_RULES, starts_with=_STARTS, flags=re.ASCII)
