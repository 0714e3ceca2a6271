"""Cutting Python source into words before BPE sees it, and putting tokens back together.

Words are cut first for speed: BPE then works once per kind of word instead of once per place. Nothing is lost: joined,
the words are the text.
"""

import re
from collections import Counter

import numpy as np

WORD = re.compile(
    rb"\n+ *"  # line ends with the indentation of the next line
    rb"| ?_?(?:[A-Z]?[a-z\x80-\xff]+|[A-Z]+)"  # parts of names, with what stands before: there are fewer than names
    rb"| ?[0-9]{1,3}"  # numbers, three digits at most: there are few such words
    rb"| ?[!-/:-@\[-^`{-~]+"  # operators and brackets that stand together
    rb"| +(?= )| |_+"  # spaces, but for the last, which goes with what follows
    rb"|[\x00-\x1f\x7f]"  # anything else
)


def count(documents, limit_bytes, limit_words):
    """{word: how often it occurs}: the most frequent words of the first documents; the same for the same text."""
    counts, size = Counter(), 0
    for document in documents:
        counts.update(WORD.findall(document))
        size += len(document)
        if size >= limit_bytes:
            break
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit_words])


class Kinds:
    """The kinds of words of some documents, each with a number, and the documents as those numbers."""

    def __init__(self):
        self.numbers = {}

    def read(self, document):
        """A document as an array of the numbers of its words."""
        numbers = self.numbers
        return np.array([numbers.setdefault(word, len(numbers)) for word in WORD.findall(document)], dtype=np.int64)


def spelled(places, spellings):
    """Replace each number in `places` by its row of `spellings` (list of lists of ids), in one gather."""
    lengths = np.array([len(row) for row in spellings], dtype=np.int64)
    flat = np.array([token for row in spellings for token in row], dtype=np.int32)
    starts = np.cumsum(lengths) - lengths
    counts = lengths[places]
    before = np.repeat(np.cumsum(counts) - counts, counts)  # tokens that stand before each token's word
    return flat[np.arange(len(before)) - before + np.repeat(starts[places], counts)]
