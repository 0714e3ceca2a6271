"""bpe_train: wrong solutions and unusual right ones."""

import re
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np

from tests.bank import right, wrong


def pieces_of(word):
    return [bytes([value]) for value in word]


def merged(pieces, pair):
    out = []
    for piece in pieces:
        # the last piece of `out` may be half of the pair, unless it has been joined from it
        if out and out[-1] == (pair[0], False) and piece == pair[1]:
            out[-1] = (pair[0] + pair[1], True)
        else:
            out.append((piece, False))
    return [piece for piece, _ in out]


class _Trainer:
    """Right as it stands; each wrong solution changes one method."""

    def start(self, word):
        return pieces_of(word)

    def weight(self, count):
        return count

    def pairs(self, pieces):
        return list(zip(pieces, pieces[1:], strict=False))

    def choose(self, totals):
        return max(totals, key=lambda pair: (totals[pair], pair))

    def join(self, pieces, pair):
        return merged(pieces, pair)

    def empty(self, merges):
        return merges

    def count(self, words):
        totals = Counter()
        for pieces, count in words:
            for pair in self.pairs(pieces):
                totals[pair] += self.weight(count)
        return totals

    def __call__(self, word_counts, n_merges):
        if n_merges < 0:
            raise ValueError("n_merges must be at least 0")
        words, merges = [(self.start(word), count) for word, count in word_counts.items()], []
        for _ in range(n_merges):
            totals = self.count(words)
            if not totals:
                return self.empty(merges)
            merges.append(self.choose(totals))
            words = [(self.join(pieces, merges[-1]), count) for pieces, count in words]
        return merges


def trainer(says=None):
    """Register the trainer of a class."""

    def register(cls):
        function = cls().__call__

        def train(word_counts, n_merges):
            return function(word_counts, n_merges)

        train.__name__, train.__module__ = cls.__name__, __name__
        return wrong("bpe_train", says=says)(train)

    return register


# ---------------------------------------------------------------- wrong


@trainer("a word's count was ignored")
class EveryWordOnce(_Trainer):
    def weight(self, count):
        return 1


@trainer("a tie was broken by order, not by the greater pair")
class FirstOnATie(_Trainer):
    def choose(self, totals):
        return totals.most_common(1)[0][0]


@trainer("a tie took the smaller pair")
class SmallerOnATie(_Trainer):
    def choose(self, totals):
        return min(totals, key=lambda pair: (-totals[pair], pair))


@trainer("a tie compares first parts, then second parts")
class JoinedOnATie(_Trainer):
    def choose(self, totals):
        return max(totals, key=lambda pair: (totals[pair], pair[0] + pair[1]))


@trainer()
class LongerOnATie(_Trainer):
    def choose(self, totals):
        return max(totals, key=lambda pair: (totals[pair], len(pair[0] + pair[1]), pair))


@trainer()
class SecondPartOnATie(_Trainer):
    def choose(self, totals):
        return max(totals, key=lambda pair: (totals[pair], pair[1], pair[0]))


@trainer("aaa holds the pair (a, a) twice")
class OverlapsCountOnce(_Trainer):
    def pairs(self, pieces):
        found, place = [], 0
        while place < len(pieces) - 1:
            found.append((pieces[place], pieces[place + 1]))
            run = place + 2 < len(pieces) and pieces[place] == pieces[place + 1] == pieces[place + 2]
            place += 2 if run else 1
        return found


@trainer()
class EachPairOncePerWord(_Trainer):
    def pairs(self, pieces):
        return list(dict.fromkeys(super().pairs(pieces)))


@trainer("overlapping pairs were joined twice")
class OverlapsJoinedTwice(_Trainer):
    def join(self, pieces, pair):
        out, place = [], 0
        while place < len(pieces):
            here = tuple(pieces[place : place + 2]) == pair
            after = tuple(pieces[place + 1 : place + 3]) == pair
            out.append(pair[0] + pair[1] if here else pieces[place])
            place += 2 if here and not after else 1
        return out


@trainer()
class JoinedFromTheRight(_Trainer):
    def join(self, pieces, pair):
        out, place = [], len(pieces)
        while place > 0:
            here = place > 1 and tuple(pieces[place - 2 : place]) == pair
            out.append(pair[0] + pair[1] if here else pieces[place - 1])
            place -= 2 if here else 1
        return out[::-1]


@trainer()
class FirstPlaceOnly(_Trainer):
    def join(self, pieces, pair):
        places = [n for n, found in enumerate(pairwise(pieces)) if found == pair]
        return pieces[: places[0]] + [b"".join(pair)] + pieces[places[0] + 2 :] if places else pieces


@trainer("no pair was left")
class CrashesAtTheEnd(_Trainer):
    def empty(self, merges):
        raise IndexError("list index out of range")


@trainer("no pair was left")
class RepeatsTheLast(_Trainer):
    def __call__(self, word_counts, n_merges):
        merges = super().__call__(word_counts, n_merges)
        return merges + merges[-1:] * (n_merges - len(merges))


@trainer("start from bytes, not characters")
class FromCharacters(_Trainer):
    def start(self, word):
        return list(word.decode(errors="replace"))


@trainer("start from bytes, not characters")
class FromCharactersAsBytes(_Trainer):
    def start(self, word):
        return [mark.encode() for mark in word.decode("utf-8", "ignore")]


@trainer("a byte of bytes is an int: cut pieces of length 1")
class FromInts(_Trainer):
    def start(self, word):
        return [(value,) for value in word]

    def __call__(self, word_counts, n_merges):
        return [(left[0], right[0]) for left, right in super().__call__(word_counts, n_merges)]


