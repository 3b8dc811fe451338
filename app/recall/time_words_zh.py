"""Chinese time words, simplified script (`time_words` folds the traditional one). Pure."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from app.recall.numerals import Amount, chinese_amount, chinese_number
from app.recall.time_distances import Distance, Unit, ago, before_today, earlier, just_now, recent
from app.recall.time_meanings import Meaning
from app.recall.time_places import (
    EVENING,
    MORNING,
    clock,
    day_of_month,
    festival,
    last_months,
    lunar_new_year,
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
from app.recall.time_vocabulary_zh import (
    AFTER_BARE_WEEKDAY,
    AFTER_CLOCK,
    AFTER_DAY_NUMBER,
    AFTER_SHORT_YEAR,
    CLOCK_MINUTE,
    CLOCK_NUMBER,
    COUNTED_POINTS,
    DAY_NUMBER,
    DAY_SHIFTS,
    DIGIT,
    FALSE_FRIENDS,
    FESTIVAL_WORDS,
    FRONT,
    LONG_PARTS,
    MAX_YEARS,
    MIN_FULL_YEAR,
    OTHER_TIMES,
    PARTS,
    QUANTITY,
    SAID_SOON,
    SEASON,
    SEASON_STARTS,
    SHIFTS,
    THIS_CENTURY,
    UNITS,
    WEEK,
    WEEKDAY,
    WEEKDAYS,
    YEAR_SHIFTS,
)

_Match = re.Match[str]
_NOTHING: Final[Sequence[Meaning]] = ()
_SEASON_LENGTH: Final = 3
_VAGUE: Final = {"两": Amount(2, 3), "几": Amount(2, 7), "些": Amount(2, 7)}
_NOON_H: Final = 12
_LAST_DAY: Final = 31
_LAST_HOUR: Final = 24


def _step_over(_match: _Match) -> Sequence[Meaning]:
    return _NOTHING


def _never(_match: _Match) -> Sequence[Meaning]:
    return (never(),)


def _quantity(amount: str, half: str | None, unit: str, half_after: str | None) -> tuple[Amount, Unit] | None:
    read = chinese_amount(amount)
    if read is None:
        return None
    kind = UNITS[unit.removeprefix("个")]
    if kind is Unit.YEAR and read.high > MAX_YEARS:
        return None
    if half or half_after:
        read = Amount(read.low + 0.5, read.high + 0.5)
    return read, kind


def _ago(match: _Match) -> Sequence[Meaning]:
    groups = match.groups()
    distance: Distance = []
    for first in (0, 4):
        amount, half, unit, half_after = groups[first : first + 4]
        if amount is None:
            continue
        quantity = _quantity(amount, half, unit, half_after)
        if quantity is None:
            return (never(),)
        distance.append(quantity)
    return (ago(distance),)


def _recent(match: _Match) -> Sequence[Meaning]:
    quantity = _quantity(*match.group(1, 2, 3, 4))
    if quantity is None:
        return _NOTHING
    amount, unit = quantity
    # 这一天, 这一年 point elsewhere.
    is_pointing = match[0].startswith("这") and amount.high <= 1
    return _NOTHING if is_pointing else (recent(amount, unit),)


def _few_before(match: _Match) -> Sequence[Meaning]:
    unit = UNITS.get((match[2] or "天").removeprefix("个"), Unit.DAY)
    return (before_today(_VAGUE[match[1] or "些"], unit),)


def _relative_day(match: _Match) -> Sequence[Meaning]:
    return (relative_day(DAY_SHIFTS[match[0][:-1]]),)


def _relative_part(match: _Match) -> Sequence[Meaning]:
    hours = EVENING if match[2] in "晚夜" else MORNING
    return (part_of_relative_day(hours, shift=DAY_SHIFTS[match[1]]),)


def _week(match: _Match) -> Sequence[Meaning]:
    shift = SHIFTS[match[1]]
    if match[2]:
        return (relative_weekend(shift),)
    if match[3]:
        return relative_week(shift), weekday(WEEKDAYS[match[3]])
    return (relative_week(shift),)


def _weekday(match: _Match) -> Sequence[Meaning]:
    return (weekday(WEEKDAYS[match[1]]),)


def _relative_year(match: _Match) -> Sequence[Meaning]:
    return (relative_year(YEAR_SHIFTS[match[1]]),)


def _short_season(match: _Match) -> Sequence[Meaning]:
    shift = -1 if match[1] == "去" else 0
    return relative_year(shift), months(SEASON_STARTS[match[2]], length=_SEASON_LENGTH)


def _this_season(match: _Match) -> Sequence[Meaning]:
    first = SEASON_STARTS[match[2]]
    if match[1].startswith("上"):
        return (last_months(first, length=_SEASON_LENGTH),)
    return relative_year(0), months(first, length=_SEASON_LENGTH)


def _season(match: _Match) -> Sequence[Meaning]:
    return (months(SEASON_STARTS[match[1]], length=_SEASON_LENGTH, alone=False),)


def _year(match: _Match) -> Sequence[Meaning]:
    number = chinese_number(match[1])
    if number is None:
        return _NOTHING
    return (year(number if number >= MIN_FULL_YEAR else THIS_CENTURY + number),)


def _quarter(match: _Match) -> Sequence[Meaning]:
    number = chinese_number(match[1] or match[2])
    return (months(3 * (number or 1) - 2, length=3, alone=match[1] is not None),)


def _third(match: _Match, *, of_year: bool) -> Sequence[Meaning]:
    which = {"初": 0, "上": 0, "中": 1}.get(match[1][0], 2)
    return (third(which, of_year=of_year, alone=match[0][0] in "年月"),)


def _month(match: _Match) -> Sequence[Meaning]:
    number = chinese_number(match[1])
    return (months(number),) if number else _NOTHING


def _day(match: _Match) -> Sequence[Meaning]:
    number = chinese_number(match[1])
    if number is None or not 1 <= number <= _LAST_DAY:
        return _NOTHING
    alone = match[2] == "号" and AFTER_DAY_NUMBER.match(match.string, match.end()) is not None
    return (day_of_month(number, alone=alone),)


def _lunar_day(match: _Match) -> Sequence[Meaning]:
    number = chinese_number(match[1] or match[2])
    return (lunar_new_year(number),) if number else _NOTHING


def _part(match: _Match) -> Sequence[Meaning]:
    return (part_of_day(PARTS[match[0]], alone=SAID_SOON.match(match.string, match.end()) is not None),)


def _clock(match: _Match) -> Sequence[Meaning]:
    hour_text, o_clock, half, whole, quarters, minutes = match.groups()
    hour = chinese_number(hour_text)
    if hour is None or hour > _LAST_HOUR:
        return _NOTHING
    is_followed = AFTER_CLOCK.match(match.string, match.end()) is not None
    said_fully = bool(half or whole or quarters or minutes or is_followed or "钟" in o_clock)
    before = match.string[match.start() - 1 : match.start()]
    if hour_text == "一" and not said_fully and before not in set("午晨上晚夜里"):
        # 一点 is mostly "a bit".
        return _NOTHING
    minute = {"半": 30, "整": 0}.get(half or whole or "")
    if quarters:
        minute = 15 if quarters[0] == "一" else 45
    if minutes:
        minute = chinese_number(minutes.strip())
    return (clock(hour, minute, is_24h=hour > _NOON_H, alone=said_fully),)


_RULES: Final[list[tuple[str, Handler]]] = [
    (
        FALSE_FRIENDS,
        _step_over,
    ),
    (rf"(?:过去|最近|(?<![附靠接亲远将])近|这)的?这? ?{QUANTITY}(?:以来|来|以内|之内|内|里|间)?", _recent),
    (rf"(?<![\d.第月点时年{DIGIT}千万]){QUANTITY}零?(?:{QUANTITY})?(?:之前|以前|{FRONT})", _ago),
    (r"(?<![之以目当提跟年月天周期])[前头](两|几|些)(天|日子|周|个?星期|个?礼拜|个月|年)", _few_before),
    # To come, recurring, or told from elsewhere.
    (OTHER_TIMES, _never),
    (r"(?:(?<=年)|(?<=月)|(?<=年前)|(?<=月前))的?今[天日]", lambda _m: (same_day(margin_days=0),)),
    (
        r"(?:(?<=年)|(?<=月)|(?<=年前)|(?<=月前))的?(?:这个?时候|同期|此时)",
        lambda _m: (same_day(margin_days=15),),
    ),
    (r"(?:今天)?早些时候", lambda _m: (earlier(relative_day(0)),)),
    (
        r"大前天|(?<![目之以年月周期拜时当日提])前(?:天(?![气空天下])|日(?![本常元语记报]))|昨[天日儿]|今[天日儿]",
        _relative_day,
    ),
    (r"((?<![之以目当提年月天])前|昨|今)([晚夜早晨])上?(?<!前夜)(?<!前早)(?<!前晨)", _relative_part),
    (
        (
            rf"(上上|(?<![路网世马线街])上|这|本)一?个?{WEEK}(?![刊边围岁期转旋密到全游易身遭折])"
            rf"(?:(末)|({WEEKDAY}))?"
        ),
        _week,
    ),
    (rf"(?<![每个一隔几两三四五六七八九十\d])(?:星期|礼拜)({WEEKDAY})", _weekday),
    (
        rf"(?<![每个一隔几两三四五六七八九十\d])周([一二三四五六日]){AFTER_BARE_WEEKDAY}",
        _weekday,
    ),
    (r"(?<![每个])周末(?!版)", lambda _m: (weekend(),)),
    (
        r"(上上|大上|(?<![路网世身马线街早晚])上|这|本)(?:一个|个)?月份?(?![亮饼球薪嫂经票光台色])",
        lambda match: (relative_month(SHIFTS[match[1]]),),
    ),
    (r"(上上|上|这|本)个?季度", lambda match: (relative_quarter(SHIFTS[match[1]]),)),
    (r"(去|今)(春|夏|秋|冬)(?![天季日])", _short_season),
    (rf"(这个?|上个){SEASON}", _this_season),
    (
        r"((?<!过)去|大前|(?<![之以目当年月天大])前|今|(?<![基根日资])本|(?<![马早晚])上一)年度?(?![货轻龄级代纪])",
        _relative_year,
    ),
    (rf"(?<![\d.a-z_-])((?:19|20)\d\d|\d\d(?={AFTER_SHORT_YEAR})) ?年", _year),
    (r"([一二][零〇九][零〇一二三四五六七八九]{2})年", _year),
    (r"([上下])半年", lambda match: (months(1 if match[1] == "上" else 7, length=6),)),
    (r"第?(?<!个)([一二三四1-4])季度|q([1-4])(?![a-z\d])", _quarter),
    (r"大年初([一二三四五六七八九十])|正月初([一二三四五六七八九十])", _lunar_day),
    (
        (
            r"(?:(?<=年)年?|(?<![大一两三几每多半少今去\d])年)"
            r"(初(?![中一二三恋级次步心衷夏春秋冬学期始见识赛雪审稿版代])|底|末|尾|中(?![国秋学心午文旬期间级]))"
        ),
        partial(_third, of_year=True),
    ),
    (
        r"(?:(?<=月)|(?<=月份)|(?<![个腊岁满蜜])月)(初|底|末|尾|[上中下]旬|中(?![国秋学心午文旬期间级]))",
        partial(_third, of_year=False),
    ),
    (
        (
            rf"(?<![\d.个第{DIGIT}几正腊闰])(1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九]) ?月份?"
            r"(?! ?[一\d] ?次|[兔薪饼票经嫂])"
        ),
        _month,
    ),
    (
        (
            rf"(?<![\d.第#a-z{DIGIT}千万-])(3[01]|[12]\d|0?[1-9]|{DAY_NUMBER})"
            r" ?(号|日)(?![楼线机门桌球选车店院位房铺厅台仓站码段文柜床井元电池])"
        ),
        _day,
    ),
    (r"(?<=月)(3[01]|[12]\d|0?[1-9])()(?![\d.:个月年天点元块次%万千百多人位岁])", _day),
    *(
        (pattern, partial(lambda name, _match: (festival(name),), name))
        for name, pattern in FESTIVAL_WORDS.items()
    ),
    (r"暑假", lambda _m: (months(7, length=2),)),
    (r"寒假", lambda _m: (months(1, length=2),)),
    (SEASON, _season),
    (
        rf"(?<![一每整几半])(?:{LONG_PARTS}|[早晚](?=[\d{DIGIT}]{{1,3}}点))",
        _part,
    ),
    (
        (
            rf"(?<![\d.:第{DIGIT}])(2[0-4]|1\d|0?\d|{CLOCK_NUMBER})"
            r" ?(点钟?(?![一个]?[点儿])|时(?![候间代期刻尚节光装空效差常]))"
            rf"(?:(半)(?![价天路个小身])|(整)|([一三]刻)|({CLOCK_MINUTE})(?![\d.%个万亿元块倍多人]) ?分?)?"
            rf"(?!{COUNTED_POINTS})"
        ),
        _clock,
    ),
    (r"(?<!金)刚才|刚刚(?!好)|方才|适才|刚(?=[说问聊讲提发])", lambda _m: (just_now(),)),
]

# Every sign that a rule begins with.
_STARTS: Final = (
    rf"(?=[\d{DIGIT}几好数半过最近这前头昨今大明后来下上本当每逢第那某有改哪次隔同往历未接去年月春夏秋冬暑寒清凌"
    r"早中正午傍黄晚夜深刚方适周星礼元国端重七除情妇三植愚劳五青母儿六父教万光双感平圣跨q从白天初底末尾的此])"
)
TABLE: Final = RuleTable(_RULES, starts_with=_STARTS)
