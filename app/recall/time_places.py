"""Makers of meanings that lie on the calendar or on the clock. Pure."""

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from typing import Final

from app.recall.festivals import FESTIVALS, Days, lunar_new_year_day
from app.recall.time_meanings import (
    DAY,
    HOUR,
    Level,
    Meaning,
    Moment,
    Span,
    dates_span,
    day_span,
    is_day,
    is_month,
    is_week,
    is_year,
    month_span,
    months_of_year,
    shift_months,
    week_span,
    weekend_of,
    weekend_span,
    year_span,
)

Part = tuple[float, float]
"""First and last hour of a part of the day, counted from its midnight; above 24 it is the next day's."""

SMALL_HOURS: Final[Part] = (0, 6)
EARLY_MORNING: Final[Part] = (5, 9)
MORNING: Final[Part] = (5, 12)
FORENOON: Final[Part] = (6, 12)
MIDDAY: Final[Part] = (11, 14)
AFTERNOON: Final[Part] = (12, 18)
DUSK: Final[Part] = (17, 20)
# An evening lasts until people go to bed: what was said at 01:00 is remembered as last night's.
EVENING: Final[Part] = (18, 26)
DEEP_NIGHT: Final[Part] = (22, 29)
_NIGHT_IN_PROGRESS_UNTIL_H: Final = 5
_MONTHS: Final = 12
# A period of this year may not be over, and a winter of last year neither.
_FEW_YEARS: Final = 3
_HALF_DAY_H: Final = 12
_DAY_H: Final = 24
_LAST_AMBIGUOUS_AFTERNOON_H: Final = 5


def never() -> Meaning:
    """A time that is not to be read: to come (明天), recurring (每天), or told from elsewhere (第二天)."""
    return Meaning(top=Level.YEAR, bottom=Level.YEAR, place=lambda _context, _moment: None)


def year(number: int, *, alone: bool = True) -> Meaning:
    return Meaning(
        top=Level.YEAR, bottom=Level.YEAR, alone=alone, place=lambda _context, _moment: year_span(number)
    )


def relative_year(shift: int) -> Meaning:
    return Meaning(
        top=Level.YEAR,
        bottom=Level.YEAR,
        is_present=shift == 0,
        place=lambda _context, moment: year_span(moment.wall.year + shift),
    )


def relative_month(shift: int) -> Meaning:
    return Meaning(
        top=Level.YEAR,
        bottom=Level.MONTH,
        is_present=shift == 0,
        place=lambda _context, moment: month_span(moment, shift),
    )


def relative_week(shift: int) -> Meaning:
    return Meaning(
        top=Level.YEAR,
        bottom=Level.WEEK,
        is_present=shift == 0,
        place=lambda _context, moment: week_span(moment, shift),
    )


def relative_quarter(shift: int) -> Meaning:
    def place(_context: Span, moment: Moment) -> Span:
        first = month_span(moment, 3 * shift - (moment.wall.month - 1) % 3).since
        return Span(first, shift_months(first, 3))

    return Meaning(top=Level.YEAR, bottom=Level.MONTH, is_present=shift == 0, place=place)


def relative_weekend(shift: int) -> Meaning:
    return Meaning(
        top=Level.YEAR, bottom=Level.DAY, place=lambda _context, moment: weekend_span(moment, shift)
    )


def relative_day(shift: int) -> Meaning:
    return Meaning(
        top=Level.YEAR,
        bottom=Level.DAY,
        is_present=shift == 0,
        place=lambda _context, moment: day_span(moment, shift),
    )


def weekday(number: int, *, alone: bool = True) -> Meaning:
    """A weekday (Monday 0) of the week it leans on; else the last one before today."""

    def place(context: Span, _moment: Moment) -> Span:
        if not is_week(context):
            return context
        since = context.since + number * DAY
        return Span(since, since + DAY)

    return Meaning(
        top=Level.DAY, bottom=Level.DAY, place=place, needs=Level.WEEK, alone=alone, before_today=True
    )