@trainer("return the pair, not the token")
class Tokens(_Trainer):
    def __call__(self, word_counts, n_merges):
        return [b"".join(pair) for pair in super().__call__(word_counts, n_merges)]


@trainer()
class PairsAsLists(_Trainer):
    def __call__(self, word_counts, n_merges):
        return [list(pair) for pair in super().__call__(word_counts, n_merges)]


@trainer()
class NoRefusal(_Trainer):
    def __call__(self, word_counts, n_merges):
        return super().__call__(word_counts, max(n_merges, 0))


@trainer()
class SkipsPairsSeenOnce(_Trainer):
    def empty(self, merges):
        return merges

    def count(self, words):
        return Counter({pair: total for pair, total in super().count(words).items() if total > 1})


@trainer()
class EmptiesTheDict(_Trainer):
    def __call__(self, word_counts, n_merges):
        merges = super().__call__(word_counts, n_merges)
        word_counts.clear()
        return merges


@trainer()
class WithAnEndMark(_Trainer):
    def start(self, word):
        return [*super().start(word), b"</w>"]


@trainer()
class FloatCounts(_Trainer):
    def weight(self, count):
        return float(count)


@wrong("bpe_train", says="counts were not renewed after a merge")
def most_common_pairs(word_counts, n_merges):
    if n_merges < 0:
        raise ValueError("n_merges")
    totals = Counter()
    for word, count in word_counts.items():
        for pair in pairwise(pieces_of(word)):
            totals[pair] += count
    return sorted(totals, key=lambda pair: (-totals[pair], *(tuple(-v for v in part) for part in pair)))[:n_merges]


@wrong("bpe_train", says="a pair reached from one word into the next")
def one_text(word_counts, n_merges):
    return _Trainer()({b"".join(word * count for word, count in word_counts.items() if count < 99): 1}, n_merges)


# ---------------------------------------------------------------- right


@right("bpe_train", why="counts everything anew after each merge")
def plain(word_counts, n_merges):
    return _Trainer()(word_counts, n_merges)


@right("bpe_train", why="regular expressions over ids written with spaces")
def by_pattern(word_counts, n_merges):
    if n_merges < 0:
        raise ValueError("n_merges is negative")
    texts = {" " + " ".join(f"{value:02x}" for value in word) + " ": count for word, count in word_counts.items()}
    merges = []
    while len(merges) < n_merges:
        totals = Counter()
        for text, count in texts.items():
            parts = text.split()
            for left, other in zip(parts, parts[1:], strict=False):
                totals[bytes.fromhex(left), bytes.fromhex(other)] += count
        if not totals:
            break
        best = max(totals.items(), key=lambda item: (item[1], item[0]))[0]
        merges.append(best)
        left, other = (part.hex() for part in best)
        # a place is " left other ", and the space behind it may begin the next one
        find = re.compile(f"(?<= ){left} {other}(?= )")
        texts = {find.sub(left + other, text): count for text, count in texts.items()}
    return merges


@right("bpe_train", why="an index of pairs that is brought up to date")
def with_an_index(word_counts, n_merges):
    if n_merges < 0:
        raise ValueError("n_merges must not be negative")
    words, counts = [pieces_of(word) for word in word_counts], list(word_counts.values())
    totals, where, merges = Counter(), defaultdict(set), []

    def add(number, sign):
        for pair in pairwise(words[number]):
            totals[pair] += sign * counts[number]
            where[pair].add(number)

    for number in range(len(words)):
        add(number, 1)
    for _ in range(n_merges):
        best = max(totals, key=lambda pair: (totals[pair], pair), default=None)
        if best is None or not totals[best]:
            break
        merges.append(best)
        for number in list(where[best]):
            add(number, -1)
            words[number] = merged(words[number], best)
            add(number, 1)
    return merges


@right("bpe_train", why="NumPy arrays of ids, a table of tokens beside them")
def with_arrays(word_counts, n_merges):
    if n_merges < 0:
        raise ValueError("n_merges must be 0 or more")
    tokens, merges = [bytes([value]) for value in range(256)], []
    words = [(np.frombuffer(word, dtype=np.uint8).astype(np.int64), count) for word, count in word_counts.items()]
    for _ in range(n_merges):
        totals = defaultdict(int)
        for ids, count in words:
            for left, other in zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True):
                totals[left, other] += count
        if not totals:
            break
        left, other = max(totals, key=lambda pair: (totals[pair], tokens[pair[0]], tokens[pair[1]]))
        merges.append((tokens[left], tokens[other]))
        tokens.append(tokens[left] + tokens[other])
        for number, (ids, count) in enumerate(words):
            out = []
            for value in ids.tolist():
                if out and out[-1] == left and value == other:
                    out[-1] = len(tokens) - 1
                else:
                    out.append(value)
            words[number] = (np.array(out, dtype=np.int64), count)
    return merges


@right("bpe_train", why="a sorted list of pairs, greatest last")
def by_sorting(word_counts, n_merges):
    assert_not_negative(n_merges)
    words, merges = {word: [word[n : n + 1] for n in range(len(word))] for word in word_counts}, []
    while len(merges) < n_merges:
        totals = {}
        for word, pieces in words.items():
            for pair in pairwise(pieces):
                totals[pair] = totals.get(pair, 0) + word_counts[word]
        if not totals:
            return merges
        merges.append(sorted((total, *pair) for pair, total in totals.items())[-1][1:])
        for word in words:
            words[word] = merged(words[word], merges[-1])
    return merges


def assert_not_negative(n_merges):
    if n_merges < 0:
        raise ValueError(f"n_merges is {n_merges}")
