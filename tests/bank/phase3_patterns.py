"""head_entropy and head_patterns: wrong solutions and unusual right ones."""

import math

import torch

from tests.bank import right, wrong

# ---------------------------------------------------------------- head_entropy, wrong


@wrong("head_entropy", says="0 log 0 is 0")
def nan_at_zero(weights):
    return -(weights * torch.log(weights)).sum(-1)


@wrong("head_entropy", says="nats were asked")
def bits(weights):
    return -torch.where(weights > 0, weights * weights.clamp(min=1e-300).log2(), 0).sum(-1)


@wrong("head_entropy", says="no constant is needed")
def constant_inside(weights):
    return -(weights * (weights + 1e-6).log()).sum(-1)


@wrong("head_entropy", says="no constant is needed")
def small_constant_inside(weights):
    return -(weights * (weights + 1e-9).log()).sum(-1)


@wrong("head_entropy", says="the sign: entropy is never negative")
def negative(weights):
    return torch.special.xlogy(weights, weights).sum(-1)


@wrong("head_entropy", says="one number per query row")
def per_head(weights):
    return -torch.special.xlogy(weights, weights).sum(-1).mean(-1)


@wrong("head_entropy", says="sum over the keys, not their mean")
def mean_over_keys(weights):
    return -torch.special.xlogy(weights, weights).mean(-1)


@wrong("head_entropy", says="keys are on the last axis")
def over_queries(weights):
    return torch.special.entr(weights).sum(-2)


@wrong("head_entropy")
def normalised(weights):
    return torch.special.entr(weights).sum(-1) / math.log(weights.shape[-1])


@wrong("head_entropy")
def perplexity(weights):
    return torch.special.entr(weights).sum(-1).exp()


@wrong("head_entropy")
def of_softmax(weights):
    shares = weights.softmax(-1)
    return torch.special.entr(shares).sum(-1)


@wrong("head_entropy")
def empty_row_is_full(weights):
    entropy = torch.special.entr(weights).sum(-1)
    return torch.where(weights.sum(-1) == 0, math.log(weights.shape[-1]), entropy)


@wrong("head_entropy")
def clamped(weights):
    weights = weights.clamp(min=1e-5)
    return -(weights * weights.log()).sum(-1)


# ---------------------------------------------------------------- head_entropy, right


@right("head_entropy", why="special.entr")
def by_entr(weights):
    return torch.special.entr(weights).sum(dim=-1)


@right("head_entropy", why="xlogy")
def by_xlogy(weights):
    return torch.xlogy(weights, weights).sum(-1).neg()


@right("head_entropy", why="where, with a harmless 1 under the logarithm")
def by_where(weights):
    return -(weights * torch.where(weights > 0, weights, 1.0).log()).sum(-1)


@right("head_entropy", why="log, then NaN replaced")
def by_nan_to_num(weights):
    return -(weights * weights.log()).nan_to_num(0.0).sum(-1)


@right("head_entropy", why="Categorical where rows are valid")
def by_categorical(weights):
    empty = weights.sum(-1, keepdim=True) == 0
    shares = torch.where(empty, 1.0, weights)
    return torch.distributions.Categorical(probs=shares).entropy().masked_fill(empty[..., 0], 0.0)


# ---------------------------------------------------------------- head_patterns


class Patterns:
    """Right as it stands, with loops; each wrong solution changes one method."""

    def previous(self, weights, tokens):
        return self.mean(weights, lambda row, i: [i - 1], first=1, tokens=tokens)

    def itself(self, weights, tokens):
        return self.mean(weights, lambda row, i: [i], first=0, tokens=tokens)

    def first(self, weights, tokens):
        return self.mean(weights, lambda row, i: [0], first=1, tokens=tokens)

    def induction(self, weights, tokens):
        return self.mean(weights, self.after, first=0, tokens=tokens)

    def after(self, row, i):
        return [j + 1 for j in range(i) if row[j] == row[i]]

    def mean(self, weights, targets, first, tokens):
        total, count = torch.zeros(weights.shape[1], dtype=weights.dtype), 0
        for example, row in enumerate(tokens.tolist()):
            for i in range(first, len(row)):
                if found := targets(row, i):
                    total += weights[example, :, i, found].sum(-1)
                    count += 1
        return total / max(count, 1)

    def __call__(self, weights, tokens):
        return {
            "previous": self.previous(weights, tokens),
            "self": self.itself(weights, tokens),
            "first": self.first(weights, tokens),
            "induction": self.induction(weights, tokens),
        }


def entry(register, cls, *args, **options):
    """Register what the class makes, under the class's name."""

    def patterns(weights, tokens):
        return cls()(weights, tokens)

    patterns.__name__ = cls.__name__
    register("head_patterns", *args, **options)(patterns)


class NextToken(Patterns):
    def previous(self, weights, tokens):
        padded = weights[:, :, :-1, 1:].diagonal(0, -2, -1)
        return padded.mean((0, 2))


class EarlierToken(Patterns):
    def after(self, row, i):
        return [j for j in range(i) if row[j] == row[i]]


class LatestOnly(Patterns):
    def after(self, row, i):
        return super().after(row, i)[-1:]