def last_weekday(number: int, *, nth: int = 1) -> Meaning:
    """The `nth` last such weekday (Monday 0) before today: `last Tuesday` on a Wednesday is yesterday."""

    def place(_context: Span, moment: Moment) -> Span:
        back = (moment.today.weekday() - number - 1) % 7 + 1 + 7 * (nth - 1)
        return day_span(moment, -back)

    return Meaning(top=Level.YEAR, bottom=Level.DAY, place=place)


def weekend(*, alone: bool = True) -> Meaning:
    def place(context: Span, _moment: Moment) -> Span:
        return weekend_of(context) if is_week(context) else context

    return Meaning(top=Level.DAY, bottom=Level.DAY, place=place, needs=Level.WEEK, alone=alone)


def months(first: int, *, length: int = 1, alone: bool = True) -> Meaning:
    """Some months of a year: a month, a quarter, a half, a season, the school holidays."""

    def place(context: Span, moment: Moment) -> Span:
        if not is_year(context):
            return context
        span = months_of_year(context, first=first, length=length)
        runs_into_next_year = first + length > _MONTHS + 1
        if runs_into_next_year and span.since > moment.wall and context.since <= moment.wall < context.until:
            # 今年冬天 said in January is the winter that began last year.
            return Span(shift_months(span.since, -12), shift_months(span.until, -12))
        return span

    return Meaning(top=Level.MONTH, bottom=Level.MONTH, place=place, needs=Level.YEAR, alone=alone)


def last_months(first: int, *, length: int = 1, nth: int = 1) -> Meaning:
    """The `nth` last such month or season that is over: `last May`, `last summer`."""

    def place(_context: Span, moment: Moment) -> Span:
        spans = [
            months_of_year(year_span(moment.wall.year - back), first=first, length=length)
            for back in range(_FEW_YEARS + nth)
        ]
        return [span for span in spans if span.until <= moment.today][nth - 1]

    return Meaning(top=Level.YEAR, bottom=Level.MONTH, place=place)


def day_of_month(number: int, *, alone: bool = False) -> Meaning:
    def place(context: Span, _moment: Moment) -> Span | None:
        if not is_month(context):
            return context
        since = context.since + (number - 1) * DAY
        return Span(since, since + DAY) if number >= 1 and since < context.until else None

    return Meaning(top=Level.WEEK, bottom=Level.DAY, place=place, needs=Level.MONTH, alone=alone)


def calendar_date(day: date) -> Meaning:
    return Meaning(top=Level.YEAR, bottom=Level.DAY, place=lambda _c, _m: dates_span(day, day + DAY))


def festival(name: str, *, alone: bool = True) -> Meaning:
    """A key of `FESTIVALS`."""
    return _days_of_year(lambda context: FESTIVALS[name](context.since.year), alone=alone)


def last_festival(name: str) -> Meaning:
    """The last such festival that is over: `last Christmas`."""

    def place(_context: Span, moment: Moment) -> Span | None:
        spans = (
            dates_span(*days)
            for back in range(_FEW_YEARS)
            if (days := FESTIVALS[name](moment.wall.year - back)) is not None
        )
        return next((span for span in spans if span.until <= moment.today), None)

    return Meaning(top=Level.YEAR, bottom=Level.DAY, place=place)


def lunar_new_year(nth: int) -> Meaning:
    """A day of the first lunar month (正月初一 is 1)."""
    return _days_of_year(lambda context: lunar_new_year_day(context.since.year, nth=nth), alone=True)


def _days_of_year(days: Callable[[Span], Days | None], *, alone: bool) -> Meaning:
    def place(context: Span, _moment: Moment) -> Span | None:
        if not is_year(context):
            return context
        found = days(context)
        return None if found is None else dates_span(*found)

    return Meaning(top=Level.MONTH, bottom=Level.DAY, place=place, needs=Level.YEAR, alone=alone)


