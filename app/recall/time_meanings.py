"""What a time word means, apart from the language it is said in. Pure.

A time expression is a chain of meanings from coarse to fine (去年 > 国庆节, yesterday > afternoon > three):
each narrows the span that the ones before it have reached. An *anchored* meaning finds its span from the
present alone; a *leaning* one (5月, Tuesday, 下午) needs a coarser span and, where none was said, gets the
most recent that puts it in the past. Spans are wall-clock time without a zone; where a distance is counted in
hours or less they are instants, since a wall clock may jump in between.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from enum import IntEnum
from typing import Final, NamedTuple

DAY: Final = timedelta(days=1)
WEEK: Final = timedelta(weeks=1)
HOUR: Final = timedelta(hours=1)


class Level(IntEnum):
    """How fine a meaning is; one expression has at most one meaning of each level."""

    YEAR = 0
    MONTH = 1
    WEEK = 2
    DAY = 3
    PART = 4
    CLOCK = 5


class Span(NamedTuple):
    """`since` <= t < `until`: both wall-clock times without a zone, or both aware."""

    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True)
class Moment:
    """The present, as an instant and on the wall clock of the user's zone."""

    instant: datetime
    wall: datetime

    @property
    def today(self) -> datetime:
        return datetime.combine(self.wall.date(), time())

    def has_begun(self, span: Span) -> bool:
        """Whether a span is not wholly in the future."""
        return span.since <= (self.wall if span.since.tzinfo is None else self.instant)


Place = Callable[[Span, Moment], Span | None]
"""Finds a meaning inside a coarser span (ignored by anchored ones); None: there is no such time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """One link of the chain.

    Attributes:
        top: the coarsest level it says something about.
        bottom: the finest.
        place: where it lies.
        needs: level of the span it leans on; None: anchored.
        calendar: where it lies when something finer follows (三天前 and 两周前 alone are vague, in
            两周前的周三 they name a calendar week).
        alone: whether it may stand with nothing coarser beside it.
        before_today: in want of a coarser span it is the last one before today (周三 on a Wednesday).
        is_present: names the present day, week, month or year, which a question mostly mentions by the way.
    """

    top: Level
    bottom: Level
    place: Place
    needs: Level | None = None
    calendar: Place | None = None
    alone: bool = True
    before_today: bool = False
    is_present: bool = False


def span_of(chain: Sequence[Meaning], moment: Moment) -> Span | None:
    """The span of meanings sorted from coarse to fine; None: there is no such time, or it is yet to come."""
    head = chain[0]
    if head.needs is None:
        span = _narrow(chain, Span(moment.today, moment.today + DAY), moment)
        return span if span is not None and moment.has_begun(span) else None
    for context in _recent(head.needs, moment):
        span = _narrow(chain, context, moment)
        if span is None or not moment.has_begun(span):
            continue
        if head.before_today and span.since >= moment.today:
            continue
        return span
    return None


def _narrow(chain: Sequence[Meaning], context: Span, moment: Moment) -> Span | None:
    span: Span | None = context
    for position, meaning in enumerate(chain):
        is_last = position == len(chain) - 1
        place = meaning.place if is_last or meaning.calendar is None else meaning.calendar
        if span is None:
            return None
        span = place(span, moment)
    return span


def _recent(level: Level, moment: Moment) -> Iterator[Span]:
    """Present and past spans of a level, the latest first."""
    if level is Level.YEAR:
        # Two leap days are at most eight years apart.
        yield from (year_span(moment.wall.year - back) for back in range(9))
    elif level is Level.MONTH:
        # Of three months in a row one has 31 days.
        yield from (month_span(moment, -back) for back in range(3))
    elif level is Level.WEEK:
        yield from (week_span(moment, -back) for back in range(2))
    else:
        yield from (day_span(moment, -back) for back in range(2))


def day_span(moment: Moment, shift: int) -> Span:
    """The calendar day `shift` days from today."""
    since = moment.today + shift * DAY
    return Span(since, since + DAY)


def week_span(moment: Moment, shift: int) -> Span:
    """The week, from Monday, `shift` weeks from this one."""
    since = moment.today + (7 * shift - moment.today.weekday()) * DAY
    return Span(since, since + WEEK)


def weekend_span(moment: Moment, shift: int) -> Span:
    """Saturday and Sunday of the week `shift` weeks from this one."""
    return weekend_of(week_span(moment, shift))


def weekend_of(week: Span) -> Span:
    """Saturday and Sunday of a week."""
    return Span(week.since + 5 * DAY, week.since + 7 * DAY)


def month_span(moment: Moment, shift: int) -> Span:
    """The calendar month `shift` months from this one."""
    return _months(moment.wall.year * 12 + moment.wall.month - 1 + shift, 1)


def year_span(year: int) -> Span:
    """A calendar year."""
    return _months(year * 12, 12)


def dates_span(first: date, after: date) -> Span:
    """From the start of a day to the start of another."""
    return Span(datetime.combine(first, time()), datetime.combine(after, time()))


def months_of_year(context: Span, *, first: int, length: int) -> Span:
    """`length` months from the month `first` (1-12) of the year in which `context` starts."""
    return _months(context.since.year * 12 + first - 1, length)


def shift_months(day: datetime, months: int) -> datetime:
    """The same day some months away, or the last of that month where it has no such day."""
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    last = _months(year * 12 + month, 1).until - DAY
    return day.replace(year=year, month=month + 1, day=min(day.day, last.day))


def is_day(span: Span) -> bool:
    """Whether a span is a day or a part of one."""
    return span.until - span.since <= DAY


def is_week(span: Span) -> bool:
    return span.until - span.since == WEEK


def is_month(span: Span) -> bool:
    return (
        span.since.day == 1
        and span.until.day == 1
        and timedelta(27) < span.until - span.since < timedelta(32)
    )


def is_year(span: Span) -> bool:
    return span.until - span.since >= timedelta(365)


def _months(index: int, length: int) -> Span:
    """Whole months; `index` counts months from year 0."""
    return Span(_first_of_month(index), _first_of_month(index + length))


def _first_of_month(index: int) -> datetime:
    year, month = divmod(index, 12)
    return datetime.combine(date(year, month + 1, 1), time())
