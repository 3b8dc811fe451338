"""When the daily sweep is due. Pure."""

from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo


def due_day(now: datetime, *, at: time, zone: ZoneInfo) -> date:
    """Returns the day, by the calendar of `zone`, whose sweep was the last to become due.

    A sweep becomes due when the clocks of the zone have passed `at`; one that a change of the clocks jumps
    over, when they have jumped.
    """
    local = now.astimezone(zone)
    return local.date() if local.time() >= at else local.date() - timedelta(days=1)