class MeanOverAllQueries(Patterns):
    def induction(self, weights, tokens):
        counted = sum(bool(self.after(row, i)) for row in tokens.tolist() for i in range(len(row)))
        return super().induction(weights, tokens) * counted / tokens.numel()


class FirstExample(Patterns):
    def __call__(self, weights, tokens):
        return super().__call__(weights[:1], tokens[:1])


class ExampleByExample(Patterns):
    def __call__(self, weights, tokens):
        parts = [super(ExampleByExample, self).__call__(w[None], t[None]) for w, t in zip(weights, tokens, strict=True)]
        return {key: torch.stack([part[key] for part in parts]).mean(0) for key in parts[0]}


class Transposed(Patterns):
    def __call__(self, weights, tokens):
        return super().__call__(weights.transpose(-1, -2), tokens)


class FirstCountsItself(Patterns):
    def first(self, weights, tokens):
        return weights[:, :, :, 0].mean((0, 2))


class MeanOfTargets(Patterns):
    def mean(self, weights, targets, first, tokens):
        total, count = torch.zeros(weights.shape[1], dtype=weights.dtype), 0
        for example, row in enumerate(tokens.tolist()):
            for i in range(first, len(row)):
                if found := targets(row, i):
                    total += weights[example, :, i, found].mean(-1)
                    count += 1
        return total / max(count, 1)


class LooksAhead(Patterns):
    def after(self, row, i):
        return [(j + 1) % len(row) for j in range(len(row)) if row[j] == row[i] and j != i]


class HeadsAveraged(Patterns):
    def mean(self, weights, targets, first, tokens):
        return super().mean(weights, targets, first, tokens).mean()


class NanWithoutRepeats(Patterns):
    def induction(self, weights, tokens):
        found = super().induction(weights, tokens)
        repeats = any(self.after(row, i) for row in tokens.tolist() for i in range(len(row)))
        return found if repeats else found * float("nan")


entry(wrong, NextToken, says="that is the next token")
entry(wrong, EarlierToken, says="induction looks one place after the earlier one")
entry(wrong, LatestOnly, says="all earlier places count")
entry(wrong, MeanOverAllQueries, says="only queries whose token stood before are counted")
entry(wrong, FirstExample, says="all examples count")
entry(wrong, ExampleByExample, says="pool the queries of all examples into one mean")
entry(wrong, Transposed, says="queries are rows, keys are columns")
entry(wrong, FirstCountsItself, says="query 0 has nothing before it: leave it out")
entry(wrong, MeanOfTargets)
entry(wrong, LooksAhead)
entry(wrong, HeadsAveraged)
entry(wrong, NanWithoutRepeats, says="no counted query gives 0, not NaN")


class Loops(Patterns):
    pass


entry(right, Loops, why="loops over examples and queries")


@right("head_patterns", why="diagonals and a roll")
def by_diagonals(weights, tokens):
    seq_len = tokens.shape[1]
    same = (tokens[:, :, None] == tokens[:, None]).tril(-1)  # (B, i, j)
    target = same.roll(1, -1)  # j + 1; nothing wraps round, because j < i
    total = (weights * target[:, None]).sum((0, 2, 3))
    return {
        "induction": total / same.any(-1).sum().clamp(min=1),
        "first": weights[:, :, 1:, 0].mean((0, 2)),
        "self": weights.diagonal(dim1=-2, dim2=-1).mean((0, 2)),
        "previous": weights.diagonal(-1, -2, -1).mean((0, 2)) if seq_len > 1 else weights.sum((0, 2, 3)) * 0,
    }


@right("head_patterns", why="places where the token before stands again, as indices")
def by_indices(weights, tokens):
    batch, _, seq_len, _ = weights.shape
    places = torch.arange(seq_len)
    found = {"self": weights[:, :, places, places].mean((0, 2)), "first": weights[:, :, 1:, 0].mean((0, 2))}
    found["previous"] = weights[:, :, places[1:], places[:-1]].mean((0, 2))
    example, i, j = ((tokens[:, :, None] == tokens[:, None]) & (places[:, None] > places)).nonzero(as_tuple=True)
    counted = len(set(zip(example.tolist(), i.tolist(), strict=True)))
    found["induction"] = weights[example, :, i, j + 1].sum(0) / max(counted, 1)
    return found


@right("head_patterns", why="einsum with one table of targets per pattern")
def by_tables(weights, tokens):
    batch, _, n, _ = weights.shape
    eye = torch.eye(n, dtype=weights.dtype)
    before = torch.zeros(n, n, dtype=weights.dtype)
    before[range(1, n), range(n - 1)] = 1
    start = torch.zeros_like(before)
    start[1:, 0] = 1
    same = (tokens[:, None, :] == tokens[:, :, None]).to(weights.dtype).tril(-1)
    tables = {
        "previous": before.expand(batch, n, n),
        "self": eye.expand(batch, n, n),
        "first": start.expand(batch, n, n),
    }
    tables["induction"] = (
        same @ torch.ones(n, n, dtype=weights.dtype).diagonal_scatter(torch.ones(n), 0) * 0 + same @ before.T
    )
    return {
        name: torch.einsum("bhqk,bqk->h", weights, table) / max(int((table.sum(-1) > 0).sum()), 1)
        for name, table in tables.items()
    }
