"""split_heads and merge_heads: wrong solutions and unusual right ones."""

import torch

from tests.bank import right, wrong


def refuse(x, n_heads):
    if x.shape[-1] % n_heads != 0:
        raise ValueError("n_heads does not divide the width")


# ---------------------------------------------------------------- split_heads, wrong


@wrong("split_heads", says="right shape, wrong contents: transpose")
def viewed_at_once(x, n_heads):
    refuse(x, n_heads)
    return x.reshape(*x.shape[:-2], n_heads, x.shape[-2], -1)


@wrong("split_heads", says="right shape, wrong contents: transpose")
def turned_then_viewed(x, n_heads):
    refuse(x, n_heads)
    *first, seq_len, d_model = x.shape
    return x.transpose(-1, -2).reshape(*first, n_heads, seq_len, d_model // n_heads)


@wrong("split_heads", says="heads come before tokens")
def tokens_first(x, n_heads):
    refuse(x, n_heads)
    return x.unflatten(-1, (n_heads, x.shape[-1] // n_heads))


@wrong("split_heads", says="a head holds neighbouring features")
def every_nth_feature(x, n_heads):
    refuse(x, n_heads)
    return torch.stack([x[..., h::n_heads] for h in range(n_heads)], -3)


@wrong("split_heads", says="n_heads is the number of heads, not their width")
def heads_of_that_width(x, n_heads):
    refuse(x, n_heads)
    return torch.stack(x.split(n_heads, -1), -3)


@wrong("split_heads", says="features left over must be refused")
def left_over_dropped(x, n_heads):
    d_head = x.shape[-1] // n_heads
    return torch.stack([x[..., h * d_head : (h + 1) * d_head] for h in range(n_heads)], -3)


@wrong("split_heads")
def another_error(x, n_heads):
    assert x.shape[-1] % n_heads == 0
    return x.unflatten(-1, (n_heads, -1)).transpose(-2, -3)


@wrong("split_heads")
def reshape_refuses(x, n_heads):
    return x.unflatten(-1, (n_heads, x.shape[-1] // n_heads)).transpose(-2, -3)


@wrong("split_heads")
def batch_in_front_only(x, n_heads):
    refuse(x, n_heads)
    batch, seq_len, d_model = x.shape
    return x.view(batch, seq_len, n_heads, d_model // n_heads).transpose(1, 2)


@wrong("split_heads")
def heads_in_front_of_all(x, n_heads):
    refuse(x, n_heads)
    return torch.stack(x.chunk(n_heads, -1))


@wrong("split_heads")
def heads_backwards(x, n_heads):
    refuse(x, n_heads)
    return torch.stack(x.chunk(n_heads, -1)[::-1], -3)


@wrong("split_heads")
def cut_off_from_x(x, n_heads):
    refuse(x, n_heads)
    return torch.stack(x.detach().chunk(n_heads, -1), -3)


# ---------------------------------------------------------------- split_heads, right


@right("split_heads", why="unflatten and movedim")
def moved(x, n_heads):
    refuse(x, n_heads)
    return x.unflatten(-1, (n_heads, x.shape[-1] // n_heads)).movedim(-2, -3)


@right("split_heads", why="slices, stacked")
def stacked_slices(x, n_heads):
    d_head, rest = divmod(x.shape[-1], n_heads)
    if rest:
        raise ValueError(f"{rest} features are left over by n_heads = {n_heads}")
    return torch.stack([x[..., h * d_head : (h + 1) * d_head] for h in range(n_heads)], dim=-3)


@right("split_heads", why="strides, nothing copied")
def strided(x, n_heads):
    refuse(x, n_heads)
    *first, seq_len, d_model = x.shape
    d_head = d_model // n_heads
    *before, row, column = x.stride()
    return x.as_strided((*first, n_heads, seq_len, d_head), (*before, d_head * column, row, column))


@right("split_heads", why="einsum with a table of ones that says which feature belongs to which place of which head")
def by_einsum(x, n_heads):
    refuse(x, n_heads)
    table = torch.eye(x.shape[-1], dtype=x.dtype).view(x.shape[-1], n_heads, -1)
    return torch.einsum("...tm,mhd->...htd", x, table)


@right("split_heads", why="view and permute, contiguous at the end")
def permuted(x, n_heads):
    refuse(x, n_heads)
    axes = list(range(x.dim() + 1))
    axes[-3], axes[-2] = axes[-2], axes[-3]
    return x.view(*x.shape[:-1], n_heads, x.size(-1) // n_heads).permute(axes).contiguous()


# ---------------------------------------------------------------- merge_heads, wrong


@wrong("merge_heads", says="tokens and heads were mixed")
def flattened_as_it_lies(x):
    return x.reshape(*x.shape[:-3], x.shape[-2], -1)


@wrong("merge_heads", says="make it contiguous")
def view_of_a_transpose(x):
    return x.transpose(-2, -3).view(*x.shape[:-3], x.shape[-2], -1)


@wrong("merge_heads", says="concatenate")
def summed(x):
    return x.sum(dim=-3)


@wrong("merge_heads", says="concatenate")
def averaged(x):
    return x.mean(dim=-3)


@wrong("merge_heads", says="the features of a head stay together")
def interleaved(x):
    return torch.stack(x.unbind(-3), -1).flatten(-2)


@wrong("merge_heads", says="the last two axes must become one")
def only_moved(x):
    return x.movedim(-3, -2)


@wrong("merge_heads", says="out is (…, seq_len, n_heads · d_head)")
def tokens_in_a_row(x):
    return torch.cat(x.unbind(-3), -2)


@wrong("merge_heads", says="out is (…, seq_len, n_heads · d_head)")
def one_row_per_head(x):
    return x.flatten(-2)


@wrong("merge_heads")
def heads_merged_backwards(x):
    return torch.cat(x.unbind(-3)[::-1], -1)


@wrong("merge_heads")
def one_leading_axis_only(x):
    batch, n_heads, seq_len, d_head = x.shape
    return x.permute(0, 2, 1, 3).reshape(batch, seq_len, n_heads * d_head)


@wrong("merge_heads")
def first_head_only(x):
    first = x.select(-3, 0)
    return first.repeat(*[1] * (first.dim() - 1), x.shape[-3])


@wrong("merge_heads")
def written_into(x):
    x -= x.mean()
    return torch.cat(x.unbind(-3), -1)


# ---------------------------------------------------------------- merge_heads, right


@right("merge_heads", why="contiguous, then view")
def contiguous_view(x):
    return x.transpose(-3, -2).contiguous().view(*x.shape[:-3], x.shape[-2], x.shape[-3] * x.shape[-1])


@right("merge_heads", why="heads side by side")
def side_by_side(x):
    return torch.cat([x[..., h, :, :] for h in range(x.shape[-3])], dim=-1)


@right("merge_heads", why="flatten")
def flattened(x):
    return x.movedim(-3, -2).flatten(start_dim=-2)


@right("merge_heads", why="filled slice by slice")
def filled(x):
    *first, n_heads, seq_len, d_head = x.shape
    out = x.new_zeros(*first, seq_len, n_heads * d_head)
    for h in range(n_heads):
        out[..., h * d_head : (h + 1) * d_head] = x[..., h, :, :]
    return out


@right("merge_heads", why="einsum with a table of ones")
def merged_by_einsum(x):
    n_heads, d_head = x.shape[-3], x.shape[-1]
    table = torch.eye(n_heads * d_head, dtype=x.dtype).view(n_heads, d_head, -1)
    return torch.einsum("...htd,hdm->...tm", x, table)
