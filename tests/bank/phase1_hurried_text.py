"""Phase 1, text: what hurried students hand in, and what experts do differently. Written from the catalogue alone."""

import re
from collections import Counter, OrderedDict
from itertools import pairwise

from tests.bank import right, wrong
from tests.bank.phase1_encode import loop


def single(word):
    return [bytes([n]) for n in word]


def glued(pieces, pair, step=2):
    out, place = [], 0
    while place < len(pieces):
        if place + 1 < len(pieces) and (pieces[place], pieces[place + 1]) == pair:
            out.append(pair[0] + pair[1])
            place += step
        else:
            out.append(pieces[place])
            place += 1
    return out


def count_pairs(words, weight=lambda count: count):
    totals = Counter()
    for pieces, count in words:
        for pair in pairwise(pieces):
            totals[pair] += weight(count)
    return totals


def training(choose, glue=glued, count=count_pairs, go_on=lambda totals: bool(totals)):
    """A whole bpe_train out of parts, one of which is wrong."""

    def train(word_counts, n_merges):
        if n_merges < 0:
            raise ValueError("n_merges is negative")
        words, merges = [(single(word), count) for word, count in word_counts.items()], []
        while len(merges) < n_merges:
            totals = count(words)
            if not go_on(totals):
                break
            merges.append(choose(totals))
            words = [(glue(pieces, merges[-1]), count) for pieces, count in words]
        return merges

    return train


def greatest(totals):
    return max(totals, key=lambda pair: (totals[pair], pair))


def named(name, function):
    function.__name__, function.__module__ = name, __name__
    return function


# ---------------------------------------------------------------- bpe_train, wrong

wrong("bpe_train", says="a tie was broken by order, not by the greater pair")(
    named("most_common", training(lambda totals: totals.most_common(1)[0][0]))
)
wrong("bpe_train", says="go on by 2 after a join: the second part was used up")(
    named("goes_on_by_one", training(greatest, lambda pieces, pair: glued(pieces, pair, 1)))
)
wrong("bpe_train", says="a pair that stands only once counts, too")(
    named("stops_at_one", training(greatest, go_on=lambda totals: max(totals.values(), default=0) > 1))
)
wrong("bpe_train", says="a tie compares first parts, then second parts")(
    named("ties_by_what_they_make", training(lambda totals: max(totals, key=lambda p: (totals[p], p[0] + p[1]))))
)
wrong("bpe_train", says="a word's count was ignored")(
    named("counts_words_once", training(greatest, count=lambda words: count_pairs(words, lambda count: 1)))
)


@wrong("bpe_train", says="a pair counts at every place, not once per word")
def with_a_set_of_pairs(word_counts, n_merges):
    def count(words):
        totals = Counter()
        for pieces, times in words:
            for pair in set(pairwise(pieces)):
                totals[pair] += times
        return totals

    return training(greatest, count=count)(word_counts, n_merges)


@wrong("bpe_train", says="a join goes through the whole word")
def with_index_of_the_first(word_counts, n_merges):
    def glue(pieces, pair):
        for n in range(len(pieces) - 1):
            if (pieces[n], pieces[n + 1]) == pair:
                return [*pieces[:n], pair[0] + pair[1], *pieces[n + 2 :]]
        return pieces

    return training(greatest, glue)(word_counts, n_merges)


# ---------------------------------------------------------------- bpe_train, right


@right("bpe_train", "one long list with a wall between words")
def with_walls(word_counts, n_merges):
    if n_merges < 0:
        raise ValueError("n_merges < 0")
    text, weight = [], []
    for word, count in word_counts.items():
        text += [*single(word), None]
        weight += [count] * (len(word) + 1)
    merges = []
    for _ in range(n_merges):
        totals = Counter()
        for n in range(len(text) - 1):
            if text[n] is not None and text[n + 1] is not None:
                totals[text[n], text[n + 1]] += weight[n]
        if not totals:
            return merges
        best = sorted(totals.items(), key=lambda item: (item[1], item[0]))[-1][0]
        merges.append(best)
        n = 0
        while n < len(text) - 1:
            if (text[n], text[n + 1]) == best:
                text[n : n + 2] = [best[0] + best[1]]
                del weight[n]
            n += 1
    return merges


