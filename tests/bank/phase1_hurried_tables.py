"""Phase 1, tables: what hurried students hand in, and what experts do differently. Written from the catalogue alone."""

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from tests.bank import right, wrong

# ---------------------------------------------------------------- pad_batch


def refuse(sequences, max_len):
    if not len(sequences):
        raise ValueError("no sequences")
    if max_len is not None and max_len < 1:
        raise ValueError("max_len must be 1 or more")


def parts(sequences, pad_id, max_len):
    """tokens, lengths: right."""
    refuse(sequences, max_len)
    rows = [torch.as_tensor(row, dtype=torch.long)[:max_len] for row in sequences]
    return pad_sequence(rows, batch_first=True, padding_value=pad_id), torch.tensor([len(row) for row in rows])


@wrong("pad_batch", says="real places are those below the length, not up to it")
def up_to(sequences, pad_id, max_len=None):
    tokens, lengths = parts(sequences, pad_id, max_len)
    return tokens, torch.arange(tokens.shape[1]) <= lengths[:, None]


@wrong("pad_batch", says="max_len 0 must be refused")
def zero_is_nothing(sequences, pad_id, max_len=None):
    if max_len and max_len < 1:
        raise ValueError("max_len")
    tokens, lengths = parts(sequences, pad_id, max_len or None)
    return tokens, torch.arange(tokens.shape[1]) < lengths[:, None]


@wrong("pad_batch", says="truncation dropped the beginning")
def last_tokens(sequences, pad_id, max_len=None):
    refuse(sequences, max_len)
    return parts([row[-max_len:] if max_len else row for row in sequences], pad_id, max_len)[0], mask_of(
        sequences, max_len
    )


def mask_of(sequences, max_len):
    lengths = torch.tensor([len(row) if max_len is None else min(len(row), max_len) for row in sequences])
    return torch.arange(int(lengths.max())) < lengths[:, None]


@wrong("pad_batch", says="padded further than the longest sequence")
def width_is_max_len(sequences, pad_id, max_len=None):
    tokens, lengths = parts(sequences, pad_id, max_len)
    width = max_len or tokens.shape[1]
    tokens = torch.nn.functional.pad(tokens, (0, width - tokens.shape[1]), value=pad_id)
    return tokens, torch.arange(width) < lengths[:, None]


@wrong("pad_batch", says="the longest sequence sets the width")
def width_of_the_first(sequences, pad_id, max_len=None):
    tokens, lengths = parts(sequences, pad_id, max_len)
    width = max(int(lengths.min()), 1)
    return tokens[:, :width].contiguous(), torch.arange(width) < lengths[:, None]


@wrong("pad_batch", says="dtype")
def mask_in_int64(sequences, pad_id, max_len=None):
    tokens, lengths = parts(sequences, pad_id, max_len)
    return tokens, (torch.arange(tokens.shape[1]) < lengths[:, None]).long()


@right("pad_batch", "the mask by a cumulative sum of ones")
def by_cumsum(sequences, pad_id, max_len=None):
    tokens, lengths = parts(sequences, pad_id, max_len)
    return tokens, torch.ones_like(tokens).cumsum(1).le(lengths.unsqueeze(1))


@right("pad_batch", "a mask of ones, padded like the tokens")
def padded_twice(sequences, pad_id, max_len=None):
    refuse(sequences, max_len)
    rows = [[int(n) for n in row][slice(max_len)] for row in sequences]
    width = max(map(len, rows))
    tokens = torch.tensor([row + [pad_id] * (width - len(row)) for row in rows], dtype=torch.int64)
    return tokens.view(len(rows), width), torch.tensor(
        [[True] * len(row) + [False] * (width - len(row)) for row in rows], dtype=torch.bool
    ).view(len(rows), width)


@right("pad_batch", "a flat scatter with a boolean mask")
def by_mask(sequences, pad_id, max_len=None):
    refuse(sequences, max_len)
    real = mask_of(sequences, max_len)
    tokens = torch.full(real.shape, pad_id, dtype=torch.int64)
    flat = [int(n) for row in sequences for n in (row if max_len is None else row[:max_len])]
    tokens[real] = torch.tensor(flat, dtype=torch.int64)
    return tokens, real


# ---------------------------------------------------------------- embed


def bad(token_ids, table):
    ids = np.asarray(token_ids)
    return ids.size and (ids.min() < 0 or ids.max() >= len(table))


