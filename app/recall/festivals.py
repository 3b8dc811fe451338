"""The days of Chinese and Western festivals. Pure.

Source of the lunar table: lunardate and lunar_python, two independent implementations of the Chinese calendar
that agree on every day in it; 清明 is lunar_python's.
"""

from collections.abc import Callable
from datetime import date, timedelta
from typing import Final

FIRST_LUNAR_YEAR: Final = 2000

# A year's lunar 1-1, 5-5, 7-7, 8-15 and 9-9, and 清明, as month times 100 plus day.
_LUNAR: Final[tuple[tuple[int, int, int, int, int, int], ...]] = (
    (205, 606, 806, 912, 1006, 404),  # 2000
    (124, 625, 825, 1001, 1025, 405),  # 2001
    (212, 615, 815, 921, 1014, 405),  # 2002
    (201, 604, 804, 911, 1004, 405),  # 2003
    (122, 622, 822, 928, 1022, 404),  # 2004
    (209, 611, 811, 918, 1011, 405),  # 2005
    (129, 531, 731, 1006, 1030, 405),  # 2006
    (218, 619, 819, 925, 1019, 405),  # 2007
    (207, 608, 807, 914, 1007, 404),  # 2008
    (126, 528, 826, 1003, 1026, 404),  # 2009
    (214, 616, 816, 922, 1016, 405),  # 2010
    (203, 606, 806, 912, 1005, 405),  # 2011
    (123, 623, 823, 930, 1023, 404),  # 2012
    (210, 612, 813, 919, 1013, 404),  # 2013
    (131, 602, 802, 908, 1002, 405),  # 2014
    (219, 620, 820, 927, 1021, 405),  # 2015
    (208, 609, 809, 915, 1009, 404),  # 2016
    (128, 530, 828, 1004, 1028, 404),  # 2017
    (216, 618, 817, 924, 1017, 405),  # 2018
    (205, 607, 807, 913, 1007, 405),  # 2019
    (125, 625, 825, 1001, 1025, 404),  # 2020
    (212, 614, 814, 921, 1014, 404),  # 2021
    (201, 603, 804, 910, 1004, 405),  # 2022
    (122, 622, 822, 929, 1023, 405),  # 2023
    (210, 610, 810, 917, 1011, 404),  # 2024
    (129, 531, 829, 1006, 1029, 404),  # 2025
    (217, 619, 819, 925, 1018, 405),  # 2026
    (206, 609, 808, 915, 1008, 405),  # 2027
    (126, 528, 826, 1003, 1026, 404),  # 2028
    (213, 616, 816, 922, 1016, 404),  # 2029
    (203, 605, 805, 912, 1005, 405),  # 2030
    (123, 624, 824, 1001, 1024, 405),  # 2031
    (211, 612, 812, 919, 1012, 404),  # 2032
    (131, 601, 801, 908, 1001, 404),  # 2033
    (219, 620, 820, 927, 1020, 405),  # 2034
    (208, 610, 810, 916, 1009, 405),  # 2035
    (128, 530, 828, 1004, 1027, 404),  # 2036
    (215, 618, 817, 924, 1017, 404),  # 2037
    (204, 607, 807, 913, 1007, 405),  # 2038
    (124, 527, 826, 1002, 1026, 405),  # 2039
    (212, 614, 814, 920, 1014, 404),  # 2040
)
_NEW_YEAR, _DRAGON_BOAT, _LOVERS, _MID_AUTUMN, _DOUBLE_NINTH, _CLEAR_BRIGHT = range(6)

Days = tuple[date, date]
"""First day, and the day after the last."""


def _lunar(column: int, *, shift_days: int = 0, length_days: int = 1) -> Callable[[int], Days | None]:
    def days(year: int) -> Days | None:
        row = year - FIRST_LUNAR_YEAR
        if not 0 <= row < len(_LUNAR):
            return None
        month, day = divmod(_LUNAR[row][column], 100)
        first = date(year, month, day) + timedelta(days=shift_days)
        return first, first + timedelta(days=length_days)

    return days


