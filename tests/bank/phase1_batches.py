"""pad_batch: wrong solutions and unusual right ones."""

from itertools import zip_longest

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from tests.bank import right, wrong


def refuse(sequences, max_len):
    if len(sequences) == 0:
        raise ValueError("no sequences")
    if max_len is not None and max_len < 1:
        raise ValueError("max_len is too small")


def cut(sequences, max_len):
    refuse(sequences, max_len)
    return [[int(n) for n in row][:max_len] for row in sequences]


def rectangle(rows, pad_id, width=None):
    width = max(map(len, rows)) if width is None else width
    return torch.tensor([row + [pad_id] * (width - len(row)) for row in rows])


def real_places(rows, width=None):
    width = max(map(len, rows)) if width is None else width
    return torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in rows])


# ---------------------------------------------------------------- wrong


@wrong("pad_batch", says="a real token that equals pad_id was hidden")
def mask_from_values(sequences, pad_id, max_len=None):
    tokens = rectangle(cut(sequences, max_len), pad_id)
    return tokens, tokens != pad_id


@wrong("pad_batch", says="True must mean real token")
def mask_of_padding(sequences, pad_id, max_len=None):
    rows = cut(sequences, max_len)
    return rectangle(rows, pad_id), ~real_places(rows)


@wrong("pad_batch", says="truncation dropped the beginning")
def keeps_the_end(sequences, pad_id, max_len=None):
    refuse(sequences, max_len)
    rows = [[int(n) for n in row][-(max_len or 0) :] for row in sequences]
    return rectangle(rows, pad_id), real_places(rows)


@wrong("pad_batch", says="padded further than the longest sequence")
def always_max_len(sequences, pad_id, max_len=None):
    rows = cut(sequences, max_len)
    return rectangle(rows, pad_id, max_len), real_places(rows, max_len)


@wrong("pad_batch", says="padding belongs on the right")
def padded_left(sequences, pad_id, max_len=None):
    rows = cut(sequences, max_len)
    width = max(map(len, rows))
    tokens = [[pad_id] * (width - len(row)) + row for row in rows]
    return torch.tensor(tokens), real_places(rows).flip(-1)


@wrong("pad_batch", says="dtype")
def float_mask(sequences, pad_id, max_len=None):
    rows = cut(sequences, max_len)
    return rectangle(rows, pad_id), real_places(rows).float()


@wrong("pad_batch", says="dtype")
def small_tokens(sequences, pad_id, max_len=None):
    rows = cut(sequences, max_len)
    return rectangle(rows, pad_id).to(torch.int32), real_places(rows)


@wrong("pad_batch", says="dtype")
def integer_mask(sequences, pad_id, max_len=None):
    rows = cut(sequences, max_len)
    return rectangle(rows, pad_id), real_places(rows).long()


@wrong("pad_batch")
def float_tokens(sequences, pad_id, max_len=None):
    rows = [torch.tensor(row, dtype=torch.float32) for row in cut(sequences, max_len)]
    return pad_sequence(rows, True, pad_id).long(), real_places(cut(sequences, max_len))


@wrong("pad_batch", says="pad_id was ignored")
def padded_with_zero(sequences, pad_id, max_len=None):
    rows = cut(sequences, max_len)
    return rectangle(rows, 0), real_places(rows)


@wrong("pad_batch", says="max_len was ignored")
def no_truncation(sequences, pad_id, max_len=None):
    rows = cut(sequences, None)
    return rectangle(rows, pad_id), real_places(rows)


@wrong("pad_batch", says="return tokens first, then pad_mask")
def mask_first(sequences, pad_id, max_len=None):
    rows = cut(sequences, max_len)
    return real_places(rows), rectangle(rows, pad_id)


@wrong("pad_batch")
def tokens_only(sequences, pad_id, max_len=None):
    return rectangle(cut(sequences, max_len), pad_id)