@right("bpe_train", "pieces kept as spans of the word")
def with_spans(word_counts, n_merges):
    if n_merges < 0:
        raise ValueError(n_merges)
    cuts, merges = {word: list(range(len(word) + 1)) for word in word_counts}, []
    while len(merges) < n_merges:
        totals = Counter()
        for word, at in cuts.items():
            for a, b, c in zip(at, at[1:], at[2:], strict=False):
                totals[word[a:b], word[b:c]] += word_counts[word]
        if not totals:
            break
        best = max(totals.items(), key=lambda item: (item[1], *item[0]))[0]
        for word, at in cuts.items():
            n = 0
            while n + 2 < len(at):
                if (word[at[n] : at[n + 1]], word[at[n + 1] : at[n + 2]]) == best:
                    del at[n + 1]
                n += 1
        merges.append(best)
    return merges


@right("bpe_train", "words that can no longer change are dropped")
def dropping_finished_words(word_counts, n_merges):
    if int(n_merges) < 0:
        raise ValueError("n_merges must be 0 or more")
    words = [(tuple(single(word)), count) for word, count in word_counts.items()]
    merges = []
    for _ in range(n_merges):
        words = [(pieces, count) for pieces, count in words if len(pieces) > 1]
        totals = count_pairs(words)
        if not totals:
            break
        top = max(totals.values())
        merges.append(max(pair for pair in totals if totals[pair] == top))
        words = [(tuple(glued(pieces, merges[-1])), count) for pieces, count in words]
    return merges


# ---------------------------------------------------------------- bpe_encode, wrong


@wrong("bpe_encode", says="a rule is a pair: it is not enough that its token is one")
def ranks_of_tokens(word, merges):
    ranks, pieces = {a + b: n for n, (a, b) in enumerate(merges)}, single(word)
    while pairs := [pair for pair in pairwise(pieces) if pair[0] + pair[1] in ranks]:
        pieces = glued(pieces, min(pairs, key=lambda pair: ranks[pair[0] + pair[1]]))
    return pieces


@wrong("bpe_encode", says="the leftmost pair was taken, not the earliest rule")
def first_pair_with_a_rule(word, merges):
    pieces = single(word)
    while pairs := [pair for pair in pairwise(pieces) if pair in set(merges)]:
        pieces = glued(pieces, pairs[0])
    return pieces


@wrong("bpe_encode", says="a rule became usable later and was missed")
def each_rule_in_turn(word, merges):
    pieces = single(word)
    for pair in merges:
        pieces = glued(pieces, pair)
    return pieces


@wrong("bpe_encode", says="a piece was used twice")
def second_part_left(word, merges):
    pieces = single(word)
    while pairs := [pair for pair in merges if pair in set(pairwise(pieces))]:
        pieces = [b"".join(pairs[0]) if pair == pairs[0] else pair[0] for pair in pairwise([*pieces, b""])]
        if len(pieces) > 2 * len(word) or b"".join(pieces[:1]) == word:
            break
    return pieces


@wrong("bpe_encode", says="the order of the rules is reversed")
def largest_rank(word, merges):
    ranks, pieces = {pair: n for n, pair in enumerate(merges)}, single(word)
    while pairs := [pair for pair in pairwise(pieces) if pair in ranks]:
        pieces = glued(pieces, max(pairs, key=ranks.get))
    return pieces


@wrong("bpe_encode", says="the longest token was taken, not the earliest rule")
def greedy_from_the_left(word, merges):
    vocabulary, out = {a + b for a, b in merges} | {bytes([n]) for n in range(256)}, []
    while word:
        end = next(end for end in range(len(word), 0, -1) if word[:end] in vocabulary)
        out, word = [*out, word[:end]], word[end:]
    return out


# ---------------------------------------------------------------- bpe_encode, right


@right("bpe_encode", "recursion on the cut positions")
def by_cuts(word, merges):
    ranks, cuts = {pair: n for n, pair in enumerate(merges)}, list(range(len(word) + 1))

    def rank(n):
        a, b, c = cuts[n - 1 : n + 2]
        return ranks.get((word[a:b], word[b:c]), len(ranks))

    while len(cuts) > 2:
        best = min(range(1, len(cuts) - 1), key=rank)
        if rank(best) == len(ranks):
            break
        del cuts[best]
    return [word[a:b] for a, b in pairwise(cuts)]


@right("bpe_encode", "starts again at the first rule after each join")
def restarting(word, merges):
    pieces, n = single(word), 0
    while n < len(merges):
        joined = glued(pieces, tuple(merges[n]))
        n = n + 1 if joined == pieces else 0
        pieces = joined
    return pieces


@right("bpe_encode", "an index of the list instead of a dict")
def by_index(word, merges):
    pieces = single(word)
    while True:
        found = [(merges.index(pair), pair) for pair in pairwise(pieces) if pair in merges]
        if not found:
            return pieces
        pieces = glued(pieces, min(found)[1])


