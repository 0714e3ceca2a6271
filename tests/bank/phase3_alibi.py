"""alibi_bias: wrong solutions and unusual right ones."""

import math

import torch

from tests.bank import right, wrong


def slopes(n_heads):
    lower = 2 ** int(math.log2(n_heads))
    found = [2 ** (-8 * h / lower) for h in range(1, lower + 1)]
    return found + [2 ** (-4 * h / lower) for h in range(1, 2 * lower + 1, 2)][: n_heads - lower]


def distance(q_len, kv_len, start=None):
    start = kv_len - q_len if start is None else start
    return torch.arange(start, start + q_len)[:, None] - torch.arange(kv_len)[None, :]


def table(steep, far):
    return -torch.tensor(steep)[:, None, None] * far


@wrong("alibi_bias", says="far keys must lose: the sign")
def far_keys_win(n_heads, q_len, kv_len):
    return -table(slopes(n_heads), distance(q_len, kv_len))


@wrong("alibi_bias", says="slopes were reversed: head 0 is the steepest")
def flattest_first(n_heads, q_len, kv_len):
    return table(slopes(n_heads)[::-1], distance(q_len, kv_len))


@wrong("alibi_bias", says="align to the end")
def from_the_start(n_heads, q_len, kv_len):
    return table(slopes(n_heads), distance(q_len, kv_len, start=0))


@wrong("alibi_bias", says="six is no power of 2")
def one_formula_for_all(n_heads, q_len, kv_len):
    return table([2 ** (-8 * h / n_heads) for h in range(1, n_heads + 1)], distance(q_len, kv_len))


@wrong("alibi_bias", says="h starts at 1")
def counted_from_zero(n_heads, q_len, kv_len):
    if n_heads & (n_heads - 1):
        return table(slopes(n_heads), distance(q_len, kv_len))
    return table([2 ** (-8 * h / n_heads) for h in range(n_heads)], distance(q_len, kv_len))


@wrong("alibi_bias", says="the finer slopes come after the others, unsorted")
def in_order_of_size(n_heads, q_len, kv_len):
    return table(sorted(slopes(n_heads), reverse=True), distance(q_len, kv_len))


@wrong("alibi_bias")
def base_ten(n_heads, q_len, kv_len):
    return table([10 ** (-h) for h in range(1, n_heads + 1)], distance(q_len, kv_len))


@wrong("alibi_bias")
def one_slope(n_heads, q_len, kv_len):
    return table([0.25] * n_heads, distance(q_len, kv_len))


@wrong("alibi_bias")
def always_double(n_heads, q_len, kv_len):
    return table(slopes(n_heads), distance(q_len, kv_len)).double()


@wrong("alibi_bias")
def heads_last(n_heads, q_len, kv_len):
    return table(slopes(n_heads), distance(q_len, kv_len)).movedim(0, -1)


@wrong("alibi_bias")
def squared(n_heads, q_len, kv_len):
    return table(slopes(n_heads), distance(q_len, kv_len) ** 2)


@right("alibi_bias", why="loops")
def by_loops(n_heads, q_len, kv_len):
    out = torch.zeros(n_heads, q_len, kv_len)
    for h, slope in enumerate(slopes(n_heads)):
        for i in range(q_len):
            for j in range(kv_len):
                out[h, i, j] = -slope * (i + kv_len - q_len - j)
    return out


@right("alibi_bias", why="future keys at -inf")
def future_hidden(n_heads, q_len, kv_len):
    far = distance(q_len, kv_len)
    return table(slopes(n_heads), far).masked_fill(far < 0, float("-inf"))


@right("alibi_bias", why="absolute distances, so the future is filled differently")
def both_ways(n_heads, q_len, kv_len):
    return table(slopes(n_heads), distance(q_len, kv_len).abs())


@right("alibi_bias", why="powers by logspace, slopes recursively as in the paper's own code")
def recursive(n_heads, q_len, kv_len):
    def steep(n):
        if n & (n - 1) == 0:
            return torch.logspace(-8 / n, -8, n, base=2.0)
        lower = 1 << (n.bit_length() - 1)
        return torch.cat([steep(lower), steep(2 * lower)[0::2][: n - lower]])

    far = distance(q_len, kv_len).to(torch.get_default_dtype())
    return torch.einsum("h,qk->hqk", steep(n_heads), -far)
