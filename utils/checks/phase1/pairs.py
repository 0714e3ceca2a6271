"""bpe_train: which bytes stand together so often that they become one token."""

from collections import Counter
from itertools import pairwise

import torch

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase1 import PHASE, rules

# ---- wrong ways to train -------------------------------------------------------------------------


def single(word):
    return [word[place : place + 1] for place in range(len(word))]


def characters(word):
    return [mark.encode() for mark in word.decode(errors="ignore")]


def join(pieces, pair, overlap=False):
    """`pieces` with a pair joined, left to right; overlap: a piece may be used twice."""
    out, place = [], 0
    while place < len(pieces):
        if tuple(pieces[place : place + 2]) == pair:
            out.append(pair[0] + pair[1])
            alone = overlap and tuple(pieces[place + 1 : place + 3]) == pair
            place += 1 if alone else 2
        else:
            out.append(pieces[place])
            place += 1
    return out


def every_place(pieces):
    return list(pairwise(pieces))


def without_overlap(pieces):
    """The places of equal neighbours that a left-to-right join would use."""
    found, used = [], -1
    for place, pair in enumerate(pairwise(pieces)):
        if pair[0] != pair[1] or place > used:
            found.append(pair)
            used = place + 1 if pair[0] == pair[1] else used
    return found


def once_a_word(pieces):
    return list(dict.fromkeys(pairwise(pieces)))


def first_place(pieces, pair):
    places = [n for n, found in enumerate(pairwise(pieces)) if found == pair][:1]
    return pieces[: places[0]] + [pair[0] + pair[1]] + pieces[places[0] + 2 :] if places else pieces


def part_stays(pieces, pair):
    """Goes on by one place after a join: the second part is still there."""
    return [b"".join(pair) if tuple(pieces[n : n + 2]) == pair else piece for n, piece in enumerate(pieces)]


def from_the_right(pieces, pair):
    flipped = join([piece[::-1] for piece in reversed(pieces)], (pair[1][::-1], pair[0][::-1]))
    return [piece[::-1] for piece in reversed(flipped)]


def trained(best=None, start=single, counted=every_place, joins=join, words_once=False, forget=True, least=1):
    """A wrong twin of bpe_train: what is given here differs from what was asked. best(totals) -> pair."""
    best = best or (lambda totals: max(totals, key=lambda pair: (totals[pair], pair)))

    def wrong(word_counts, n_merges):
        words = [(start(word), 1 if words_once else count) for word, count in word_counts.items()]
        merges = []
        for _ in range(n_merges):
            totals = Counter()
            for pieces, count in words:
                for pair in counted(pieces):
                    totals[pair] += count
            if not forget:
                totals = Counter({pair: total for pair, total in totals.items() if pair not in merges})
            if max(totals.values(), default=0) < least:
                break
            merges.append(best(totals))
            words = [(joins(pieces, merges[-1]), count) for pieces, count in words]
        return merges

    return wrong


def first_seen(totals):
    return max(totals, key=totals.get)


def last_seen(totals):
    top = max(totals.values())
    return [pair for pair, total in totals.items() if total == top][-1]


def smaller(totals):
    return min(totals, key=lambda pair: (-totals[pair], pair))


def by_joined(totals):
    return max(totals, key=lambda pair: (totals[pair], pair[0] + pair[1]))


def longer(totals):
    return max(totals, key=lambda pair: (totals[pair], len(pair[0] + pair[1]), pair))


def by_second_part(totals):
    return max(totals, key=lambda pair: (totals[pair], pair[::-1]))


def with_end_mark(word_counts, n_merges):
    return oracle.bpe_train({word + b"</w>": count for word, count in word_counts.items()}, n_merges)


def rarest(totals):
    return min(totals, key=lambda pair: (totals[pair], pair))


def counted_once(word_counts, n_merges):
    totals = Counter()
    for word, count in word_counts.items():
        for pair in pairwise(single(word)):
            totals[pair] += count
    return sorted(totals, key=lambda pair: (totals[pair], pair), reverse=True)[: max(n_merges, 0)]


def as_one_word(word_counts, n_merges):
    """Pairs reach from the end of a word into the next one."""
    return oracle.bpe_train({b"".join(word * count for word, count in word_counts.items() if count < 99): 1}, n_merges)


def each_word_once_in_a_row(word_counts, n_merges):
    return oracle.bpe_train({b"".join(word_counts): 1}, n_merges)


def padded_out(word_counts, n_merges):
    """Goes on when no pair is left."""
    merges = oracle.bpe_train(word_counts, n_merges)
    return merges + merges[-1:] * (n_merges - len(merges))


# ---- vocabularies --------------------------------------------------------------------------------


def of_text(words):
    return {word.encode(): count for word, count in words.items()}


def letters(alphabet=b"abc"):
    """A random small vocabulary over three letters: many ties, many runs."""

    def draw(generator, others):
        def number(low, high):
            return int(torch.randint(low, high, (), generator=generator))

        words = (bytes(alphabet[number(0, len(alphabet))] for _ in range(number(3, 8))) for _ in range(number(3, 7)))
        return {word: number(1, 4) for word in words}

    return given(draw)


def random_case(name, n_merges, times=3):
    first, *rest = (dict(word_counts=letters(), n_merges=n_merges) for _ in range(times))
    return case(name, first, then=tuple(rest))