def look_up(token_ids, table):
    if bad(token_ids, table):
        raise ValueError("token id outside the table")
    return table[token_ids]


@wrong("embed", says="NumPy counts −1 from the end: refuse it")
def upper_only(token_ids, table):
    if np.max(token_ids) >= len(table):
        raise ValueError("token id too large")
    return table[token_ids]


@wrong("embed", says="no scaling here")
def as_in_the_paper(token_ids, table):
    return look_up(token_ids, table) * np.sqrt(table.shape[-1]).astype(table.dtype)


@wrong("embed", says="the dtype follows the table")
def one_hot_by_eye(token_ids, table):
    look_up(token_ids, table)
    return np.eye(len(table))[token_ids] @ table


@wrong("embed", says="shape")
def always_two_axes(token_ids, table):
    return look_up(np.ravel(token_ids), table)


@wrong("embed", says="embeddings are rows of the table")
def taken_along_features(token_ids, table):
    look_up(token_ids, table)
    return np.take(table, token_ids, axis=1, mode="wrap")


@wrong("embed")
def index_error(token_ids, table):
    if np.min(token_ids) < 0:
        raise ValueError("token id below 0")
    return table[token_ids]


@right("embed", "np.take_along_axis on a repeated table")
def along_axis(token_ids, table):
    if bad(token_ids, table):
        raise ValueError("no such token id")
    flat = np.repeat(np.ravel(token_ids)[:, None], table.shape[1], 1)
    return np.take_along_axis(table, flat, 0).reshape(*np.shape(token_ids), table.shape[1])


@right("embed", "numpy.isin for the refusal")
def by_isin(token_ids, table):
    if not np.isin(token_ids, np.arange(len(table))).all():
        raise ValueError("token id")
    return np.array(table[np.asarray(token_ids)], copy=True)


@right("embed", "an empty array filled through out=")
def into_empty(token_ids, table):
    if (np.asarray(token_ids) < 0).any() or (np.asarray(token_ids) > len(table) - 1).any():
        raise ValueError("token id")
    out = np.empty((*np.shape(token_ids), table.shape[1]), table.dtype)
    np.take(table, token_ids, axis=0, out=out)
    return out


# ---------------------------------------------------------------- embed_backward


def zeros(grad_out, vocab_size):
    return np.zeros((vocab_size, grad_out.shape[-1]), dtype=grad_out.dtype)


@wrong("embed_backward", says="fancy indexing keeps only one of the repeats")
def plus_equals(token_ids, grad_out, vocab_size):
    grad = zeros(grad_out, vocab_size)
    grad[token_ids] = grad[token_ids] + grad_out
    return grad


@wrong("embed_backward", says="flatten all axes before the ids first: a sentence may repeat an id")
def loop_over_the_first_axis(token_ids, grad_out, vocab_size):
    grad = zeros(grad_out, vocab_size)
    for n in range(len(np.atleast_1d(token_ids))):
        grad[np.atleast_1d(token_ids)[n]] += np.atleast_2d(grad_out)[n]
    return grad


@wrong("embed_backward", says="the dtype follows the gradient")
def zeros_of_numpy(token_ids, grad_out, vocab_size):
    grad = np.zeros((vocab_size, grad_out.shape[-1]))
    np.add.at(grad, token_ids, grad_out)
    return grad


@wrong("embed_backward", says="the table has vocab_size rows")
def as_large_as_needed(token_ids, grad_out, vocab_size):
    return loop_grad(token_ids, grad_out, int(np.max(token_ids)) + 1)


@wrong("embed_backward", says="transposed")
def features_first(token_ids, grad_out, vocab_size):
    return np.ascontiguousarray(loop_grad(token_ids, grad_out, vocab_size).T)


@wrong("embed_backward", says="repeats add up, they are not averaged")
def mean_of_places(token_ids, grad_out, vocab_size):
    times = (np.ravel(token_ids)[:, None] == np.arange(vocab_size)).sum(0)
    return loop_grad(token_ids, grad_out, vocab_size) / np.where(times, times, 1)[:, None].astype(grad_out.dtype)


def loop_grad(token_ids, grad_out, vocab_size):
    grad = zeros(grad_out, vocab_size)
    for n, wish in zip(np.ravel(token_ids), grad_out.reshape(-1, grad_out.shape[-1]), strict=True):
        grad[n] += wish
    return grad