# ---------------------------------------------------------------- Tokenizer


class _Plain:
    """Right as it stands."""

    def __init__(self, merges, specials):
        if len(specials) != len(set(specials)) or not all(specials):
            raise ValueError("specials must be different and not empty")
        self.merges, self.specials = merges, list(specials)
        self.vocab = [*(bytes([n]) for n in range(256)), *(a + b for a, b in merges), *(s.encode() for s in specials)]
        self.special_ids = {text: 256 + len(merges) + n for n, text in enumerate(specials)}
        self.vocab_size = len(self.vocab)
        self.numbers = {token: n for n, token in enumerate(self.vocab[: 256 + len(merges)])}

    def plain(self, text):
        return [self.numbers[piece] for piece in loop(text.encode(), self.merges)]

    def parts(self, text):
        if not self.specials:
            return [text]
        return re.split("(" + "|".join(map(re.escape, sorted(self.specials, key=len, reverse=True))) + ")", text)

    def encode(self, text):
        ids = []
        for part in self.parts(text):
            ids += [self.special_ids[part]] if part in self.special_ids else self.plain(part)
        return ids

    def decode(self, ids):
        ids = list(ids)
        if any(n not in range(self.vocab_size) for n in ids):
            raise ValueError("there is no such id")
        return b"".join(self.vocab[n] for n in ids).decode("utf-8", "replace")


@wrong("Tokenizer", says="ids can be read only once: make a list first")
class LooksTwice(_Plain):
    def decode(self, ids):
        if any(n < 0 or n >= self.vocab_size for n in ids):
            raise ValueError("unknown id")
        return b"".join(self.vocab[n] for n in ids).decode("utf-8", errors="replace")


@wrong("Tokenizer", says="a special is no pattern: re.escape it")
class Unescaped(_Plain):
    def parts(self, text):
        pattern = "|".join(sorted(self.specials, key=len, reverse=True))
        return re.split(f"({pattern})", text) if pattern else [text]


@wrong("Tokenizer", says="no specials, no cut: an empty pattern fits everywhere")
class CutsEverywhere(_Plain):
    def parts(self, text):
        return re.split("(" + "|".join(map(re.escape, sorted(self.specials, key=len, reverse=True))) + ")", text)


@wrong("Tokenizer", says="the leftmost special goes first, whichever it is")
class LongestAnywhere(_Plain):
    def parts(self, text):
        parts = [text]
        for special in sorted(self.specials, key=len, reverse=True):
            cut = []
            for part in parts:
                cut += [part] if part in self.specials else re.split(f"({re.escape(special)})", part)
            parts = cut
        return parts


@wrong("Tokenizer", says="the order of ids is bytes, merged tokens, specials")
class SpecialsFromZero(_Plain):
    def __init__(self, merges, specials):
        super().__init__(merges, specials)
        self.special_ids = {text: n for n, text in enumerate(specials)}


@wrong("Tokenizer", says="broken bytes become U+FFFD")
class IgnoresBroken(_Plain):
    def decode(self, ids):
        _Plain.decode(self, ids)
        return b"".join(self.vocab[n] for n in ids).decode("utf-8", "ignore")


@right("Tokenizer", "specials found with finditer")
class WithFinditer(_Plain):
    def parts(self, text):
        if not self.specials:
            return [text]
        found, end = [], 0
        for match in re.finditer("|".join(map(re.escape, sorted(self.specials, key=len)[::-1])), text):
            found += [text[end : match.start()], match.group()]
            end = match.end()
        return [*found, text[end:]]


@right("Tokenizer", "specials tried place by place with startswith")
class WithStartswith(_Plain):
    def encode(self, text):
        ids, stretch, place = [], "", 0
        while place < len(text):
            fits = [special for special in self.specials if text.startswith(special, place)]
            if fits:
                best = max(fits, key=len)
                ids += [*self.plain(stretch), self.special_ids[best]]
                stretch, place = "", place + len(best)
            else:
                stretch, place = stretch + text[place], place + 1
        return ids + self.plain(stretch)


@right("Tokenizer", "decoding byte by byte into a bytearray, attributes as properties")
class WithBytearray(_Plain):
    def __init__(self, merges, specials):
        super().__init__(merges, specials)
        self.numbers = OrderedDict(self.numbers)

    def decode(self, ids):
        out = bytearray()
        for n in ids:
            if not 0 <= n < len(self.vocab):
                raise ValueError(f"id {n} is unknown")
            out.extend(self.vocab[n])
        return str(out, "utf-8", "replace")
