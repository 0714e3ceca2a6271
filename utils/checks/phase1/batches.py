"""pad_batch: sentences of different length in one rectangle."""

import torch

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase1 import PHASE, rules


def tensors(*rows):
    """1-D int64 tensors."""
    return given(lambda generator, others: [torch.tensor(row, dtype=torch.int64) for row in rows])


def arrived(change):
    """A wrong twin: change(tokens, pad_mask) on the right answer."""
    return lambda sequences, pad_id, max_len=None: change(*oracle.pad_batch(sequences, pad_id, max_len))


def listed(sequences):
    return [[int(n) for n in row] for row in sequences]


def left_padded(sequences, pad_id, max_len=None):
    tokens, mask = oracle.pad_batch([row[:max_len][::-1] for row in listed(sequences)], pad_id)
    return tokens.flip(-1), mask.flip(-1)


def last_kept(sequences, pad_id, max_len=None):
    return oracle.pad_batch([row[-max_len if max_len else 0 :] for row in listed(sequences)], pad_id)


def up_to_the_length(sequences, pad_id, max_len=None):
    tokens, mask = oracle.pad_batch(sequences, pad_id, max_len)
    return tokens, torch.arange(tokens.shape[1]) <= mask.sum(-1, keepdim=True)


def uncut_mask(sequences, pad_id, max_len=None):
    tokens, _ = oracle.pad_batch(sequences, pad_id, max_len)
    return tokens, oracle.pad_batch(sequences, pad_id)[1]


def always_full(sequences, pad_id, max_len=None):
    width = max_len or max(len(row) for row in sequences)
    rows = [row[:width] + [pad_id] * (width - len(row)) for row in listed(sequences)]
    real = [[place < len(row) for place in range(width)] for row in sequences]
    return torch.tensor(rows), torch.tensor(real)


def to_the_shortest(sequences, pad_id, max_len=None):
    return oracle.pad_batch(sequences, pad_id, max(min(len(row) for row in sequences), 1))


def at_most(sequences, pad_id, max_len=None):
    return oracle.pad_batch(sequences, pad_id, None if max_len is None else max_len - 1 or 1)


ROWS = [[5, 3, 8, 3], [7, 4], [9, 6, 2, 1, 3, 3], [3]]

register(
    expected=oracle.pad_batch,
    phase=PHASE,
    section="1.6",
    hint="the longest length (at most max_len) gives the width; real places come from lengths, not from values.",
    bans=(),
    grad=False,
    cases=(
        case("three sentences", dict(sequences=[[5, 9, 8], [7], [4, 6, 2, 1, 8]], pad_id=11)),
        case("a real token equals pad_id", dict(sequences=ROWS, pad_id=3)),
        case("max_len below the longest", dict(sequences=ROWS, pad_id=11, max_len=3)),
        case("max_len above the longest", dict(sequences=ROWS, pad_id=3, max_len=9)),
        case("max_len as long as the longest", dict(sequences=ROWS, pad_id=3, max_len=6)),
        case("max_len 1", dict(sequences=ROWS, pad_id=3, max_len=1)),
        case("tensors", dict(sequences=tensors(*ROWS), pad_id=11, max_len=5)),
        case("all of one length", dict(sequences=[[4, 5], [6, 3], [1, 2]], pad_id=3)),
        case("one sentence", dict(sequences=[[7, 3, 9]], pad_id=3)),
        case("pad_id 0", dict(sequences=[[4, 0, 5], [0], [6, 1]], pad_id=0)),
        case("large ids", dict(sequences=[[2**40 + 1, 7], [2**31 + 1]], pad_id=2**33 + 3)),
        case("an empty sentence", dict(sequences=[[7, 3, 9], [], [8]], pad_id=3)),
        case("an empty sentence first, tensors", dict(sequences=tensors([], [3, 5], [4]), pad_id=11)),
        refusal("no sentences", dict(sequences=[], pad_id=3)),
        refusal("max_len 0", dict(sequences=ROWS, pad_id=3, max_len=0)),
        refusal("max_len -2", dict(sequences=ROWS, pad_id=3, max_len=-2)),
    ),
    mistakes={
        "a real token that equals pad_id was hidden": lambda sequences, pad_id, max_len=None: (
            tokens := oracle.pad_batch(sequences, pad_id, max_len)[0],
            tokens != pad_id,
        ),
        "True must mean real token": arrived(lambda tokens, mask: (tokens, ~mask)),
        "truncation dropped the beginning": last_kept,
        "padded further than the longest sequence": always_full,
        "padding belongs on the right": left_padded,
        "real places are those below the length, not up to it": up_to_the_length,
        "max_len 0 must be refused": Spotted(
            rules.none_allowed,
            lambda sequences, pad_id, max_len=None: oracle.pad_batch(sequences, pad_id, max_len or None),
        ),
        "the mask must know what was cut": uncut_mask,
        "dtype": Spotted(rules.not_int_and_bool, arrived(lambda tokens, mask: (tokens.float(), mask.float()))),
        "pad_id was ignored": Replays(
            lambda sequences, pad_id, max_len=None: oracle.pad_batch(sequences, 0, max_len),
            lambda sequences, pad_id, max_len=None: oracle.pad_batch(sequences, -1, max_len),
        ),
        "max_len was ignored": lambda sequences, pad_id, max_len=None: oracle.pad_batch(sequences, pad_id),
        "the longest sequence sets the width": to_the_shortest,
        "max_len tokens are kept": at_most,
        "return tokens first, then pad_mask": arrived(lambda tokens, mask: (mask, tokens)),
    },
)