@right("embed_backward", "a loop over the vocabulary with a mask")
def word_by_word(token_ids, grad_out, vocab_size):
    rows = [grad_out[np.asarray(token_ids) == n].sum(0) if np.ndim(token_ids) else 0 for n in range(vocab_size)]
    if not np.ndim(token_ids):
        rows = [grad_out if n == token_ids else np.zeros_like(grad_out) for n in range(vocab_size)]
    return np.stack(rows).astype(grad_out.dtype)


@right("embed_backward", "einsum of a comparison with the gradient")
def by_einsum(token_ids, grad_out, vocab_size):
    hot = (np.ravel(token_ids)[:, None] == np.arange(vocab_size)).astype(grad_out.dtype)
    return np.einsum("nv,nm->vm", hot, grad_out.reshape(-1, grad_out.shape[-1]))


@right("embed_backward", "np.nditer over places")
def by_ndindex(token_ids, grad_out, vocab_size):
    grad, ids = zeros(grad_out, vocab_size), np.asarray(token_ids)
    for place in np.ndindex(ids.shape):
        grad[ids[place]] += grad_out[place]
    return grad


# ---------------------------------------------------------------- rnn_forward


def steps(x, width, step):
    h, out = np.zeros((len(x), width), dtype=x.dtype), []
    for t in range(x.shape[1]):
        h = step(x[:, t], h)
        out.append(h)
    return np.stack(out, axis=1)


@wrong("rnn_forward", says="time is axis 1, the states go there too")
def stacked_first(x, w_x, w_h, b):
    return np.ascontiguousarray(np.swapaxes(steps(x, len(b), lambda n, h: np.tanh(n @ w_x + h @ w_h + b)), 0, 1))


@wrong("rnn_forward", says="the bias is missing")
def forgot_b(x, w_x, w_h, b):
    return steps(x, len(b), lambda n, h: np.tanh(n @ w_x + h @ w_h))


@wrong("rnn_forward", says="the dtype follows the input")
def default_zeros(x, w_x, w_h, b):
    h, out = np.zeros((len(x), len(b))), []
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] @ w_x + h @ w_h + b)
        out.append(h)
    return np.stack(out, 1)


@wrong("rnn_forward", says="record h after the update")
def recorded_before(x, w_x, w_h, b):
    h, out = np.zeros((len(x), len(b)), dtype=x.dtype), []
    for t in range(x.shape[1]):
        out.append(h)
        h = np.tanh(x[:, t] @ w_x + h @ w_h + b)
    return np.stack(out, 1)


@wrong("rnn_forward", says="keep a copy of each state: they are all the last one")
def one_array_written_over(x, w_x, w_h, b):
    h, out = np.zeros((len(x), len(b)), dtype=x.dtype), []
    for t in range(x.shape[1]):
        h[:] = np.tanh(x[:, t] @ w_x + h @ w_h + b)
        out.append(h)
    return np.stack(out, 1)


@wrong("rnn_forward", says="each step renews the state, it does not add to it")
def adds_up(x, w_x, w_h, b):
    return steps(x, len(b), lambda n, h: h + np.tanh(n @ w_x + h @ w_h + b))


@right("rnn_forward", "states written into an empty array")
def into_an_array(x, w_x, w_h, b):
    out = np.empty((*x.shape[:2], len(b)), dtype=x.dtype)
    for t in range(x.shape[1]):
        before = out[:, t - 1] if t else np.zeros_like(out[:, 0])
        out[:, t] = np.tanh(x[:, t] @ w_x + before @ w_h + b)
    return out


@right("rnn_forward", "functools.reduce over the sentence")
def by_reduce(x, w_x, w_h, b):
    from functools import reduce

    states = reduce(
        lambda done, now: [*done, np.tanh(now @ w_x + (done[-1] @ w_h if done else 0) + b)], x.swapaxes(0, 1), []
    )
    return np.array(states).transpose(1, 0, 2).copy()


@right("rnn_forward", "tanh by exponentials")
def by_exponentials(x, w_x, w_h, b):
    def tanh(z):
        return (1 - np.exp(-2 * z)) / (1 + np.exp(-2 * z))

    return steps(x, len(b), lambda n, h: tanh(n @ w_x + h @ w_h + b))
