"""Every `check` leaves an event. It is never a reason for a check to fail, and while grading nothing is written."""

import os

from utils.drills.schedule import now
from utils.drills.store import Event, Store


def note_check(name, report, points):
    """Record what a check said of an exercise; a blank cell is no event. Never raises; a damaged file is said."""
    if "NBGRADER_EXECUTION" in os.environ or "not implemented yet" in report.message:
        return
    data = {"points": points, "likely": report.likely, "aspects": report.aspects}
    try:
        with Store() as store:
            store.append(Event(now().timestamp(), "check", name, report.score, data))
            for sentence in store.said:
                print(sentence)
    except Exception:  # no home, no room, no right to write: the check is what counts
        return
