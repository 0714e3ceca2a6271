"""head_entropy, head_patterns, head_importance: what a hurried student writes, and what an expert would."""

import torch
import torch.nn.functional as F

from tests.bank import right, wrong
from tests.bank.phase3_patterns import Patterns, entry

OWN_DTYPE = "new tensors need the dtype of their input: x.new_zeros(…), or dtype=x.dtype"

# ---------------------------------------------------------------- head_entropy


@wrong("head_entropy", says=OWN_DTYPE)
def filled_into_zeros(weights):
    out = torch.zeros(weights.shape[:-1])
    for key in range(weights.shape[-1]):
        out -= torch.xlogy(weights[..., key], weights[..., key])
    return out


@wrong("head_entropy", says="nats were asked")
def divided_by_log_two(weights):
    return -(torch.xlogy(weights, weights) / torch.log(torch.tensor(2.0))).sum(-1)


@wrong("head_entropy")
def base_ten(weights):
    return -(weights * weights.clamp(min=1e-300).log10()).sum(-1)


@wrong("head_entropy", says="no constant is needed")
def constant_outside_too(weights):
    return -(weights * torch.log(weights + 1e-8)).sum(dim=-1)


@wrong("head_entropy", says="one number per query row")
def mean_over_all(weights):
    return torch.special.entr(weights).sum(-1).mean()


@wrong("head_entropy", says="0 log 0 is 0")
def python_log(weights):
    return -torch.sum(weights * torch.log(weights), dim=-1)


@wrong("head_entropy")
def kept_axis(weights):
    return torch.special.entr(weights).sum(-1, keepdim=True)


@right("head_entropy", why="log of the weights that are not 0, scattered")
def only_positive(weights):
    logs = torch.zeros_like(weights)
    logs[weights > 0] = weights[weights > 0].log()
    return -(weights * logs).sum(-1)


@right("head_entropy", why="F.kl_div against ones")
def by_divergence(weights):
    return -F.kl_div(torch.zeros_like(weights), weights, reduction="none").sum(-1)


@right("head_entropy", why="clamped inside the logarithm at the smallest number there is")
def clamped_at_tiny(weights):
    return -(weights * weights.clamp_min(torch.finfo(weights.dtype).tiny).log()).sum(-1)


# ---------------------------------------------------------------- head_patterns


class DividedByPairs(Patterns):
    def induction(self, weights, tokens):
        queries = sum(bool(self.after(row, i)) for row in tokens.tolist() for i in range(len(row)))
        pairs = sum(len(self.after(row, i)) for row in tokens.tolist() for i in range(len(row)))
        return super().induction(weights, tokens) * max(queries, 1) / max(pairs, 1)


class SelfFromOne(Patterns):
    def itself(self, weights, tokens):
        return self.mean(weights, lambda row, i: [i], first=1, tokens=tokens)


class NanWhereNothingRepeats(Patterns):
    def induction(self, weights, tokens):
        same = (tokens[:, :, None] == tokens[:, None]).tril(-1)
        return (weights * same.roll(1, -1)[:, None]).sum((0, 2, 3)) / same.any(-1).sum()


class TokenIsItsOwnEarlier(Patterns):
    def induction(self, weights, tokens):
        same = (tokens[:, :, None] == tokens[:, None]).tril()
        return (weights * same.roll(1, -1)[:, None]).sum((0, 2, 3)) / same.any(-1).sum()


class EqualAnywhere(Patterns):
    def induction(self, weights, tokens):
        same = tokens[:, :, None] == tokens[:, None]
        after = torch.zeros_like(same)
        after[..., 1:] = same[..., :-1]
        return (weights * after[:, None]).sum((0, 2, 3)) / same.any(-1).sum()


class FloatAccumulators(Patterns):
    def mean(self, weights, targets, first, tokens):
        total, count = torch.zeros(weights.shape[1]), 0
        for example, row in enumerate(tokens.tolist()):
            for i in range(first, len(row)):
                for key in targets(row, i):
                    total += weights[example, :, i, key]
                count += bool(targets(row, i))
        return total / max(count, 1)


class SumOnly(Patterns):
    def mean(self, weights, targets, first, tokens):
        return super().mean(weights, targets, first, tokens) * len(tokens)


entry(wrong, DividedByPairs, says="one mean over queries: not over pairs of equal tokens")
entry(wrong, SelfFromOne, says="self counts every query")
entry(wrong, NanWhereNothingRepeats, says="no counted query gives 0, not NaN")
entry(wrong, TokenIsItsOwnEarlier, says="a token is not its own earlier place: j < i")
entry(wrong, EqualAnywhere, says="a token is not its own earlier place: j < i")
entry(wrong, FloatAccumulators, says=OWN_DTYPE)
entry(wrong, SumOnly)


class FromPythonFloats(Patterns):
    """Lists of numbers, made into tensors of the right dtype at the end."""

    def mean(self, weights, targets, first, tokens):
        rows = tokens.tolist()
        counted = [(n, i, targets(row, i)) for n, row in enumerate(rows) for i in range(first, len(row))]
        counted = [(n, i, keys) for n, i, keys in counted if keys]
        sums = [sum(weights[n, h, i, key].item() for n, i, keys in counted for key in keys)
                for h in range(weights.shape[1])]  # fmt: skip
        return weights.new_tensor(sums) / max(len(counted), 1)


