"""Vocabulary of the English time reader: lower case, and no pattern captures."""

from typing import Final

from app.recall.time_distances import Unit
from app.recall.time_places import AFTERNOON, DEEP_NIGHT, EARLY_MORNING, EVENING, MORNING

WEEKDAYS: Final = {
    name: number for number, name in enumerate(("mon", "tue", "wed", "thu", "fri", "sat", "sun"))
}
LONG_WEEKDAY: Final = r"(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
# "sat" and "sun" are words of their own, whatever stands before them.
WEEKDAY: Final = rf"(?:{LONG_WEEKDAY}|mon|tues?|wed|thu(?:rs?)?|fri)"

MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
PLAIN_MONTH: Final = r"(?:january|february|april|june|july|august|september|october|november|december)\b"
LONG_MONTH: Final = rf"(?:{PLAIN_MONTH}|(?:march|may)\b)"
MONTH: Final = rf"(?:{LONG_MONTH}|(?:jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?)"
VERB_MONTHS: Final = {"may", "march", "mar"}
"""Months that are verbs as well."""

SEASONS: Final = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
SEASON: Final = r"(?:spring|summer|autumn|fall|winter)"
YEAR: Final = r"(?:19|20)\d\d"
DAY_NUMBER: Final = r"(?:3[01]|[12]\d|0?[1-9])"

UNIT: Final = (
    r"(?:seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|nights?|weeks?|fortnights?|months?|years?|yrs?)\b"
)
UNITS: Final = {
    "sec": Unit.SECOND,
    "min": Unit.MINUTE,
    "hou": Unit.HOUR,
    "hr": Unit.HOUR,
    "hrs": Unit.HOUR,
    "day": Unit.DAY,
    "nig": Unit.DAY,
    "wee": Unit.WEEK,
    "for": Unit.WEEK,
    "mon": Unit.MONTH,
    "yea": Unit.YEAR,
    "yr": Unit.YEAR,
    "yrs": Unit.YEAR,
}
"""By the first three letters."""

PARTS: Final = {
    "morning": MORNING,
    "afternoon": AFTERNOON,
    "evening": EVENING,
    "night": EVENING,
    "early morning": EARLY_MORNING,
    "late night": DEEP_NIGHT,
}

FESTIVAL_WORDS: Final[dict[str, str]] = {
    "lunar_new_year_eve": r"(?:chinese|lunar)\s+new\s+year['’]?s\s+eve",
    "spring_festival": r"(?:(?:chinese|lunar)\s+new\s+year|spring\s+festival)\b",
    "new_year_eve": r"new\s+year['’]?s\s+eve",
    "new_year": r"new\s+year['’]?s(?:\s+day)?\b(?!\s+(?:eve|resolutions?))",
    "lantern": r"lantern\s+festival",
    "valentine": r"valentine['’]?s?(?:\s+day)?\b(?!\s+cards?)",
    "women": r"women['’]?s\s+day",
    "april_fools": r"april\s+fool['’]?s?['’]?(?:\s+day)?\b",
    "clear_bright": r"qingming(?:\s+festival)?|tomb[- ]sweeping\s+day",
    "easter": r"easter(?:\s+sunday)?\b(?!\s+(?:eggs?|bunny|island))",
    "mother": r"mothers?['’]?s?['’]?\s+day",
    "memorial": r"memorial\s+day",
    "children": r"children['’]?s\s+day",
    "father": r"fathers?['’]?s?['’]?\s+day",
    "dragon_boat": r"dragon\s+boat\s+festival",
    "independence": r"independence\s+day|fourth\s+of\s+july",
    "labor_us": r"labor\s+day",
    "labour": r"labour\s+day",
    "mid_autumn": r"mid[- ]autumn(?:\s+festival)?",
    "halloween": r"halloween\b(?!\s+(?:costumes?|movies?))",
    "singles": r"singles['’]?\s+day",
    "black_friday": r"black\s+friday",
    "thanksgiving": r"thanksgiving(?:\s+day)?\b",
    "christmas_eve": r"(?:christmas|xmas)\s+eve\b",
    "christmas": r"(?:christmas|xmas)(?:\s+day)?\b(?!\s+(?:eve|trees?|cards?|carols?|songs?|lights?))",
}
COUNTED: Final = (
    r"(?:words?|dollars?|bucks|steps?|pieces?|people|persons?|yuan|rmb|usd|euros?|pounds?|meters?|metres?"
    r"|miles?|feet|times|ways?|places?|points?|percent|items?|options?|seconds?|minutes?|hours?|days?|weeks?"
    r"|months?|years?)\b"
)
"""What a number before it counts, so that it is no year and no hour."""
