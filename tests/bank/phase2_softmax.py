"""masked_softmax: wrong solutions and unusual right ones."""

import torch
from torch import nn

from tests.bank import right, wrong
from tests.bank.attention_parts import HIDDEN, blank_empty_slices, refuse, visible_softmax

# ---------------------------------------------------------------- wrong


@wrong("masked_softmax", says="a fully masked row must be zeros")
def nan_row(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    return torch.softmax(scores, dim=dim)


@wrong("masked_softmax", says="a fully masked row must be zeros")
def nan_row_by_hand(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    if attn_mask is not None:
        scores = torch.where(attn_mask, scores, float("-inf"))
    exps = (scores - scores.amax(dim, keepdim=True)).exp()
    return exps / exps.sum(dim, keepdim=True)


@wrong("masked_softmax", says="a row with nothing to see became an average")
def uniform_row_smallest_float(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=dim)


@wrong("masked_softmax", says="a row with nothing to see became an average")
def uniform_row_minus_1e9(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -1e9)
    return torch.softmax(scores, dim=dim)


@wrong("masked_softmax", says="a row with nothing to see became an average")
def uniform_row_unmasked(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    if attn_mask is None:
        return scores.softmax(dim)
    attn_mask = attn_mask.expand(scores.shape)
    empty = ~attn_mask.any(dim, keepdim=True)
    scores = scores.masked_fill(~attn_mask, float("-inf")).masked_fill(empty, 0.0)
    return scores.softmax(dim)


def _filled(scores, attn_mask, dim, fill):
    refuse(attn_mask=attn_mask)
    if attn_mask is None:
        return scores.softmax(dim)
    weights = scores.masked_fill(~attn_mask, fill).softmax(dim)
    return blank_empty_slices(weights, attn_mask, dim)


@wrong("masked_softmax", says="hidden keys still get weight")
def fill_0(scores, attn_mask=None, dim=-1):
    return _filled(scores, attn_mask, dim, 0.0)


@wrong("masked_softmax", says="hidden keys still get weight")
def fill_minus_10(scores, attn_mask=None, dim=-1):
    return _filled(scores, attn_mask, dim, -10.0)


@wrong("masked_softmax", says="hidden keys still get weight")
def fill_minus_30(scores, attn_mask=None, dim=-1):
    return _filled(scores, attn_mask, dim, -30.0)


@wrong("masked_softmax")
def subtracts_30(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    if attn_mask is None:
        return scores.softmax(dim)
    penalty = (~attn_mask).to(scores.dtype) * 30.0
    return blank_empty_slices((scores - penalty).softmax(dim), attn_mask, dim)


@wrong("masked_softmax", says="weights no longer sum to 1")
def multiplied_after(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    weights = torch.softmax(scores, dim=dim)
    return weights if attn_mask is None else weights * attn_mask


@wrong("masked_softmax", says="weights no longer sum to 1")
def filled_with_0_after(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    weights = torch.softmax(scores, dim=dim)
    return weights if attn_mask is None else weights.masked_fill(~attn_mask, 0.0)


@wrong("masked_softmax", says="True means may attend")
def inverted(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    return visible_softmax(scores, None if attn_mask is None else ~attn_mask, dim)


@wrong("masked_softmax", says="True means may attend")
def inverted_with_masked_fill(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    if attn_mask is None:
        return scores.softmax(dim)
    return scores.masked_fill(attn_mask, float("-inf")).softmax(dim).nan_to_num(0.0)


@wrong("masked_softmax", says="zeros forward, but NaN backward")
def nan_gradient_added_infinity(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    if attn_mask is not None:
        bias = torch.zeros(attn_mask.shape, dtype=scores.dtype)
        scores = scores + bias.masked_fill(~attn_mask, float("-inf"))
    return torch.nan_to_num(scores.softmax(dim), nan=0.0)


@wrong("masked_softmax", says="zeros forward, but NaN backward")
def nan_gradient_late_where(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    if attn_mask is None:
        return scores.softmax(dim)
    highest = scores.detach().masked_fill(~attn_mask, torch.finfo(scores.dtype).min).amax(dim, keepdim=True)
    exps = ((scores - highest) * attn_mask).exp() * attn_mask
    total = exps.sum(dim, keepdim=True)
    return torch.where(total > 0, exps / total, torch.zeros_like(exps))


@wrong("masked_softmax")
def dim_ignored(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    return visible_softmax(scores, attn_mask)


@wrong("masked_softmax")
def dim_ignored_without_mask(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    if attn_mask is None:
        return scores.softmax(-1)
    return visible_softmax(scores, attn_mask, dim)


@wrong("masked_softmax", says="scores were overwritten")
def overwritten(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    if attn_mask is None:
        return scores.softmax(dim)
    scores.masked_fill_(~attn_mask, float("-inf"))
    return scores.softmax(dim).nan_to_num(0.0)


@wrong("masked_softmax", says="scores were overwritten")
def overwritten_through_data(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    if attn_mask is not None:
        scores.data.masked_fill_(~attn_mask, -1e4)
    return visible_softmax(scores, attn_mask, dim)


@wrong("masked_softmax", says="scores were overwritten")
def overwritten_without_grad(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    if attn_mask is not None:
        with torch.no_grad():
            scores[~attn_mask.expand(scores.shape)] = float("-inf")
    return visible_softmax(scores, attn_mask, dim)


@wrong("masked_softmax")
def mask_overwritten(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    if attn_mask is None:
        return scores.softmax(dim)
    weights = visible_softmax(scores, attn_mask, dim)
    attn_mask.logical_not_()
    return weights


@wrong("masked_softmax")
def always_float32(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    return visible_softmax(scores.float(), attn_mask, dim)


@wrong("masked_softmax")
def any_mask_accepted(scores, attn_mask=None, dim=-1):
    return visible_softmax(scores, None if attn_mask is None else attn_mask.bool(), dim)


@wrong("masked_softmax")
def refuses_with_type_error(scores, attn_mask=None, dim=-1):
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        raise TypeError("attn_mask must be bool")
    return visible_softmax(scores, attn_mask, dim)


@wrong("masked_softmax")
def frozen_normaliser(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, float("-inf"))
    with torch.no_grad():
        log_total = torch.logsumexp(scores, dim, keepdim=True)
        log_total = log_total.masked_fill(log_total == float("-inf"), 0.0)
    return (scores - log_total).exp()


# ---------------------------------------------------------------- right


@right("masked_softmax", why="the plain way: rows with nothing to see are opened for softmax, then zeroed")
def opens_empty_rows(scores, attn_mask=None, dim=-1):
    if attn_mask is None:
        return torch.softmax(scores, dim=dim)
    if attn_mask.dtype != torch.bool:
        raise ValueError("attn_mask must be a bool tensor")
    attn_mask = attn_mask.expand(scores.shape)
    anything = attn_mask.any(dim=dim, keepdim=True)
    hidden = torch.where(anything, scores.masked_fill(~attn_mask, float("-inf")), torch.zeros_like(scores))
    return hidden.softmax(dim) * anything


@right("masked_softmax", why="exp times mask with a guarded division")
def guarded_division(scores, attn_mask=None, dim=-1):
    if attn_mask is None:
        attn_mask = torch.ones((), dtype=torch.bool)
    refuse(attn_mask=attn_mask)
    open_scores = torch.where(attn_mask, scores, torch.finfo(scores.dtype).min)
    shifted = torch.where(attn_mask, scores - open_scores.amax(dim, keepdim=True).detach(), 0.0)
    exps = shifted.exp() * attn_mask
    total = exps.sum(dim, keepdim=True)
    return exps / torch.where(total == 0, torch.ones_like(total), total)


@right("masked_softmax", why="where before and where after; hidden scores become an ordinary number first")
def where_before_and_after(scores, attn_mask=None, dim=-1):
    if attn_mask is None:
        return scores.softmax(dim)
    refuse(attn_mask=attn_mask)
    visible_or_empty = attn_mask | ~torch.broadcast_to(attn_mask, scores.shape).any(dim, keepdim=True)
    weights = torch.where(visible_or_empty, scores, HIDDEN).softmax(dim)
    return torch.where(attn_mask, weights, torch.zeros((), dtype=scores.dtype))


@right("masked_softmax", why="smallest finite number plus zeroing: no infinity anywhere")
def smallest_finite_then_zero(scores, attn_mask=None, dim=-1):
    if attn_mask is None:
        return scores.softmax(dim)
    refuse(attn_mask=attn_mask)
    weights = scores.masked_fill(~attn_mask, torch.finfo(scores.dtype).min).softmax(dim)
    return weights.masked_fill(~attn_mask, 0.0)


@right("masked_softmax", why="NaN turned into 0 is enough here: masked_fill stops the NaN on its way back")
def nan_to_num(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    if attn_mask is None:
        return nn.Softmax(dim=dim)(scores)
    return nn.Softmax(dim=dim)(scores.masked_fill(attn_mask.logical_not(), HIDDEN)).nan_to_num(0.0)


@right("masked_softmax", why="in the log domain, computed wider than the input and cast back")
def log_domain_in_float64(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    wide = scores.to(torch.float64)
    if attn_mask is None:
        return (wide - wide.logsumexp(dim, keepdim=True)).exp().to(scores.dtype)
    mask = torch.broadcast_to(attn_mask, scores.shape)
    empty = ~mask.any(dim, keepdim=True)
    log_weights = wide.masked_fill(~(mask | empty), HIDDEN).log_softmax(dim)
    return log_weights.masked_fill(~mask, HIDDEN).exp().to(scores.dtype)


@right("masked_softmax", why="slice by slice, softmax of the visible entries alone, put back by index")
def slice_by_slice(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    mask = torch.ones_like(scores, dtype=torch.bool) if attn_mask is None else attn_mask.expand_as(scores)
    moved, mask = scores.movedim(dim, -1), mask.movedim(dim, -1)
    rows = []
    for row, seen in zip(moved.reshape(-1, moved.shape[-1]), mask.reshape(-1, moved.shape[-1]), strict=True):
        places = seen.nonzero().squeeze(-1)
        rows.append(torch.zeros_like(row).index_put((places,), row[places].softmax(-1)))
    return torch.stack(rows).reshape(moved.shape).movedim(-1, dim)


class _ByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores, attn_mask, dim):
        weights = scores.clone()
        weights[~attn_mask] = HIDDEN
        highest = weights.amax(dim, keepdim=True)
        weights.sub_(torch.where(highest.isinf(), torch.zeros_like(highest), highest)).exp_()
        weights.div_(weights.sum(dim, keepdim=True).masked_fill_(highest.isinf(), 1.0))
        ctx.save_for_backward(weights)
        ctx.dim = dim
        return weights

    @staticmethod
    def backward(ctx, grad):
        (weights,) = ctx.saved_tensors
        return weights * (grad - (weights * grad).sum(ctx.dim, keepdim=True)), None, None


@right("masked_softmax", why="an autograd.Function with its own backward, writing into its own copy")
def own_backward(scores, attn_mask=None, dim=-1):
    refuse(attn_mask=attn_mask)
    mask = torch.ones((), dtype=torch.bool) if attn_mask is None else attn_mask
    return _ByHand.apply(scores, mask.broadcast_to(scores.shape), dim)


class SoftmaxObject:
    """A callable object; it has no __name__ of its own."""

    def __call__(self, scores, attn_mask=None, dim=-1):
        refuse(attn_mask=attn_mask)
        return self.masked(scores, attn_mask, dim)

    @staticmethod
    def masked(scores, attn_mask, dim):
        hidden = torch.zeros_like(scores, dtype=torch.bool) if attn_mask is None else attn_mask.logical_not()
        exps = scores.masked_fill(hidden, HIDDEN)
        exps = torch.exp(exps - exps.detach().amax(dim, keepdim=True).clamp(min=torch.finfo(scores.dtype).min))
        return exps / exps.sum(dim, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)


right("masked_softmax", why="an object with __call__ instead of a function")(SoftmaxObject())
