"""average_gradients: wrong solutions and unusual right ones."""

import torch

from tests.bank import right, wrong


def refuse(gradients, counts):
    if len(gradients) != len(counts) or sum(counts) == 0 or len(set(map(len, gradients))) != 1:
        raise ValueError("gradients and counts do not fit")


# ---------------------------------------------------------------- wrong


@wrong("average_gradients", says="ranks do not weigh alike: count their tokens")
def plain_mean(gradients, counts):
    refuse(gradients, counts)
    return [
        None if all(part is None for part in column) else sum(part for part in column if part is not None) / len(column)
        for column in zip(*gradients, strict=True)
    ]


@wrong("average_gradients", says="a mean, not a sum")
def all_reduce_sum(gradients, counts):
    refuse(gradients, counts)
    found = []
    for column in zip(*gradients, strict=True):
        there = [part for part, count in zip(column, counts, strict=True) if part is not None and count]
        found.append(torch.stack(there).sum(0) if there else None)
    return found


@wrong("average_gradients", says="the shares sum to 1: no second division")
def divided_twice(gradients, counts):
    return [None if mean is None else mean / len(counts) for mean in weighted(gradients, counts)]


@wrong("average_gradients", says="a rank without tokens is left out: 0 · nan is nan")
def nan_comes_through(gradients, counts):
    refuse(gradients, counts)
    found = []
    for column in zip(*gradients, strict=True):
        there = [part * (count / sum(counts)) for part, count in zip(column, counts, strict=True) if part is not None]
        found.append(torch.stack(there).sum(0) if there else None)
    return found


@wrong("average_gradients", says="half precision ends at 65504: weigh first, then add")
def multiplied_first(gradients, counts):
    refuse(gradients, counts)
    found = []
    for column in zip(*gradients, strict=True):
        there = [part * count for part, count in zip(column, counts, strict=True) if part is not None and count]
        found.append(sum(there) / sum(counts) if there else None)
    return found


@wrong("average_gradients", says="tokens of a rank that did not use a part count, too")
def mean_of_those_present(gradients, counts):
    refuse(gradients, counts)
    found = []
    for column in zip(*gradients, strict=True):
        there = [(part, count) for part, count in zip(column, counts, strict=True) if part is not None and count]
        total = sum(count for _, count in there)
        found.append(sum(part * (count / total) for part, count in there) if there else None)
    return found


@wrong("average_gradients", says="the ranks' own gradients stay as they are")
def added_into_the_first(gradients, counts):
    refuse(gradients, counts)
    shares = [count / sum(counts) for count in counts]
    found = []
    for column in zip(*gradients, strict=True):
        there = [(part, share) for part, share in zip(column, shares, strict=True) if part is not None and share]
        if not there:
            found.append(None)
            continue
        first = there[0][0].mul_(there[0][1])
        for part, share in there[1:]:
            first += share * part
        found.append(first)
    return found


@wrong("average_gradients", says="a part that no rank used has no gradient: None")
def zeros_where_nothing_is(gradients, counts):
    return [torch.zeros(2, 3).to(gradients[0][1] if gradients[0][1] is not None else torch.zeros(()).double())
            if mean is None else mean for mean in weighted(gradients, counts)]  # fmt: skip


@wrong("average_gradients", says="no token, or lists that do not fit: raise ValueError")
def any_lists(gradients, counts):
    found = []
    for column in zip(*gradients, strict=True):
        there = [p * (c / max(1, sum(counts))) for p, c in zip(column, counts, strict=False) if p is not None and c]
        found.append(torch.stack(there).sum(0) if there else None)
    return found


@wrong("average_gradients")
def breaks_on_none(gradients, counts):
    refuse(gradients, counts)
    return [
        sum(part * (count / sum(counts)) for part, count in zip(column, counts, strict=True) if count)
        for column in zip(*gradients, strict=True)
    ]


@wrong("average_gradients")
def the_first_rank_decides(gradients, counts):
    refuse(gradients, counts)
    return list(gradients[0])


# ---------------------------------------------------------------- right


@right("average_gradients", why="a running sum")
def weighted(gradients, counts):
    refuse(gradients, counts)
    total, found = sum(counts), [None] * len(gradients[0])
    for row, count in zip(gradients, counts, strict=True):
        if count:
            for place, part in enumerate(row):
                if part is not None:
                    found[place] = part * (count / total) + (0 if found[place] is None else found[place])
    return found


@right("average_gradients", why="in double precision, and back to the dtype of the gradients")
def in_double(gradients, counts):
    refuse(gradients, counts)
    found = []
    for column in zip(*gradients, strict=True):
        there = [
            part.double() * count for part, count in zip(column, counts, strict=True) if part is not None and count
        ]
        like = next((part for part in column if part is not None), None)
        found.append((sum(there) / sum(counts)).to(like.dtype) if there else None)
    return found


@right("average_gradients", why="a product of shares and stacked gradients, zeros for what is missing")
def by_einsum(gradients, counts):
    refuse(gradients, counts)
    rows = [row for row, count in zip(gradients, counts, strict=True) if count]
    shares = [count / sum(counts) for count in counts if count]
    found = []
    for column in zip(*rows, strict=True):
        like = next((part for part in column if part is not None), None)
        if like is None:
            found.append(None)
            continue
        stacked = torch.stack([torch.zeros_like(like) if part is None else part for part in column])
        found.append(torch.einsum("r,r...->...", torch.tensor(shares, dtype=like.dtype), stacked))
    return found


@right("average_gradients", why="a tuple, and two ranks at a time, as a ring would do it")
def pairwise(gradients, counts):
    refuse(gradients, counts)
    pairs = [(list(row), count) for row, count in zip(gradients, counts, strict=True) if count]
    while len(pairs) > 1:
        (one, n), (two, m), *rest = pairs
        share = n / (n + m)
        joined = [
            b if a is None and b is None else (0 if a is None else share * a) + (0 if b is None else (1 - share) * b)
            for a, b in zip(one, two, strict=True)
        ]
        pairs = [(joined, n + m), *rest]
    return tuple(pairs[0][0])
