"""span_corrupt and prefix_lm_mask: text in, text out."""

import torch

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase6 import PHASE
from utils.checks.phase6 import rules_families as rules

TEXT = [14, 3, 27, 8, 19, 5, 22, 11]
SENTINELS = [99, 98, 97, 96]


def asked(name, spans, tokens=TEXT, sentinel_ids=SENTINELS):
    return case(name, dict(tokens=tokens, spans=spans, sentinel_ids=sentinel_ids))


def refused(name, spans, sentinel_ids=SENTINELS):
    return refusal(name, dict(tokens=TEXT, spans=spans, sentinel_ids=sentinel_ids))


def built(
    order=sorted,
    end=lambda end: end,
    inside=lambda sentinel, words: [sentinel],
    answer=lambda sentinel, words: [sentinel, *words],
    last=lambda sentinels, n: [sentinels[n]],
):
    """A wrong twin in its parts; as it stands it is right, but refuses nothing of its own."""

    def faulty(tokens, spans, sentinel_ids):
        oracle.span_corrupt(tokens, spans, sentinel_ids)
        inputs, targets, place = [], [], 0
        numbers = {span: sentinel for span, sentinel in zip(order(spans), sentinel_ids, strict=False)}
        for start, stop in sorted(spans):
            words = tokens[start : end(stop)]
            inputs += [*tokens[place:start], *inside(numbers[start, stop], words)]
            targets += answer(numbers[start, stop], words)
            place = end(stop)
        return inputs + tokens[place:], targets + last(sentinel_ids, len(spans))

    return faulty


def unrefused(tokens, spans, sentinel_ids):
    inputs, targets, place = [], [], 0
    for sentinel, (start, end) in zip(sentinel_ids, sorted(spans), strict=False):
        inputs, place = [*inputs, *tokens[place:start], sentinel], end
        targets += [sentinel, *tokens[start:end]]
    return inputs + tokens[place:], targets + sentinel_ids[len(spans) : len(spans) + 1]


def refuses_touching(tokens, spans, sentinel_ids):
    order = sorted(spans)
    if any(a[1] >= b[0] for a, b in zip(order, order[1:], strict=False)):
        raise ValueError("spans overlap")
    return oracle.span_corrupt(tokens, spans, sentinel_ids)


def rest_forgotten(tokens, spans, sentinel_ids):
    inputs, targets = oracle.span_corrupt(tokens, spans, sentinel_ids)
    rest = len(tokens) - max((end for _, end in spans), default=0)
    return inputs[: len(inputs) - rest], targets


def as_given(tokens, spans, sentinel_ids):
    """Cut in the order of the list."""
    oracle.span_corrupt(tokens, spans, sentinel_ids)
    inputs, targets, place = [], [], 0
    for sentinel, (start, end) in zip(sentinel_ids, spans, strict=False):
        inputs, place = [*inputs, *tokens[place:start], sentinel], end
        targets += [sentinel, *tokens[start:end]]
    return inputs + tokens[place:], targets + [sentinel_ids[len(spans)]]


def merged(tokens, spans, sentinel_ids):
    """Spans that touch become one."""
    oracle.span_corrupt(tokens, spans, sentinel_ids)
    whole = []
    for start, end in sorted(spans):
        if whole and whole[-1][1] == start:
            whole[-1] = (whole[-1][0], end)
        else:
            whole.append((start, end))
    return oracle.span_corrupt(tokens, whole, sentinel_ids)


def one_each(sentinel, words):
    return [sentinel] * len(words)


