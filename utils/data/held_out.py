"""Which pairs of words, and which sentences, training never sees. Decided by hashes alone: no seed, no order, no size.

So two corpora of different seeds or sizes still agree on what is training and what is test.
"""

import functools
import hashlib

PAIRS = 0.08  # share of noun×adjective and verb×object pairs that only the compositional test shows
TEST, FRESH = 0.08, 0.08  # shares of sentences that are test for the learner, and for the judge

SALT = "19: "  # chosen so that training never sees "The cat sat", the sentence that the lesson ends with


def _share(text):
    """A number in [0, 1) that depends on the text alone."""
    return int.from_bytes(hashlib.blake2b((SALT + text).encode(), digest_size=6).digest(), "big") / 2**48


@functools.cache
def is_held_out(one, other):
    """Is this pair of words shown by the compositional test only?"""
    return _share(f"{one} × {other}") < PAIRS


def part_of(source):
    """To which part a sentence belongs: "iid" (the test), "fresh" or "train"."""
    share = _share(source)
    return "iid" if share < TEST else "fresh" if share < TEST + FRESH else "train"