@wrong("pad_batch")
def lengths_instead_of_a_mask(sequences, pad_id, max_len=None):
    rows = cut(sequences, max_len)
    return rectangle(rows, pad_id), torch.tensor([len(row) for row in rows])


@wrong("pad_batch")
def callers_lists_grow(sequences, pad_id, max_len=None):
    refuse(sequences, max_len)
    width = min(max(map(len, sequences)), max_len or 10**9)
    mask = real_places([list(row)[:width] for row in sequences])
    if isinstance(sequences[0], list):
        for row in sequences:
            row.extend([pad_id] * (width - len(row)))
        return torch.tensor([row[:width] for row in sequences]), mask
    return rectangle([[int(n) for n in row][:width] for row in sequences], pad_id), mask


@wrong("pad_batch")
def empty_rows_left_out(sequences, pad_id, max_len=None):
    rows = [row for row in cut(sequences, max_len) if row]
    return rectangle(rows, pad_id), real_places(rows)


@wrong("pad_batch")
def empty_rows_hold_one_token(sequences, pad_id, max_len=None):
    rows = [row or [pad_id] for row in cut(sequences, max_len)]
    return rectangle(rows, pad_id), real_places(rows)


@wrong("pad_batch")
def zero_means_none(sequences, pad_id, max_len=None):
    if not len(sequences) or (max_len or 1) < 1:
        raise ValueError("bad arguments")
    rows = [[int(n) for n in row][: max_len or None] for row in sequences]
    return rectangle(rows, pad_id), real_places(rows)


@wrong("pad_batch")
def nothing_refused(sequences, pad_id, max_len=None):
    rows = [[int(n) for n in row][:max_len] for row in sequences]
    width = max(map(len, rows), default=0)
    return rectangle(rows, pad_id, width), real_places(rows, width)


# ---------------------------------------------------------------- right


@right("pad_batch", why="fills a torch.full")
def filled(sequences, pad_id, max_len=None):
    refuse(sequences, max_len)
    width = max(len(row) for row in sequences)
    width = width if max_len is None else min(width, max_len)
    tokens = torch.full((len(sequences), width), pad_id)
    mask = torch.zeros(len(sequences), width, dtype=torch.bool)
    for number, row in enumerate(sequences):
        kept = torch.as_tensor(row, dtype=torch.long)[:width]
        tokens[number, : len(kept)] = kept
        mask[number, : len(kept)] = True
    return tokens, mask


@right("pad_batch", why="pad_sequence, and a comparison of lengths")
def with_pad_sequence(sequences, pad_id, max_len=None):
    refuse(sequences, max_len)
    rows = [torch.as_tensor(row, dtype=torch.long)[:max_len] for row in sequences]
    tokens = pad_sequence(rows, batch_first=True, padding_value=pad_id)
    lengths = torch.tensor([len(row) for row in rows])
    return tokens, torch.arange(tokens.shape[1]) < lengths[:, None]


@right("pad_batch", why="columns by zip_longest, with a value that is no token")
def by_columns(sequences, pad_id, max_len=None):
    rows = cut(sequences, max_len)
    table = list(zip(*zip_longest(*rows), strict=True))
    tokens = torch.tensor([[pad_id if n is None else n for n in row] for row in table], dtype=torch.int64)
    return tokens, torch.tensor([[n is not None for n in row] for row in table])


@right("pad_batch", why="NumPy inside")
def with_numpy(sequences, pad_id, max_len=None):
    rows = cut(sequences, max_len)
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    tokens = np.full(mask.shape, pad_id, dtype=np.int64)
    tokens[mask] = np.concatenate([np.array(row, dtype=np.int64) for row in rows])
    return [torch.from_numpy(tokens), torch.from_numpy(mask)]


@right("pad_batch", why="lists throughout")
def with_lists(sequences, pad_id, max_len=None):
    rows = cut(sequences, max_len)
    return rectangle(rows, pad_id), real_places(rows)
