"""Run a learner's object on one request and report plain data: the half of a check that meets learner code.

Nothing here knows an answer: no case, no twin, no score. The judging half is `utils.checks`. Only what
`codec` can write passes between the two, in the learner's notebook as in the grading sandbox.
"""

from utils.observe.effects import parts_of
from utils.observe.run import Request, answer, nothing_seen, observe

__all__ = ["Request", "answer", "nothing_seen", "observe", "parts_of"]
