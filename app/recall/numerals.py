"""Numbers as people write them beside units of time, Chinese and English. Pure."""

from typing import Final, NamedTuple

CHINESE_NUMBER: Final = r"(?:\d{1,4}|[零〇一二两三四五六七八九十百]{1,7})"
"""Pattern of a whole number, Arabic or Chinese, as `chinese_number` reads it."""

_VAGUE_CHINESE: Final[dict[str, tuple[int, int]]] = {
    "几十": (20, 90),
    "十几": (11, 19),
    "十多": (11, 19),
    "十来": (9, 12),
    "好几": (3, 8),
    "几": (2, 6),
    "数": (2, 6),
    "一两": (1, 2),
    "两三": (2, 3),
    "二三": (2, 3),
    "三四": (3, 4),
    "三五": (3, 5),
    "四五": (4, 5),
    "五六": (5, 6),
    "六七": (6, 7),
    "七八": (7, 8),
    "八九": (8, 9),
}
CHINESE_AMOUNT: Final = rf"(?:{'|'.join(_VAGUE_CHINESE)}|{CHINESE_NUMBER}|半)"
"""Pattern of an amount, definite or vague, as `chinese_amount` reads it."""

_CHINESE_DIGITS: Final = {sign: value for value, sign in enumerate("零一二三四五六七八九")} | {
    "〇": 0,
    "两": 2,
}
_CHINESE_TENS: Final = {"十": 10, "百": 100}

_ONE_TO_TWENTY: Final = (
    "one two three four five six seven eight nine ten eleven twelve "
    "thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"
)
_ENGLISH_WORDS: Final = {word: value for value, word in enumerate(_ONE_TO_TWENTY.split(), start=1)} | {
    "a": 1,
    "an": 1,
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "sixty": 60,
    "ninety": 90,
}
_VAGUE_ENGLISH: Final[dict[str, tuple[float, float]]] = {
    "a couple of": (2, 3),
    "a couple": (2, 3),
    "couple of": (2, 3),
    "couple": (2, 3),
    "a few": (2, 6),
    "few": (2, 6),
    "several": (3, 8),
    "one or two": (1, 2),
    "two or three": (2, 3),
    "three or four": (3, 4),
    "half an": (0.5, 0.5),
    "half a": (0.5, 0.5),
    "a half": (0.5, 0.5),
    "one and a half": (1.5, 1.5),
}
ENGLISH_AMOUNT: Final = (
    rf"(?:{'|'.join([*sorted(_VAGUE_ENGLISH, key=len, reverse=True), *_ENGLISH_WORDS])}|\d{{1,4}})"
)
"""Pattern of an amount, definite or vague, as `english_amount` reads it; lower case, single blanks."""


class Amount(NamedTuple):
    """How many of a unit, between `low` and `high`, both possible."""

    low: float
    high: float


def chinese_number(text: str) -> int | None:
    """Read a whole number in digits, in Chinese words (二十三, 一百零五), or digit by digit (二〇二三)."""
    if text.isdecimal():
        return int(text)
    if not any(sign in _CHINESE_TENS for sign in text):
        return int("".join(str(_CHINESE_DIGITS[sign]) for sign in text))
    total, digit, least_unit = 0, None, 1_000
    for sign in text:
        unit = _CHINESE_TENS.get(sign)
        if unit is None:
            digit = _CHINESE_DIGITS[sign]
            continue
        if unit >= least_unit:
            return None
        total += (1 if digit is None else digit) * unit
        digit, least_unit = None, unit
    return total + (digit or 0)


def chinese_amount(text: str) -> Amount | None:
    """Read 三, 30, 半, 几, 两三, 十几 and the like."""
    if text == "半":
        return Amount(0.5, 0.5)
    if vague := _VAGUE_CHINESE.get(text):
        return Amount(*vague)
    number = chinese_number(text)
    return None if number is None else Amount(number, number)


def english_amount(text: str) -> Amount:
    """Read `three`, `30`, `a`, `half an`, `a couple of`, `few` and the like, in lower case."""
    if vague := _VAGUE_ENGLISH.get(text):
        return Amount(*vague)
    number = _ENGLISH_WORDS.get(text)
    return Amount(number, number) if number is not None else Amount(int(text), int(text))
