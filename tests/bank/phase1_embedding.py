"""embed and embed_backward (NumPy): wrong solutions and unusual right ones."""

import numpy as np

from tests.bank import right, wrong


def refuse(token_ids, table):
    if np.any(np.asarray(token_ids) < 0) or np.any(np.asarray(token_ids) >= len(table)):
        raise ValueError("a token id is outside the table")


# ---------------------------------------------------------------- embed, wrong


@wrong("embed", says="embeddings are rows of the table")
def columns(token_ids, table):
    refuse(token_ids, table)
    return table[:, token_ids]


@wrong("embed", says="embeddings are rows of the table")
def rows_of_the_transpose(token_ids, table):
    refuse(token_ids, table)
    return np.array(table.T[token_ids])


@wrong("embed", says="NumPy counts −1 from the end: refuse it")
def no_lower_limit(token_ids, table):
    if np.max(token_ids) >= len(table):
        raise ValueError("token id")
    return np.array(table[token_ids])


@wrong("embed", says="NumPy counts −1 from the end: refuse it")
def no_limits(token_ids, table):
    return np.array(table[token_ids])


@wrong("embed", says="no scaling here")
def scaled(token_ids, table):
    refuse(token_ids, table)
    return np.take(table, token_ids, axis=0) * np.asarray(table.shape[1] ** 0.5, dtype=table.dtype)


@wrong("embed", says="shape")
def one_axis_more(token_ids, table):
    refuse(token_ids, table)
    return np.take(table, token_ids, axis=0)[np.newaxis]


@wrong("embed", says="shape")
def flattened(token_ids, table):
    refuse(token_ids, table)
    return table[np.ravel(token_ids)]


@wrong("embed", says="an id outside the table must be refused, not bent into it")
def clipped(token_ids, table):
    return np.take(table, token_ids, axis=0, mode="clip")


@wrong("embed", says="an id outside the table must be refused, not bent into it")
def wrapped(token_ids, table):
    return np.take(table, token_ids, axis=0, mode="wrap")


@wrong("embed")
def no_upper_limit(token_ids, table):
    if np.min(token_ids) < 0:
        raise ValueError("token id")
    return np.array(table[token_ids])


@wrong("embed")
def one_id_too_many(token_ids, table):
    if np.min(token_ids) < 0 or np.max(token_ids) > len(table):
        raise ValueError("token id")
    return np.take(table, token_ids, axis=0)


@wrong("embed")
def a_view_where_ids_are_in_order(token_ids, table):
    refuse(token_ids, table)
    flat = np.ravel(token_ids)
    if flat.size > 1 and np.array_equal(flat, np.arange(flat[0], flat[0] + flat.size)):
        return table[flat[0] : flat[0] + flat.size].reshape(*np.shape(token_ids), -1)
    return table[flat].reshape(*np.shape(token_ids), table.shape[1])


@wrong("embed")
def always_wide(token_ids, table):
    refuse(token_ids, table)
    return table.astype(np.float64)[token_ids]


@wrong("embed")
def one_hot_in_float64(token_ids, table):
    refuse(token_ids, table)
    return np.eye(len(table))[token_ids] @ table


@wrong("embed")
def only_one_axis(token_ids, table):
    refuse(token_ids, table)
    return np.stack([table[n] for n in token_ids])[: len(token_ids)].reshape(len(token_ids), -1)


@wrong("embed")
def index_errors(token_ids, table):
    if np.any(np.asarray(token_ids) < 0):
        raise IndexError("token id below 0")
    return np.array(table[token_ids])


# ---------------------------------------------------------------- embed, right


@right("embed", why="fancy indexing, which copies, even one id alone")
def indexed(token_ids, table):
    refuse(token_ids, table)
    return table[token_ids]


@right("embed", why="np.take")
def taken(token_ids, table):
    if np.size(token_ids) and not 0 <= np.min(token_ids) <= np.max(token_ids) < table.shape[0]:
        raise ValueError("token id out of range")
    return np.take(table, token_ids, axis=0)


@right("embed", why="a product with one-hot rows, in the table's dtype")
def one_hot(token_ids, table):
    refuse(token_ids, table)
    return np.eye(len(table), dtype=table.dtype)[token_ids] @ table


@right("embed", why="a loop over all places")
def loop(token_ids, table):
    ids = np.asarray(token_ids)
    out = np.empty((*ids.shape, table.shape[1]), dtype=table.dtype)
    for place in np.ndindex(ids.shape):
        if not 0 <= ids[place] < len(table):
            raise ValueError(f"{ids[place]} is no token id")
        out[place] = table[ids[place]]
    return out


@right("embed", why="NumPy's own range check, turned into ValueError")
def raising(token_ids, table):
    try:
        return table.take(np.asarray(token_ids).astype(np.uint64).astype(np.int64), axis=0, mode="raise") + _sign(
            token_ids
        )
    except IndexError as error:
        raise ValueError(f"token id: {error}") from None


def _sign(token_ids):
    if np.signbit(np.asarray(token_ids, dtype=float)).any():
        raise ValueError("token id below 0")
    return np.int8(0)


# ---------------------------------------------------------------- embed_backward, wrong


