"""A card of each kind, and a store and a clock, for the tests of drills."""

from datetime import datetime, timedelta, timezone

from utils.drills.card import Card, Question, Twist

PLACE = timezone(timedelta(hours=1))
STUB = 'def causal_mask(q_len, kv_len=None):\n    """True = may attend."""\n    raise NotImplementedError()\n'
RIGHT = """
def causal_mask(q_len, kv_len=None):
    kv_len = q_len if kv_len is None else kv_len
    return torch.ones(q_len, kv_len, dtype=torch.bool).tril(kv_len - q_len)
"""
WRONG = RIGHT.replace("tril(kv_len - q_len)", "tril()")


class Clock:
    """22:00 on a Sunday until somebody turns it."""

    def __init__(self):
        self.time = datetime(2026, 11, 22, 22, 0, tzinfo=PLACE)

    def __call__(self):
        return self.time

    def turn(self, **by):
        self.time += timedelta(**by)


def card(id="phase2/why", kind="recall", **parts):
    phase = int(id[5])
    usual = dict(prompt="Why?", answer="Because.", section=f"{phase}.3", minutes=2, level="junior")
    return Card(id=id, kind=kind, phase=phase, **{**usual, **parts})


def recall(id="phase2/why", **parts):
    rubric = ({"points": 2, "for": "the variance"}, {"points": 1, "for": "saturation"}, {"points": 1, "for": "√d"})
    return card(id, **{"rubric": rubric, **parts})


def choice(id="phase2/axis", **parts):
    because = ("rows share 1", "columns would", "nothing would")
    usual = dict(options=("keys", "queries", "both"), right=0, because=because)
    return card(id, "choice", **{**usual, **parts})


def doubled(rng):
    size = rng.randrange(10, 99)
    slips = {size: "you forgot that K and V are two tensors"}
    return Question(f"Bytes of {size} and {size}?", 2.0 * size, "bytes", 0.01, slips, f"2 · {size}")


def numeric(id="phase5/cache", **parts):
    return card(id, "numeric", make=doubled, **parts)


def shapes(id="phase3/heads", **parts):
    return card(id, "shape", code="x = torch.ones(2, 5)", asks=("x", "x.sum()"), answers=((2, 5), ()), **parts)


def bug(id="phase2/bug-mask", **parts):
    others = ("It is transposed.", "It has the wrong dtype.", "It hides the last key.")
    usual = dict(exercise="causal_mask", fault="It is aligned to the start.", others=others, finds="aligned")
    return card(id, "bug", code=WRONG, **usual, **parts)


def code(id="phase2/causal_mask", **parts):
    twist = Twist("And when the cache is longer than the queries?", "one query", {"args": {"q_len": 1, "kv_len": 6}})
    return card(id, "code", exercise="causal_mask", code=STUB, twist=twist, **{"minutes": 5, **parts})


def one_of_each():
    return [recall(), choice(), numeric(), shapes(), bug(), code()]
