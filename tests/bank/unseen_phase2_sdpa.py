"""Unseen answers to sdpa: faults that a weak check lets pass, and odd ways that are right."""

import torch

from tests.bank import right, wrong

HIDDEN = float("-inf")
_MASKS = {}


def _refuse(q, k, v, attn_mask):
    if q.shape[-1] != k.shape[-1]:
        raise ValueError("d_head of q and k differ")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError("kv_len of k and v differ")
    if attn_mask is not None and attn_mask.dtype is not torch.bool:
        raise ValueError("attn_mask must be bool")


def _attend(q, k, v, attn_mask=None, scale=None):
    """The sound version that most answers below break in one place."""
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is None:
        return scores.softmax(-1) @ v
    empty = ~attn_mask.any(-1, keepdim=True)
    return (scores.masked_fill(~(attn_mask | empty), HIDDEN).softmax(-1) * attn_mask) @ v


# sdpa, wrong --------------------------------------------------------------------------------------------------------


@wrong("sdpa", says=None)
def half_the_width(q, k, v, attn_mask=None):
    """Breaks the scale 1/√d_head: divides by d_head / 2, the same number for width 4."""
    _refuse(q, k, v, attn_mask)
    return _attend(q, k, v, attn_mask, 2 / q.shape[-1])


@wrong("sdpa", says=None)
def keeps_the_first_mask_of_a_size(q, k, v, attn_mask=None):
    """Breaks rule 6 (no memory): the first mask of a shape is kept in a global and used for all later ones."""
    _refuse(q, k, v, attn_mask)
    if attn_mask is not None:
        attn_mask = _MASKS.setdefault(attn_mask.shape, attn_mask)
    return _attend(q, k, v, attn_mask)


@wrong("sdpa", says=None)
def seeds_the_world(q, k, v, attn_mask=None):
    """Breaks rule 6: the global random state is set "for reproducible results"."""
    torch.manual_seed(8191)
    _refuse(q, k, v, attn_mask)
    return _attend(q, k, v, attn_mask)


@wrong("sdpa", says=None)
def changes_the_default_dtype(q, k, v, attn_mask=None):
    """Breaks rule 4: the default dtype becomes float64, so float32 arguments give a float64 result."""
    torch.set_default_dtype(torch.float64)
    _refuse(q, k, v, attn_mask)
    return _attend(q, k, v, attn_mask) + torch.zeros(q.shape[-2], v.shape[-1])


@wrong("sdpa", says=None)
def always_in_single_precision(q, k, v, attn_mask=None):
    """Breaks rule 4: float64 goes through float32, and only the dtype comes back."""
    _refuse(q, k, v, attn_mask)
    return _attend(q.float(), k.float(), v.float(), attn_mask).to(q.dtype)


@wrong("sdpa", says=None)
def takes_it_for_a_padding_mask(q, k, v, attn_mask=None):
    """Breaks masks (q_len, kv_len) when batch equals q_len: then they are read as (batch, kv_len)."""
    _refuse(q, k, v, attn_mask)
    if attn_mask is not None and q.ndim > 2 and attn_mask.shape == (q.shape[0], k.shape[-2]):
        attn_mask = attn_mask.reshape(q.shape[0], *[1] * (q.ndim - 2), k.shape[-2])
    return _attend(q, k, v, attn_mask)


@wrong("sdpa", says=None)
def leaves_the_lengths_to_torch(q, k, v, attn_mask=None):
    """Breaks rule 9: unequal numbers of keys and values end in torch's RuntimeError."""
    _refuse(q, k, k, attn_mask)
    return _attend(q, k, v, attn_mask)


@wrong("sdpa", says=None)
def nan_for_the_keys_alone(q, k, v, attn_mask=None):
    """Breaks rule 7 (finite gradients): zeros forward, clean gradients of q and v, NaN in k after an empty row."""
    _refuse(q, k, v, attn_mask)
    q = q * 1
    if q.requires_grad:
        q.register_hook(torch.nan_to_num)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if attn_mask is not None:
        scores = scores + torch.zeros_like(scores).masked_fill(~attn_mask, HIDDEN)
    weights = scores.softmax(-1)
    if attn_mask is not None:
        weights = weights.masked_fill(~attn_mask, 0)
    return weights @ v


@wrong("sdpa", says=None)
def one_empty_row_empties_the_example(q, k, v, attn_mask=None):
    """Breaks rule 7 (its neighbours stay exact): an example with one empty row becomes all zeros."""
    _refuse(q, k, v, attn_mask)
    out = _attend(q, k, v, attn_mask)
    if attn_mask is None:
        return out
    return out * attn_mask.any(-1, keepdim=True).all(-2, keepdim=True)


@wrong("sdpa", says=None)
def views_the_mask(q, k, v, attn_mask=None):
    """Breaks rule 7 (axes of 1, missing leading axes): `view` fails as soon as the mask has to be expanded."""
    _refuse(q, k, v, attn_mask)
    if attn_mask is None:
        return _attend(q, k, v)
    lead, size = q.shape[:-2], (q.shape[-2], k.shape[-2])
    flat = attn_mask.expand(*lead, *size).view(-1, *size)
    parts = [x.reshape(-1, *x.shape[-2:]) for x in (q, k, v)]
    return _attend(*parts, flat).reshape(*lead, size[0], v.shape[-1])


@wrong("sdpa", says=None)
def one_key_needs_no_attention(q, k, v, attn_mask=None):
    """Breaks rule 7 at one key: its value is handed out even to queries that may not see it."""
    _refuse(q, k, v, attn_mask)
    if k.shape[-2] == 1:
        return v.expand(*v.shape[:-2], q.shape[-2], v.shape[-1]).clone()
    return _attend(q, k, v, attn_mask)