def blank(grad_out, vocab_size):
    return np.zeros((vocab_size, grad_out.shape[-1]), dtype=grad_out.dtype)


@wrong("embed_backward", says="fancy indexing keeps only one of the repeats")
def fancy_sum(token_ids, grad_out, vocab_size):
    grad = blank(grad_out, vocab_size)
    grad[token_ids] += grad_out
    return grad


@wrong("embed_backward", says="fancy indexing keeps only one of the repeats")
def assigned(token_ids, grad_out, vocab_size):
    grad = blank(grad_out, vocab_size)
    for place in np.ndindex(np.shape(token_ids)):
        grad[token_ids[place]] = grad_out[place]
    return grad


@wrong("embed_backward", says="the table has vocab_size rows")
def rows_up_to_the_largest(token_ids, grad_out, vocab_size):
    grad = blank(grad_out, np.max(token_ids) + 1)
    np.add.at(grad, token_ids, grad_out)
    return grad


@wrong("embed_backward", says="transposed")
def columns_per_token(token_ids, grad_out, vocab_size):
    grad = blank(grad_out, vocab_size)
    np.add.at(grad, token_ids, grad_out)
    return grad.T.copy()


@wrong("embed_backward", says="shape of a histogram")
def counts(token_ids, grad_out, vocab_size):
    return np.bincount(np.ravel(token_ids), minlength=vocab_size).astype(grad_out.dtype)


@wrong("embed_backward", says="repeats add up, they are not averaged")
def means(token_ids, grad_out, vocab_size):
    flat, rows = np.ravel(token_ids), grad_out.reshape(-1, grad_out.shape[-1])
    grad = blank(grad_out, vocab_size)
    for n in set(flat.tolist()):
        grad[n] = rows[flat == n].mean(0)
    return grad


@wrong("embed_backward")
def first_repeat(token_ids, grad_out, vocab_size):
    grad = blank(grad_out, vocab_size)
    found, places = np.unique(np.ravel(token_ids), return_index=True)
    grad[found] = grad_out.reshape(-1, grad_out.shape[-1])[places]
    return grad


@wrong("embed_backward")
def divided_by_places(token_ids, grad_out, vocab_size):
    grad = blank(grad_out, vocab_size)
    np.add.at(grad, token_ids, grad_out / np.asarray(np.size(token_ids), grad_out.dtype))
    return grad


@wrong("embed_backward")
def wide_gradient(token_ids, grad_out, vocab_size):
    grad = np.zeros((vocab_size, grad_out.shape[-1]))
    np.add.at(grad, token_ids, grad_out)
    return grad


@wrong("embed_backward")
def one_axis_only(token_ids, grad_out, vocab_size):
    grad = blank(grad_out, vocab_size)
    for n, row in zip(token_ids, grad_out, strict=True):
        grad[n] += row.sum(axis=tuple(range(row.ndim - 1)))
    return grad


@wrong("embed_backward")
def repeats_of_one_sentence(token_ids, grad_out, vocab_size):
    if np.ndim(token_ids) < 2:
        return loop_backward(token_ids, grad_out, vocab_size)
    return sum(fancy_sum(ids, g, vocab_size) for ids, g in zip(token_ids, grad_out, strict=True))


@wrong("embed_backward")
def gradient_overwritten(token_ids, grad_out, vocab_size):
    grad = loop_backward(token_ids, grad_out, vocab_size)
    grad_out *= 0
    return grad


# ---------------------------------------------------------------- embed_backward, right


@right("embed_backward", why="np.add.at")
def added_at(token_ids, grad_out, vocab_size):
    grad = blank(grad_out, vocab_size)
    np.add.at(grad, token_ids, grad_out)
    return grad


@right("embed_backward", why="one-hot rows, transposed, times the gradient")
def one_hot_transposed(token_ids, grad_out, vocab_size):
    hot = np.eye(vocab_size, dtype=grad_out.dtype)[np.ravel(token_ids)]
    return hot.T @ grad_out.reshape(-1, grad_out.shape[-1])


@right("embed_backward", why="a weighted bincount per column")
def bincounts(token_ids, grad_out, vocab_size):
    flat, rows = np.ravel(token_ids), grad_out.reshape(-1, grad_out.shape[-1])
    sums = [np.bincount(flat, weights=column, minlength=vocab_size) for column in rows.T]
    return np.stack(sums, -1).astype(grad_out.dtype)


@right("embed_backward", why="a loop over all places")
def loop_backward(token_ids, grad_out, vocab_size):
    grad = blank(grad_out, vocab_size)
    for place in np.ndindex(np.shape(token_ids)):
        grad[token_ids[place]] += grad_out[place]
    return grad


@right("embed_backward", why="sorted by id, then summed run by run")
def sorted_runs(token_ids, grad_out, vocab_size):
    flat = np.ravel(token_ids)
    order = np.argsort(flat, kind="stable")
    found, starts = np.unique(flat[order], return_index=True)
    grad = blank(grad_out, vocab_size)
    grad[found] = np.add.reduceat(grad_out.reshape(-1, grad_out.shape[-1])[order], starts, axis=0)
    return grad