def _solar(month: int, day: int, *, length_days: int = 1) -> Callable[[int], Days | None]:
    def days(year: int) -> Days | None:
        first = date(year, month, day)
        return first, first + timedelta(days=length_days)

    return days


def _nth_weekday(month: int, *, weekday: int, nth: int, shift_days: int = 0) -> Callable[[int], Days | None]:
    """The `nth` (1-5, or -1 for the last) `weekday` (Monday 0) of a month, moved by `shift_days`."""

    def days(year: int) -> Days | None:
        if nth > 0:
            start = date(year, month, 1) + timedelta(weeks=nth - 1)
            first = start + timedelta(days=(weekday - start.weekday()) % 7)
        else:
            end = date(year, month + 1, 1) - timedelta(days=1)
            first = end - timedelta(days=(end.weekday() - weekday) % 7)
        first += timedelta(days=shift_days)
        return first, first + timedelta(days=1)

    return days


def _easter(year: int) -> Days:
    """Western Easter Sunday. Source: the anonymous Gregorian algorithm (Meeus, Astronomical Algorithms)."""
    century, in_century = divmod(year, 100)
    golden = year % 19
    leap_centuries, rest = divmod(century, 4)
    correction = (century - (century + 8) // 25 + 1) // 3
    moon = (19 * golden + century - leap_centuries - correction + 15) % 30
    leap_years, rest_years = divmod(in_century, 4)
    sunday = (32 + 2 * rest + 2 * leap_years - moon - rest_years) % 7
    shift = (golden + 11 * moon + 22 * sunday) // 451
    month, day = divmod(moon + sunday - 7 * shift + 114, 31)
    first = date(year, month, day + 1)
    return first, first + timedelta(days=1)


FESTIVALS: Final[dict[str, Callable[[int], Days | None]]] = {
    "new_year": _solar(1, 1),
    "spring_festival": _lunar(_NEW_YEAR, length_days=7),
    "lunar_new_year_eve": _lunar(_NEW_YEAR, shift_days=-1),
    "lantern": _lunar(_NEW_YEAR, shift_days=14),
    "valentine": _solar(2, 14),
    "women": _solar(3, 8),
    "arbor": _solar(3, 12),
    "april_fools": _solar(4, 1),
    "clear_bright": _lunar(_CLEAR_BRIGHT),
    "easter": _easter,
    "labour": _solar(5, 1, length_days=5),
    "youth": _solar(5, 4),
    "mother": _nth_weekday(5, weekday=6, nth=2),
    "memorial": _nth_weekday(5, weekday=0, nth=-1),
    "children": _solar(6, 1),
    "father": _nth_weekday(6, weekday=6, nth=3),
    "dragon_boat": _lunar(_DRAGON_BOAT),
    "independence": _solar(7, 4),
    "lovers": _lunar(_LOVERS),
    "teacher": _solar(9, 10),
    "labor_us": _nth_weekday(9, weekday=0, nth=1),
    "mid_autumn": _lunar(_MID_AUTUMN),
    "national": _solar(10, 1, length_days=7),
    "double_ninth": _lunar(_DOUBLE_NINTH),
    "halloween": _solar(10, 31),
    "singles": _solar(11, 11),
    "thanksgiving": _nth_weekday(11, weekday=3, nth=4),
    "black_friday": _nth_weekday(11, weekday=3, nth=4, shift_days=1),
    "double_twelve": _solar(12, 12),
    "christmas_eve": _solar(12, 24),
    "christmas": _solar(12, 25),
    "new_year_eve": _solar(12, 31),
}
"""Per festival, its days in a (Gregorian) year; None where the lunar table does not reach."""


def lunar_new_year_day(year: int, *, nth: int) -> Days | None:
    """The `nth` (1-30) day of the first lunar month of `year`: 正月初一 is 1."""
    return _lunar(_NEW_YEAR, shift_days=nth - 1)(year)