HUGS = {b"hug": 10, b"pug": 5, b"pun": 12, b"bun": 4, b"hugs": 5}
ROWS = {b"low": 5, b"lower": 2, b"newest": 6, b"widest": 3}
GERMAN = of_text({"größer": 4, "größe": 3, "süß": 2, "日曜日": 3, "日本": 2})
ABC = {b"abd": 1, b"abc": 1, b"bd": 3, b"ab": 3, b"d": 1}

register(
    expected=oracle.bpe_train,
    phase=PHASE,
    section="1.3",
    hint="count all pairs, take the highest (on a tie the greater pair), join it everywhere, count anew.",
    bans=(),
    grad=False,
    cases=(
        case("five words", dict(word_counts=HUGS, n_merges=3)),
        case("one merge", dict(word_counts={b"ab": 2, b"abc": 3, b"bc": 1}, n_merges=1)),
        case("rare words, many of them", dict(word_counts={b"xy": 9, b"abz": 2, b"ab": 2, b"abq": 2}, n_merges=1)),
        case("a tie", dict(word_counts={b"ab": 2, b"cd": 2, b"ba": 2}, n_merges=3)),
        case("a tie whose first parts differ in length", dict(word_counts=ABC, n_merges=4)),
        case("pairs that repeat inside a word", dict(word_counts={b"banana": 3, b"bandana": 2}, n_merges=5)),
        case("runs of three and five", dict(word_counts={b"aaa": 2, b"aaaaa": 1, b"baaab": 1}, n_merges=4)),
        case("overlaps count", dict(word_counts={b"aaa": 2, b"xy": 3}, n_merges=2)),
        case("four words", dict(word_counts=ROWS, n_merges=9)),
        case("beyond ASCII", dict(word_counts=GERMAN, n_merges=12)),
        case("any byte", dict(word_counts={b"\x00\xff\x00\xff": 2, b"a.*b": 3, b".*\x00": 2}, n_merges=6)),
        case(
            "the same words in another order",
            dict(word_counts=ROWS, n_merges=6),
            then=(dict(word_counts=dict(reversed(ROWS.items())), n_merges=6),),
        ),
        case("large counts", dict(word_counts={b"ab": 2**53 + 1, b"cd": 2**53, b"ce": 1}, n_merges=3)),
        random_case("random words, 1", 3),
        random_case("random words, 2", 4),
        random_case("random words, 3", 5),
        random_case("random words until no pair is left", 60),
        case("more merges than pairs", dict(word_counts={b"abc": 2, b"ab": 1}, n_merges=50), kind="edge"),
        case("words of one byte", dict(word_counts={b"a": 3, b"b": 2}, n_merges=5), kind="edge"),
        case("no words", dict(word_counts={}, n_merges=4), kind="edge"),
        case("no merges", dict(word_counts=HUGS, n_merges=0), kind="edge"),
        refusal("n_merges -1", dict(word_counts=HUGS, n_merges=-1)),
        refusal("n_merges -3, no words", dict(word_counts={}, n_merges=-3)),
    ),
    mistakes={
        "a word's count was ignored": trained(words_once=True),
        "a tie was broken by order, not by the greater pair": Replays(trained(first_seen), trained(last_seen)),
        "a tie took the smaller pair": trained(smaller),
        "a tie compares first parts, then second parts": trained(by_joined),
        "counts were not renewed after a merge": counted_once,
        "a pair reached from one word into the next": Replays(as_one_word, each_word_once_in_a_row),
        "overlapping pairs were joined twice": trained(joins=lambda pieces, pair: join(pieces, pair, overlap=True)),
        "aaa holds the pair (a, a) twice": trained(counted=without_overlap),
        "no pair was left": Spotted(rules.goes_on_without_pairs, padded_out, also=(padded_out,)),
        "return the pair, not the token": lambda word_counts, n_merges: [
            left + right for left, right in oracle.bpe_train(word_counts, n_merges)
        ],
        "start from bytes, not characters": Spotted(
            rules.pairs_of_text,
            lambda word_counts, n_merges: [
                tuple(part.decode("latin1") for part in pair) for pair in oracle.bpe_train(word_counts, n_merges)
            ],
            also=(trained(start=characters),),
        ),
        "a byte of bytes is an int: cut pieces of length 1": Spotted(
            rules.pairs_of_ints,
            lambda word_counts, n_merges: [
                (left[0], right[0]) for left, right in oracle.bpe_train(word_counts, n_merges)
            ],
            certain=True,
        ),
        "the rarest pair was taken": trained(rarest),
        "a pair counts at every place, not once per word": trained(counted=once_a_word),
        "a join goes through the whole word": trained(joins=first_place),
        "go on by 2 after a join: the second part was used up": trained(joins=part_stays),
        "joining goes from left to right": trained(joins=from_the_right),
        "a pair that stands only once counts, too": trained(least=2),
        "a pair is a tuple": Spotted(
            rules.pairs_as_lists,
            lambda word_counts, n_merges: [list(pair) for pair in oracle.bpe_train(word_counts, n_merges)],
            certain=True,
        ),
        "a tie goes to the greater pair, not to the longer one": trained(longer),
        "a tie compares the first parts first": trained(by_second_part),
        "words get no end mark here": with_end_mark,
    },
)
