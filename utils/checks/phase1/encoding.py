"""bpe_encode: the rules that were learned, replayed on a word."""

from itertools import pairwise

from utils import oracle
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase1 import PHASE, rules
from utils.checks.phase1.pairs import join, part_stays, single


def encoded(choose, once=False):
    """A wrong twin of bpe_encode. choose(pieces, ranks) -> place of the pair to join, among those with a rule.

    once: only this place is joined, and its rule never again
    """

    def wrong(word, merges):
        ranks, pieces = {pair: rank for rank, pair in enumerate(merges)}, single(word)
        while any(pair in ranks for pair in pairwise(pieces)):
            place = choose(pieces, ranks)
            pair = (pieces[place], pieces[place + 1])
            pieces[place : place + 2] = [pair[0] + pair[1]]
            if once:
                del ranks[pair]
        return pieces

    return wrong


def known(pieces, ranks):
    """(rank, place) of each pair that has a rule."""
    return [(ranks[pair], place) for place, pair in enumerate(pairwise(pieces)) if pair in ranks]


def leftmost(pieces, ranks):
    return min(place for _, place in known(pieces, ranks))


def earliest(pieces, ranks):
    return min(known(pieces, ranks))[1]


def latest(pieces, ranks):
    return max((rank, -place) for rank, place in known(pieces, ranks))[1] * -1


def rightmost_of_earliest(pieces, ranks):
    return min(known(pieces, ranks), key=lambda found: (found[0], -found[1]))[1]


def leftmost_everywhere(word, merges):
    pieces = single(word)
    while usable := [pair for pair in pairwise(pieces) if pair in merges]:
        pieces = join(pieces, usable[0])
    return pieces


def by_joined_bytes(word, merges):
    """Ranks by the token that a pair makes, whichever pair it is."""
    ranks, pieces = {left + right: rank for rank, (left, right) in enumerate(merges)}, single(word)
    while usable := [pair for pair in pairwise(pieces) if b"".join(pair) in ranks]:
        pieces = join(pieces, min(usable, key=lambda pair: ranks[b"".join(pair)]))
    return pieces


def latest_everywhere(word, merges):
    pieces = single(word)
    while usable := [pair for pair in merges if pair in pairwise(pieces)]:
        pieces = join(pieces, usable[-1])
    return pieces


def longest_token(word, merges):
    """Greedy: from the left, the longest token of the vocabulary that fits."""
    vocabulary, pieces = {left + right for left, right in merges}, []
    while word:
        length = max([1, *(n for n in range(1, len(word) + 1) if word[:n] in vocabulary)])
        pieces.append(word[:length])
        word = word[length:]
    return pieces


def one_pass(word, merges):
    pieces = single(word)
    for pair in merges:
        pieces = join(pieces, pair)
    return pieces


def rules_in(*pairs):
    return [tuple(part.encode() for part in pair.split("|")) for pair in pairs]


LOWER = rules_in("e|r", "l|o", "lo|w", "low|er", "e|s", "es|t")
# of abcd the leftmost pair makes ab c d, the longest token abc d, the earliest rule a bcd
THREE_ANSWERS = rules_in("b|c", "bc|d", "a|b", "a|bc")
ODD = rules_in("ab|c", "x|y", "a|b", "abc|xy", "y|z")  # the first rule needs what the third one makes
TWO_WAYS = rules_in("b|c", "a|b", "ab|c")  # abc is a token, but (a, bc) is no rule
RUNS = rules_in("a|a", "aa|aa", "aa|a")
ACCENTS = [tuple(pair) for pair in ([b"\xc3", b"\xa9"], [b"t", b"\xc3\xa9"], [b"\xe6", b"\x97"])]

register(
    expected=oracle.bpe_encode,
    phase=PHASE,
    section="1.4",
    hint="of all adjacent pairs that have a rule, join the one whose rule stands first; then look again.",
    bans=(),
    grad=False,
    properties=(rules.pieces_spell_the_word,),
    cases=(
        case("a word", dict(word=b"lower", merges=LOWER)),
        case("a word never seen", dict(word=b"slowest", merges=LOWER)),
        case("bytes without a rule", dict(word=b"qlowz\x00\xff", merges=LOWER)),
        case("three rules compete", dict(word=b"abcd", merges=THREE_ANSWERS)),
        case("three rules compete, twice", dict(word=b"abcabd", merges=THREE_ANSWERS)),
        case("rules in an odd order", dict(word=b"abcxyz", merges=ODD)),
        case("a rule that needs a later one", dict(word=b"zabcx", merges=ODD)),
        case("several places of one pair", dict(word=b"erlowerer", merges=LOWER)),
        case("a run of three", dict(word=b"aaa", merges=RUNS[:1])),
        case("a run of five", dict(word=b"aaaaa", merges=RUNS[:1])),
        case("a run of seven, three rules", dict(word=b"aaaaaaa", merges=RUNS)),
        case("another pair makes the same token", dict(word=b"abcxab", merges=TWO_WAYS)),
        case("characters of several bytes", dict(word="été 日".encode(), merges=ACCENTS)),
        case("one byte", dict(word=b"l", merges=LOWER)),
        case("no rules", dict(word=b"abc", merges=[])),
        case("two words after another", dict(word=b"lowest", merges=LOWER), then=(dict(word=b"low", merges=ODD),)),
        case("nothing", dict(word=b"", merges=LOWER), kind="edge"),
    ),
    mistakes={
        "the longest token was taken, not the earliest rule": longest_token,
        "the leftmost pair was taken, not the earliest rule": Replays(encoded(leftmost), leftmost_everywhere),
        "a rule is a pair: it is not enough that its token is one": by_joined_bytes,
        "a rule became usable later and was missed": one_pass,
        "nothing was joined": lambda word, merges: single(word),
        "the order of the rules is reversed": Replays(
            encoded(latest), lambda word, merges: one_pass(word, merges[::-1]), latest_everywhere
        ),
        "pieces are bytes": Spotted(
            rules.pieces_of_other_kinds,
            lambda word, merges: [piece.decode("latin1") for piece in oracle.bpe_encode(word, merges)],
            certain=True,
        ),
        "a rule joins all its places": encoded(earliest, once=True),
        "places are joined from left to right": encoded(rightmost_of_earliest),
        "a piece was used twice": Replays(
            lambda word, merges: overlapping(word, merges), lambda word, merges: second_part_stays(word, merges)
        ),
    },
)


def overlapping(word, merges):
    pieces = single(word)
    while usable := [pair for pair in merges if pair in pairwise(pieces)]:
        pieces = join(pieces, usable[0], overlap=True)
    return pieces


def second_part_stays(word, merges):
    """Goes on by one place after a join."""
    pieces = single(word)
    while usable := [pair for pair in merges if pair in pairwise(pieces)]:
        pieces = part_stays(pieces, usable[0])
        if max(map(len, pieces)) > len(word):
            break
    return pieces
