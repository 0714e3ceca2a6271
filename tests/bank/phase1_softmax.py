"""softmax: wrong solutions and unusual right ones."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.bank import right, wrong


def shares(x, dim):
    exps = (x - x.amax(dim, keepdim=True)).exp()
    return exps / exps.sum(dim, keepdim=True)


# ---------------------------------------------------------------- wrong


@wrong("softmax", says="dim was ignored")
def last_axis(x, dim):
    return shares(x, -1)


@wrong("softmax", says="dim was ignored")
def first_axis(x, dim):
    return shares(x, 0)


@wrong("softmax", says="dim was ignored")
def all_entries(x, dim):
    exps = (x - x.max()).exp()
    return exps / exps.sum()


@wrong("softmax", says="subtract the maximum of each slice")
def one_maximum(x, dim):
    exps = (x - x.max()).exp()
    return exps / exps.sum(dim, keepdim=True)


@wrong("softmax", says="overflow: subtract the maximum first")
def no_maximum(x, dim):
    return x.exp() / x.exp().sum(dim, keepdim=True)


@wrong("softmax", says="the maximum met the wrong axis")
def maximum_without_keepdim(x, dim):
    exps = (x - x.max(dim).values).exp()
    return exps / exps.sum(dim, keepdim=True)


@wrong("softmax", says="the maximum met the wrong axis")
def no_keepdim_at_all(x, dim):
    exps = torch.exp(x - x.amax(dim))
    return exps / exps.sum(dim)


@wrong("softmax", says="the sum met the wrong axis")
def sum_without_keepdim(x, dim):
    exps = (x - x.amax(dim, keepdim=True)).exp()
    return exps / exps.sum(dim)


@wrong("softmax", says="the base is e")
def base_two(x, dim):
    powers = torch.exp2(x - x.amax(dim, keepdim=True))
    return powers / powers.sum(dim, keepdim=True)


@wrong("softmax", says="that is the logarithm")
def logarithm(x, dim):
    return x - torch.logsumexp(x, dim, keepdim=True)


@wrong("softmax", says="the dtype follows the input")
def single_precision(x, dim):
    return shares(x.float(), dim)


@wrong("softmax")
def double_precision(x, dim):
    return shares(x.double(), dim)


@wrong("softmax", says="small numbers should get small shares")
def softmin(x, dim):
    return shares(-x, dim)


@wrong("softmax", says="exponentiate before you divide")
def shares_of_the_sum(x, dim):
    return x / x.sum(dim, keepdim=True)


@wrong("softmax")
def minimum_subtracted(x, dim):
    exps = (x - x.amin(dim, keepdim=True)).exp()
    return exps / exps.sum(dim, keepdim=True)


@wrong("softmax")
def with_a_small_constant(x, dim):
    exps = (x - x.amax(dim, keepdim=True)).exp()
    return exps / (exps.sum(dim, keepdim=True) + 1e-6)


@wrong("softmax")
def in_place(x, dim):
    x -= x.amax(dim, keepdim=True)
    return x.exp() / x.exp().sum(dim, keepdim=True)


@wrong("softmax")
def detached(x, dim):
    return shares(x.detach(), dim)


@wrong("softmax")
def denominator_detached(x, dim):
    exps = (x - x.amax(dim, keepdim=True).detach()).exp()
    return exps / exps.sum(dim, keepdim=True).detach()


@wrong("softmax")
def clamped(x, dim):
    return shares(x.clamp(-50, 50), dim)


@wrong("softmax")
def minus_infinity_becomes_a_number(x, dim):
    return shares(x.nan_to_num(neginf=-10.0), dim)


@wrong("softmax")
def torchs_function(x, dim):
    return F.softmax(x, dim=dim)


@wrong("softmax")
def torchs_method(x, dim):
    return x.softmax(dim)


@wrong("softmax")
def torchs_module(x, dim):
    return nn.Softmax(dim)(x)


@wrong("softmax")
def through_log_softmax(x, dim):
    return torch.log_softmax(x, dim).exp()


@wrong("softmax")
def softmax_of_the_opposite(x, dim):
    return F.softmin(-x, dim=dim)


# ---------------------------------------------------------------- right


@right("softmax", why="the formula as it stands")
def formula(x, dim):
    return shares(x, dim)


@right("softmax", why="through logsumexp")
def through_logsumexp(x, dim):
    return (x - x.logsumexp(dim, keepdim=True)).exp()


@right("softmax", why="exp2 with a factor, the maximum detached")
def through_exp2(x, dim):
    powers = torch.exp2((x - x.detach().amax(dim, keepdim=True)) * math.log2(math.e))
    return powers / powers.sum(dim, keepdim=True)


@right("softmax", why="moves the axis to the front and back")
def axis_moved(x, dim):
    rows = x.movedim(dim, 0)
    exps = torch.exp(rows - rows.max(0).values)
    return (exps / exps.sum(0)).movedim(0, dim)


@right("softmax", why="unsqueeze in place of keepdim")
def unsqueezed(x, dim):
    top, _ = torch.max(x, dim)
    exps = torch.exp(x - top.unsqueeze(dim))
    return exps * exps.sum(dim).reciprocal().unsqueeze(dim)


@right("softmax", why="slice by slice")
def slice_by_slice(x, dim):
    rows = x.movedim(dim, -1)
    out = torch.stack([shares(row, 0) for row in rows.reshape(-1, rows.shape[-1])])
    return out.reshape(rows.shape).movedim(-1, dim)