def third(which: int, *, of_year: bool, alone: bool) -> Meaning:
    """Beginning (0), middle (1) or end (2).

    Of a month: the days 1-10, 11-20, and the rest (上旬, 中旬, 下旬). Of a year: its first two months, June
    and July, its last two months.
    """

    def place(context: Span, _moment: Moment) -> Span:
        if is_year(context):
            return months_of_year(context, first=(1, 6, 11)[which], length=2)
        if not is_month(context):
            return context
        bounds = (context.since, context.since + 10 * DAY, context.since + 20 * DAY, context.until)
        return Span(bounds[which], bounds[which + 1])

    return Meaning(
        top=Level.MONTH if of_year else Level.WEEK,
        bottom=Level.MONTH if of_year else Level.WEEK,
        place=place,
        needs=Level.YEAR if of_year else Level.MONTH,
        alone=alone,
    )


def same_day(*, margin_days: int) -> Meaning:
    """Today's date in another year or month (去年今天), give or take (去年这个时候)."""

    def place(context: Span, moment: Moment) -> Span:
        if is_year(context):
            day = shift_months(moment.today, 12 * (context.since.year - moment.today.year))
        elif is_month(context):
            day = context.since + min(moment.today.day - 1, (context.until - context.since).days - 1) * DAY
        else:
            return context
        return Span(day - margin_days * DAY, day + (margin_days + 1) * DAY)

    return Meaning(top=Level.MONTH, bottom=Level.DAY, place=place, needs=Level.YEAR, alone=False)


def part_of_day(hours: Part, *, alone: bool = False) -> Meaning:
    def place(context: Span, _moment: Moment) -> Span:
        return _hours(context, hours) if is_day(context) else context

    return Meaning(top=Level.PART, bottom=Level.PART, place=place, needs=Level.DAY, alone=alone)


def part_of_relative_day(hours: Part, *, shift: int) -> Meaning:
    """今早, 昨晚, `last night`; `tonight` before dawn is the night in progress."""

    def place(_context: Span, moment: Moment) -> Span:
        is_night_in_progress = (
            shift == 0 and hours[1] > _DAY_H and moment.wall.hour < _NIGHT_IN_PROGRESS_UNTIL_H
        )
        return _hours(day_span(moment, shift - is_night_in_progress), hours)

    return Meaning(top=Level.YEAR, bottom=Level.PART, place=place)


def _hours(day: Span, hours: Part) -> Span:
    return Span(day.since + hours[0] * HOUR, day.since + hours[1] * HOUR)


def clock(hour: int, minute: int | None = None, *, is_24h: bool = False, alone: bool = False) -> Meaning:
    """A clock time, half an hour either way, or a quarter where minutes were said.

    Without a part of the day, 1 to 5 o'clock are taken for the afternoon unless only the night is past.

    Args:
        hour: 0-24.
        minute: 0-59; None: only the hour was said.
        is_24h: the hour is to be taken as it stands.
        alone: may stand without a day.
    """
    margin = timedelta(minutes=30 if minute is None else 15)

    def place(context: Span, moment: Moment) -> Span:
        if not is_day(context):
            return context
        midnight = datetime.combine(context.since.date(), time())
        options = [
            midnight + hours * HOUR + timedelta(minutes=minute or 0)
            for hours in range(hour % _HALF_DAY_H, 2 * _DAY_H, _HALF_DAY_H)
            if not (is_24h or hour == 0) or (hours - hour) % _DAY_H == 0
        ]
        if context.until - context.since < DAY:
            at = min(options, key=lambda option: (_distance(option, context), option))
        else:
            at = midnight + hour * HOUR + timedelta(minutes=minute or 0)
            afternoon = at + _HALF_DAY_H * HOUR
            if not is_24h and 1 <= hour <= _LAST_AMBIGUOUS_AFTERNOON_H and afternoon <= max(moment.wall, at):
                at = afternoon
        return Span(at - margin, at + margin)

    return Meaning(top=Level.CLOCK, bottom=Level.CLOCK, place=place, needs=Level.DAY, alone=alone)


def _distance(at: datetime, span: Span) -> timedelta:
    """How far outside a span a time lies."""
    return max(span.since - at, at - span.until, timedelta(0))