@wrong("sdpa", says=None)
def adds_float_masks_as_torch_does(q, k, v, attn_mask=None):
    """Breaks rule 7 (functions refuse other dtypes): a float mask is added to the scores."""
    if attn_mask is None or attn_mask.dtype is torch.bool:
        _refuse(q, k, v, attn_mask)
        return _attend(q, k, v, attn_mask)
    _refuse(q, k, v, None)
    return (q @ k.mT / q.shape[-1] ** 0.5 + attn_mask).softmax(-1) @ v


@wrong("sdpa", says=None)
def hides_by_a_thousand(q, k, v, attn_mask=None):
    """Breaks rule 7 (each axis alone as 1): a row with nothing to see is an average if the mask has one query row."""
    _refuse(q, k, v, attn_mask)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if attn_mask is None:
        return scores.softmax(-1) @ v
    weights = scores.masked_fill(~attn_mask, -1000.0).softmax(-1)
    if attn_mask.shape[-2:-1] != (1,):
        weights = weights * attn_mask.any(-1, keepdim=True)
    return weights @ v


@wrong("sdpa", says=None)
def values_get_no_gradient(q, k, v, attn_mask=None):
    """Breaks "gradient of q, k, v": v is detached."""
    _refuse(q, k, v, attn_mask)
    return _attend(q, k, v.detach(), attn_mask)


@wrong("sdpa", says=None)
def writes_into_the_queries(q, k, v, attn_mask=None):
    """Breaks rule 6: the caller's q is scaled where it stands, behind the back of autograd."""
    _refuse(q, k, v, attn_mask)
    out = _attend(q, k, v, attn_mask)
    q.data.mul_(q.shape[-1] ** -0.5)
    return out


# sdpa, right --------------------------------------------------------------------------------------------------------


@right("sdpa", why="a null key below every finite score, with a null value, catches rows that see nothing")
def with_a_null_key(q, k, v, attn_mask=None):
    _refuse(q, k, v, attn_mask)
    scores = torch.einsum("...qd,...kd->...qk", q, k) / q.shape[-1] ** 0.5
    if attn_mask is not None:
        scores = torch.where(attn_mask, scores, HIDDEN)
    null = torch.full_like(scores[..., :1], torch.finfo(q.dtype).min)
    weights = torch.cat([null, scores], -1).softmax(-1)
    return weights @ torch.cat([torch.zeros_like(v[..., :1, :]), v], -2)


class _ByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, seen):
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen, HIDDEN)
        top = scores.amax(-1, keepdim=True)
        exps = (scores - top.masked_fill(top.isinf(), 0)).exp()
        total = exps.sum(-1, keepdim=True)
        weights = exps / total.masked_fill(total == 0, 1)
        ctx.save_for_backward(q, k, v, weights)
        return weights @ v

    @staticmethod
    def backward(ctx, grad):
        q, k, v, weights = ctx.saved_tensors
        grad_weights = grad @ v.mT
        grad_scores = weights * (grad_weights - (weights * grad_weights).sum(-1, keepdim=True)) / q.shape[-1] ** 0.5
        return grad_scores @ k, grad_scores.mT @ q, weights.mT @ grad, None


@right("sdpa", why="an autograd.Function with the derivative written out by hand")
def with_its_own_derivative(q, k, v, attn_mask=None):
    _refuse(q, k, v, attn_mask)
    size = (*q.shape[:-1], k.shape[-2])
    seen = torch.ones(size, dtype=torch.bool) if attn_mask is None else attn_mask.expand(size)
    return _ByHand.apply(q, k, v, seen)


@right("sdpa", why="each query gathers the keys it may see; the leading axes are taken off by recursion")
def one_query_at_a_time(queries, keys, values, attn_mask=None):
    _refuse(queries, keys, values, attn_mask)
    if attn_mask is None:
        attn_mask = torch.ones(queries.shape[-2], keys.shape[-2], dtype=torch.bool)
    attn_mask = attn_mask.expand(*queries.shape[:-1], keys.shape[-2])
    if queries.ndim > 2:
        return torch.stack([one_query_at_a_time(*part) for part in zip(queries, keys, values, attn_mask, strict=True)])
    rows = []
    for query, open_ in zip(queries, attn_mask, strict=True):
        weights = (keys[open_] @ query / query.numel() ** 0.5).softmax(0)
        rows.append(weights @ values[open_])
    return torch.stack(rows)


@right("sdpa", why="the smallest finite number is added, then the rows that see nothing are multiplied by 0")
def adds_the_smallest_number(q, k, v, attn_mask=None):
    _refuse(q, k, v, attn_mask)
    scores = (q / q.shape[-1] ** 0.5) @ k.transpose(-2, -1)
    if attn_mask is None:
        return torch.softmax(scores, -1) @ v
    bias = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill(~attn_mask, torch.finfo(q.dtype).min)
    mixed = torch.softmax(torch.clamp(scores + bias, min=torch.finfo(q.dtype).min), -1)
    return (mixed * attn_mask) @ v


@right("sdpa", why="an empty row is NaN inside, but both derivatives of masked_fill stop it, so all comes out finite")
def between_two_masked_fills(q, k, v, attn_mask=None):
    _refuse(q, k, v, attn_mask)
    scores = torch.baddbmm(q.new_zeros(()), q.flatten(0, -3), k.flatten(0, -3).mT) if q.ndim > 3 else q @ k.mT
    scores = scores.reshape(*q.shape[:-1], k.shape[-2]) * q.shape[-1] ** -0.5
    hidden = torch.zeros((), dtype=torch.bool) if attn_mask is None else ~attn_mask
    return scores.masked_fill(hidden, HIDDEN).softmax(-1).masked_fill(hidden, 0) @ v
