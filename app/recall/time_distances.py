"""Makers of meanings that are a distance from the present: 三天前, half an hour ago, 最近两周. Pure.

People round: the longer ago, the vaguer. 'N units ago' is therefore a span around the exact time, with a
margin on either side that is one eighth of the distance, and at least: half a minute for seconds, five
minutes for minutes, a quarter of an hour for half an hour, half an hour for hours, nothing for days (the
whole calendar day), three days for weeks and for half a month, 15 days for months, 30 days for half a year,
60 days for years. From days upward spans are whole calendar days. No span ends after today.
"""

from datetime import datetime, timedelta
from enum import Enum, auto
from math import ceil, floor
from typing import Final

from app.recall.numerals import Amount
from app.recall.time_meanings import (
    DAY,
    Level,
    Meaning,
    Moment,
    Place,
    Span,
    day_span,
    month_span,
    shift_months,
    week_span,
    year_span,
)


class Unit(Enum):
    """A unit of distance."""

    SECOND = auto()
    MINUTE = auto()
    QUARTER_HOUR = auto()
    HOUR = auto()
    DAY = auto()
    WEEK = auto()
    MONTH = auto()
    YEAR = auto()


Distance = list[tuple[Amount, Unit]]
"""A sum from coarse to fine: an hour and twenty minutes."""

_SECONDS: Final = {
    Unit.SECOND: 1,
    Unit.MINUTE: 60,
    Unit.QUARTER_HOUR: 900,
    Unit.HOUR: 3_600,
    Unit.DAY: 86_400,
    Unit.WEEK: 7 * 86_400,
    Unit.MONTH: 30 * 86_400,
    Unit.YEAR: 365 * 86_400,
}
_SHORT_UNITS: Final = {Unit.SECOND, Unit.MINUTE, Unit.QUARTER_HOUR, Unit.HOUR}
_MARGIN_S: Final = {Unit.SECOND: 30, Unit.MINUTE: 300, Unit.QUARTER_HOUR: 300, Unit.HOUR: 1_800}
_MARGIN_DAYS: Final = {Unit.DAY: 0, Unit.WEEK: 3, Unit.MONTH: 15, Unit.YEAR: 60}
_HALF_MARGIN_S: Final = {Unit.HOUR: 900}
_HALF_MARGIN_DAYS: Final = {Unit.MONTH: 3, Unit.YEAR: 30}
_MARGIN_SHARE: Final = 8
_HALF: Final = 0.5
_LEVELS: Final = {Unit.DAY: Level.DAY, Unit.WEEK: Level.WEEK, Unit.MONTH: Level.MONTH, Unit.YEAR: Level.YEAR}
_JUST_NOW: Final = timedelta(minutes=30)


def ago(distance: Distance) -> Meaning:
    """A distance back from the present, as vague as the module says."""
    amount, unit = distance[-1]
    if unit in _SHORT_UNITS:
        return Meaning(
            top=Level.YEAR, bottom=Level.CLOCK, place=lambda _context, moment: _instants_ago(distance, moment)
        )
    return Meaning(
        top=Level.YEAR,
        bottom=_LEVELS[unit],
        place=lambda _context, moment: _days_ago(distance, moment),
        calendar=_calendar_period(amount, unit) if len(distance) == 1 else None,
    )


def recent(amount: Amount, unit: Unit) -> Meaning:
    """The time from a distance ago until now, or the end of today from days upward: 最近三天."""

    def place(_context: Span, moment: Moment) -> Span:
        if unit in _SHORT_UNITS:
            return Span(moment.instant - timedelta(seconds=amount.high * _SECONDS[unit]), moment.instant)
        return Span(_back([(amount, unit)], moment, is_far=True), moment.today + DAY)

    # Instants cannot be narrowed by what is on the wall clock.
    bottom = Level.CLOCK if unit in _SHORT_UNITS else Level.DAY
    return Meaning(top=Level.YEAR, bottom=bottom, place=place)


def before_today(amount: Amount, unit: Unit) -> Meaning:
    """The days from a distance ago until yesterday (前几天, `the other day`)."""

    def place(_context: Span, moment: Moment) -> Span:
        return Span(_back([(amount, unit)], moment, is_far=True), moment.today)

    return Meaning(top=Level.YEAR, bottom=Level.DAY, place=place)


def just_now() -> Meaning:
    """The last half hour."""
    return Meaning(
        top=Level.YEAR,
        bottom=Level.CLOCK,
        place=lambda _context, moment: Span(moment.instant - _JUST_NOW, moment.instant),
    )


def earlier(present: Meaning) -> Meaning:
    """What is past of a present day, week, month or year (`earlier today`)."""

    def place(context: Span, moment: Moment) -> Span | None:
        span = present.place(context, moment)
        return None if span is None else Span(span.since, moment.wall)

    return Meaning(top=Level.YEAR, bottom=Level.DAY, place=place)


def _instants_ago(distance: Distance, moment: Moment) -> Span:
    amount, unit = distance[-1]
    far_s = sum(each.high * _SECONDS[of] for each, of in distance)
    near_s = sum(each.low * _SECONDS[of] for each, of in distance)
    least_s = _MARGIN_S[unit]
    if amount.high == _HALF and len(distance) == 1:
        least_s = _HALF_MARGIN_S.get(unit, least_s)
    margin_s = max(least_s, near_s // _MARGIN_SHARE)
    return Span(
        moment.instant - timedelta(seconds=far_s + margin_s),
        min(moment.instant, moment.instant - timedelta(seconds=near_s - margin_s)),
    )


def _days_ago(distance: Distance, moment: Moment) -> Span:
    amount, unit = distance[-1]
    far = _back(distance, moment, is_far=True)
    near = _back(distance, moment, is_far=False)
    least_days = _MARGIN_DAYS[unit]
    if amount.high == _HALF and len(distance) == 1:
        least_days = _HALF_MARGIN_DAYS.get(unit, least_days)
    margin = max(least_days, (moment.today - near).days // _MARGIN_SHARE) * DAY
    return Span(far - margin, min(near + margin, moment.today) + DAY)


def _back(distance: Distance, moment: Moment, *, is_far: bool) -> datetime:
    """The calendar day a distance before today, at its midnight."""
    months, days = 0.0, 0.0
    for amount, unit in distance:
        count = amount.high if is_far else amount.low
        if unit is Unit.YEAR:
            months += 12 * count
        elif unit is Unit.MONTH:
            months += count
        else:
            days += count * _SECONDS[unit] / _SECONDS[Unit.DAY]
    whole_months = floor(months)
    days += (months - whole_months) * 30
    return shift_months(moment.today, -whole_months) - (ceil(days) if is_far else floor(days)) * DAY


def _calendar_period(amount: Amount, unit: Unit) -> Place | None:
    """The calendar unit meant when something finer follows: 三年前的夏天, `two weeks ago on Friday`."""
    if amount.low != amount.high or amount.low != floor(amount.low):
        return None
    back = floor(amount.low)
    if unit is Unit.YEAR:
        return lambda _context, moment: year_span(moment.wall.year - back)
    if unit is Unit.MONTH:
        return lambda _context, moment: month_span(moment, -back)
    if unit is Unit.WEEK:
        return lambda _context, moment: week_span(moment, -back)
    return lambda _context, moment: day_span(moment, -back)
