"""split_corpus."""

import hashlib
import math
import random
import zlib

from utils import oracle
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase7 import PHASE
from utils.checks.phase7 import rules_training as rules

TERMS = b"Nothing in these terms takes away what the law gives to the reader.\n" * 20
LICENCE = b"# Licensed to the reader under the terms that are printed at the end of this book.\n" * 12


def corpus(name, count=300, val_share=0.1, kind="plain", **options):
    return case(name, dict(count=count, val_share=val_share, **options), grad=False, kind=kind)


def by(number):
    """A split by number(index, document, how many there are), 0 to 1."""

    def split_corpus(documents, val_share):
        sides = ([], [])
        for index, document in enumerate(documents):
            sides[number(index, document, len(documents)) < val_share].append(index)
        return sides

    return split_corpus


def digest(document):
    return zlib.crc32(document) / 2**32


def by_steps_of_a_tenth(index, document, count):
    """No number between: 2 % of all are 10 % then."""
    return zlib.crc32(document) % 10 / 10


def documents_themselves(documents, val_share):
    return tuple([documents[index] for index in side] for side in oracle.split_corpus(documents, val_share))


def as_sets(documents, val_share):
    return tuple(map(set, oracle.split_corpus(documents, val_share)))


def up_to_one(documents, val_share):
    """One of 256 numbers, over 255."""
    oracle.split_corpus(documents, val_share)  # for its refusals
    return by(lambda index, document, count: hashlib.sha256(document).digest()[0] / 255)(documents, val_share)


def only_inside(documents, val_share):
    if val_share in (0, 1):
        raise ValueError("val_share")
    return oracle.split_corpus(documents, val_share)


def ranked(documents, val_share):
    """As many as asked for, to the document: the smallest hashes."""
    order = sorted(range(len(documents)), key=lambda index: hashlib.md5(documents[index]).digest())
    cut = round(val_share * len(documents))
    return sorted(order[cut:]), sorted(order[:cut])


def among_all(documents, val_share):
    """The same, and copies stay together."""
    digests = [hashlib.sha256(document).digest() for document in documents]
    border = set(sorted(digests)[: round(val_share * len(digests))])
    return tuple([n for n, one in enumerate(digests) if (one in border) is side] for side in (False, True))


def shuffled(documents, val_share):
    order = random.Random(0).sample(range(len(documents)), len(documents))
    cut = round(val_share * len(documents))
    return sorted(order[cut:]), sorted(order[:cut])


def without_copies(documents, val_share):
    first = {bytes(document): index for index, document in reversed(list(enumerate(documents)))}
    train, val = oracle.split_corpus(list(first), val_share)
    kept = list(first.values())
    return tuple(sorted(kept[index] for index in side) for side in (train, val))


def always_a_tenth(documents, val_share):
    return oracle.split_corpus(documents, 0.1)


def exchanged(documents, val_share):
    return oracle.split_corpus(documents, val_share)[::-1]


def unordered(documents, val_share):
    return tuple(side[::-1] for side in oracle.split_corpus(documents, val_share))


register(
    expected=oracle.split_corpus,
    phase=PHASE,
    section="7.13",
    hint="a fixed hash of the whole document gives a number from 0 to 1; below val_share it is for testing.",
    grad=False,
    bans=(),
    script="split",
    cases=(
        corpus("300 documents", more=60, twice=50),
        corpus("three tenths", val_share=0.3, more=100, twice=20, seed=1),
        corpus("all begin alike, and end alike", head=LICENCE, tail=TERMS, val_share=0.25, seed=2),
        corpus("all end alike, and not in UTF-8", tail=LICENCE + b"\xff\xfe", val_share=0.25, seed=3),
        corpus("all of one length", length=0, val_share=0.25, seed=4),
        corpus("a small share", count=600, val_share=0.02, seed=5, length=0),
        corpus("no document", count=0, seed=6, kind="edge"),
        corpus("one document", count=1, seed=7, twice=1, kind="edge"),  # a chance of a tenth proves nothing
        corpus("nothing for testing", val_share=0.0, seed=11, length=0),
        corpus("all for testing", count=3000, val_share=1.0, seed=9),  # enough that each of 256 numbers is drawn
        refusal("a share above 1", dict(count=3, val_share=1.5)),
        refusal("a share below 0", dict(count=3, val_share=-0.1)),
        refusal("a share that is no number", dict(count=3, val_share=math.nan)),
    ),
    mistakes={
        "a place says nothing about a document: hash its content": Replays(
            by(lambda index, document, count: 1 - (index + 1) / count),
            by(lambda index, document, count: index / count),
            by(lambda index, document, count: index % 10 / 10),
            by(lambda index, document, count: digest(b"%d" % index)),
            by(lambda index, document, count: digest(b"%d%b" % (index, document))),
            shuffled,
        ),
        "hash() is another one in each process": by(lambda index, document, count: hash(document) % 10_000 / 10_000),
        "a threshold for each, not a rank among all": Replays(ranked, among_all),
        "hash the whole document": Replays(
            by(lambda index, document, count: digest(document[:200])),
            by(lambda index, document, count: digest(document[-200:])),
            by(lambda index, document, count: digest(document[:200] + document[-200:])),
        ),
        "a length is no hash": Replays(
            by(lambda index, document, count: len(document) % 100 / 100),
            by(lambda index, document, count: len(document) % 10 / 10),
        ),
        "every index belongs to a side, those of copies, too": without_copies,
        "first the indices for training": exchanged,
        "indices, not the documents themselves": documents_themselves,
        "a set has no order: two lists": as_sets,
        "a share of 1 is all: the number drawn stays below 1": Spotted(rules.one_itself_drawn, up_to_one),
        "indices in ascending order": unordered,
        "val_share was ignored": always_a_tenth,
        "a share can be finer: the hash in small steps": by(by_steps_of_a_tenth),
        "0 and 1 are shares, too": Spotted(rules.whole_share_refused, only_inside),
        "documents are bytes of any kind, not always text": Spotted(
            rules.read_as_text, by(lambda index, document, count: digest(document.decode().encode()))
        ),
        "val_share outside 0 to 1: raise ValueError": Spotted(
            rules.share_accepted, by(lambda index, document, count: digest(document)), certain=True
        ),
    },
)