class NanReplaced(Patterns):
    def induction(self, weights, tokens):
        same = (tokens[:, :, None] == tokens[:, None]).tril(-1)
        return ((weights * same.roll(1, -1)[:, None]).sum((0, 2, 3)) / same.any(-1).sum()).nan_to_num(0.0)


class ByMatrixProduct(Patterns):
    def induction(self, weights, tokens):
        same = torch.eq(tokens.unsqueeze(-1), tokens.unsqueeze(-2)).to(weights).tril(-1)
        moved = same[..., :-1]
        total = torch.einsum("bhik,bik->h", weights[..., 1:], moved)
        return total / (same.sum(-1) > 0).sum().clamp(min=1)


entry(right, FromPythonFloats, why="Python numbers, new_tensor at the end")
entry(right, NanReplaced, why="NaN replaced where nothing repeats")
entry(right, ByMatrixProduct, why="weights without key 0 against the table of equal tokens")

# ---------------------------------------------------------------- head_importance


def off(mha, head, weight):
    d_head = weight.shape[1] // mha.n_heads
    weight[:, head * d_head : (head + 1) * d_head] = 0


@wrong("head_importance", says="one head at a time: put it back before the next one")
@torch.no_grad()
def put_back_at_the_end_only(mha, x, loss):
    weight, found = mha.w_o.weight, []
    kept, whole = weight.clone(), loss(mha(x))
    try:
        for head in range(mha.n_heads):
            off(mha, head, weight)
            found.append(loss(mha(x)) - whole)
    finally:
        weight.copy_(kept)
    return torch.stack(found)


@wrong("head_importance", says=OWN_DTYPE)
@torch.no_grad()
def collected_in_zeros(mha, x, loss):
    weight, found = mha.w_o.weight, torch.zeros(mha.n_heads)
    kept, whole = weight.clone(), loss(mha(x))
    for head in range(mha.n_heads):
        try:
            off(mha, head, weight)
            found[head] = loss(mha(x)) - whole
        finally:
            weight.copy_(kept)
    return found


@wrong("head_importance", says="put it back in a finally: the loss may raise")
@torch.no_grad()
def no_finally(mha, x, loss):
    weight, found = mha.w_o.weight, []
    kept, whole = weight.clone(), loss(mha(x))
    for head in range(mha.n_heads):
        off(mha, head, weight)
        found.append(loss(mha(x)) - whole)
        weight.copy_(kept)
    return torch.stack(found)


@wrong("head_importance", says="mha must come back as it was")
@torch.no_grad()
def kept_without_clone(mha, x, loss):
    weight, found = mha.w_o.weight, []
    kept, whole = weight.detach(), loss(mha(x))
    for head in range(mha.n_heads):
        try:
            off(mha, head, weight)
            found.append(loss(mha(x)) - whole)
        finally:
            weight.copy_(kept)
    return torch.stack(found)


@wrong("head_importance")
def a_list_of_numbers(mha, x, loss):
    with torch.no_grad():
        return [float(change) for change in right_way(mha, x, loss)]


@wrong("head_importance", says="positive means that the head helps")
def loss_falls(mha, x, loss):
    return -right_way(mha, x, loss)


@wrong("head_importance", says="mha must come back as it was")
@torch.no_grad()
def new_parameter_left(mha, x, loss):
    found, kept, whole = [], mha.w_o.weight.detach().clone(), loss(mha(x))
    for head in range(mha.n_heads):
        mha.w_o.weight = torch.nn.Parameter(kept.clone())
        off(mha, head, mha.w_o.weight)
        found.append(loss(mha(x)) - whole)
    return torch.stack(found)


@torch.no_grad()
def right_way(mha, x, loss):
    weight, found = mha.w_o.weight, []
    kept, whole = weight.clone(), loss(mha(x))
    for head in range(mha.n_heads):
        try:
            off(mha, head, weight)
            found.append(loss(mha(x)) - whole)
        finally:
            weight.copy_(kept)
    return torch.stack(found)


@right("head_importance", why="multiplied by a mask, the slice alone put back")
@torch.no_grad()
def slice_put_back(mha, x, loss):
    weight, found = mha.w_o.weight, []
    whole = loss(mha(x))
    for columns in weight.chunk(mha.n_heads, dim=1):
        kept = columns.clone()
        try:
            columns.mul_(0)
            found.append(loss(mha(x)) - whole)
        finally:
            columns.copy_(kept)
    return torch.stack(found)


@right("head_importance", why="weight.data is replaced, and replaced again")
def by_the_data(mha, x, loss):
    kept, found = mha.w_o.weight.data, []
    with torch.no_grad():
        try:
            whole = loss(mha(x))
            for head in range(mha.n_heads):
                mha.w_o.weight.data = kept.clone()
                off(mha, head, mha.w_o.weight)
                found.append(loss(mha(x)) - whole)
        finally:
            mha.w_o.weight.data = kept
    return torch.stack(found)


@right("head_importance", why="load_state_dict puts everything back; a tensor of the losses' dtype")
@torch.no_grad()
def by_the_state(mha, x, loss):
    state = {name: part.clone() for name, part in mha.state_dict().items()}
    whole, found = loss(mha(x)), []
    try:
        for head in range(mha.n_heads):
            off(mha, head, mha.w_o.weight)
            found.append((loss(mha(x)) - whole).item())
            mha.load_state_dict(state)
    finally:
        mha.load_state_dict(state)
    return torch.tensor(found, dtype=whole.dtype)