register(
    expected=oracle.span_corrupt,
    phase=PHASE,
    section="6.6",
    hint="sort the spans; each gives one sentinel to the inputs, and the sentinel with its words to the targets.",
    grad=False,
    bans=(),
    cases=(
        asked("two spans", [(1, 3), (5, 6)]),
        asked("three spans, unsorted", [(6, 7), (0, 1), (3, 5)]),
        asked("one span", [(2, 6)]),
        asked("spans that touch", [(2, 4), (4, 5)]),
        asked("at both ends", [(6, 8), (0, 2)]),
        asked("all of it", [(0, 8)]),
        asked("no span", []),
        asked("sentinels to spare", [(3, 4)], sentinel_ids=[50, 60, 40, 70, 30, 20]),
        asked("as many sentinels as needed", [(1, 2), (3, 4), (7, 8)]),
        asked("a word three times", [(1, 2), (3, 5)], tokens=[7, 7, 4, 7, 7, 4]),
        asked("one token", [(0, 1)], tokens=[6]),
        asked("no text", [], tokens=[]),
        refused("overlap", [(1, 4), (3, 6)]),
        refused("one inside another", [(0, 6), (2, 3)]),
        refused("the same twice", [(2, 4), (2, 4)]),
        refused("an empty span", [(3, 3)]),
        refused("end before start", [(5, 2)]),
        refused("past the end", [(6, 9)]),
        refused("before the start", [(-2, 1)]),
        refused("four spans, four sentinels", [(0, 1), (2, 3), (4, 5), (6, 7)]),
        refused("no sentinel", [], sentinel_ids=[]),
    ),
    mistakes={
        "one sentinel more ends the targets": built(last=lambda sentinels, n: []),
        "the last sentinel is the next one of the list": Replays(
            built(last=lambda sentinels, n: sentinels[-1:]), built(last=lambda sentinels, n: [sentinels[0] - n])
        ),
        "spans are half-open": built(end=lambda end: end + 1),
        "sentinels are handed out left to right": built(order=list),
        "a span leaves one sentinel, whatever its length": built(inside=one_each),
        "the hidden words are still in the inputs": built(inside=lambda sentinel, words: [sentinel, *words]),
        "a sentinel stands before its words": Replays(
            built(answer=lambda sentinel, words: words),
            built(answer=lambda sentinel, words: [*words, sentinel]),
            built(answer=lambda sentinel, words: words, last=lambda sentinels, n: []),
        ),
        "the text goes on behind the last span": rest_forgotten,
        "spans come in any order: sort them": as_given,
        "spans may touch": Spotted(rules.touching_refused, refuses_touching, certain=True),
        "spans that touch stay two": merged,
        "the span is gone without a trace": built(inside=lambda sentinel, words: []),
        "refuse spans that are empty, overlap or lie outside, and too few sentinels": Spotted(
            rules.span_not_refused, unrefused, certain=True
        ),
    },
)


def lengths(*values):
    return given(lambda generator, others: torch.tensor(values))


def columns(prefix_len):
    return torch.as_tensor(prefix_len).reshape(-1, 1, 1, 1)


def places(seq_len):
    return torch.arange(seq_len)[:, None], torch.arange(seq_len)


def prefixed(change):
    """A wrong twin: change(query places, key places, prefix lengths)."""

    def faulty(prefix_len, seq_len):
        oracle.prefix_lm_mask(prefix_len, seq_len)
        seen = change(*places(seq_len), columns(prefix_len))
        return seen.expand(len(columns(prefix_len)), 1, seq_len, seq_len)

    return faulty


register(
    expected=oracle.prefix_lm_mask,
    phase=PHASE,
    section="6.6",
    hint="a key is visible if it is no later than the query, or if it belongs to the prefix.",
    grad=False,
    bans=(),
    cases=(
        case("a prefix of 3 in 6", dict(prefix_len=3, seq_len=6)),
        case("prefixes 0, 1, 3 and 6", dict(prefix_len=lengths(0, 1, 3, 6), seq_len=6)),
        case("batch as long as the sentence", dict(prefix_len=lengths(4, 2, 3, 0), seq_len=4)),
        case("one row, as a tensor", dict(prefix_len=lengths(2), seq_len=5)),
        case("no prefix", dict(prefix_len=0, seq_len=4)),
        case("nothing but prefix", dict(prefix_len=5, seq_len=5)),
        case("one token", dict(prefix_len=1, seq_len=1)),
        refusal("prefix_len -1", dict(prefix_len=-1, seq_len=5)),
        refusal("prefix_len 6 of 5", dict(prefix_len=6, seq_len=5)),
        refusal("one of three too long", dict(prefix_len=lengths(2, 6, 1), seq_len=5)),
        refusal("one of three negative", dict(prefix_len=lengths(2, -1, 1), seq_len=5)),
    ),
    mistakes={
        "the prefix sees all of itself": prefixed(lambda i, j, n: (j <= i).expand(len(n), 1, *(j <= i).shape)),
        "the answer sees itself and what came before, too": prefixed(lambda i, j, n: (j < n) & (i == i)),
        "queries are rows, keys are columns": prefixed(lambda i, j, n: (i <= j) | (i < n)),
        "each row has its own prefix": prefixed(lambda i, j, n: (j <= i) | (j < n.max()) | (n < 0)),
        "prefix_len counts tokens": Replays(
            prefixed(lambda i, j, n: (j <= i) | (j <= n)), prefixed(lambda i, j, n: (j <= i) | (j < n - 1))
        ),
        "that hides what may be seen": prefixed(lambda i, j, n: ~((j <= i) | (j < n))),
        "add the head axis": Spotted(
            rules.no_head_axis, lambda prefix_len, seq_len: oracle.prefix_lm_mask(prefix_len, seq_len)[:, 0]
        ),
        "masks are bool": Spotted(
            rules.not_bool, lambda prefix_len, seq_len: oracle.prefix_lm_mask(prefix_len, seq_len).double()
        ),
        "refuse prefix_len below 0 and above seq_len": Spotted(
            rules.prefix_not_refused,
            lambda prefix_len, seq_len: (
                (places(seq_len)[1] <= places(seq_len)[0]) | (places(seq_len)[1] < columns(prefix_len))
            ),
            certain=True,
        ),
    },
)
