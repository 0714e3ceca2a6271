"""split_heads, merge_heads, shape_trace, mha_parameters: what a hurried student writes, and what an expert would."""

import torch
from torch import nn

from tests.bank import right, wrong

# ---------------------------------------------------------------- split_heads

LEADING = "any leading axes: count axes from the right"
OWN_DTYPE = "new tensors need the dtype of their input: x.new_zeros(…), or dtype=x.dtype"


def whole(x, n_heads):
    if x.shape[-1] % n_heads:
        raise ValueError("n_heads must divide d_model")
    return x.shape[-1] // n_heads


@wrong("split_heads", says=LEADING)
def three_axes_only(x, n_heads):
    d_head = whole(x, n_heads)
    batch, seq_len, _ = x.shape
    return x.reshape(batch, seq_len, n_heads, d_head).transpose(1, 2)


@wrong("split_heads", says=OWN_DTYPE)
def into_zeros(x, n_heads):
    d_head = whole(x, n_heads)
    out = torch.zeros(*x.shape[:-2], n_heads, x.shape[-2], d_head)
    for head in range(n_heads):
        out[..., head, :, :] = x[..., head * d_head : (head + 1) * d_head]
    return out


@wrong("split_heads")
def asserted(x, n_heads):
    assert x.shape[-1] % n_heads == 0, "n_heads must divide d_model"
    return x.reshape(*x.shape[:-1], n_heads, -1).transpose(-3, -2)


@wrong("split_heads")
def axes_from_the_left(x, n_heads):
    return x.reshape(*x.shape[:-1], n_heads, whole(x, n_heads)).transpose(1, 2)


@wrong("split_heads")
def a_list_of_heads(x, n_heads):
    return list(x.split(whole(x, n_heads), dim=-1))


@wrong("split_heads")
def heads_stacked_last(x, n_heads):
    whole(x, n_heads)
    return torch.stack(x.chunk(n_heads, -1), dim=-1)


@right("split_heads", why="filled into new_empty")
def into_new_empty(x, n_heads):
    d_head = whole(x, n_heads)
    out = x.new_empty(*x.shape[:-2], n_heads, x.shape[-2], d_head)
    for head in range(n_heads):
        out[..., head, :, :] = x[..., head * d_head : (head + 1) * d_head]
    return out


@right("split_heads", why="features gathered by index, with a ValueError of a kind of its own")
def by_index(x, n_heads):
    class NotWhole(ValueError):
        pass

    d_head, rest = divmod(x.shape[-1], n_heads)
    if rest:
        raise NotWhole(f"{n_heads} heads do not fit")
    return x[..., torch.arange(n_heads * d_head).view(n_heads, d_head)].transpose(-3, -2)


@right("split_heads", why="unfold along the features")
def by_unfold(x, n_heads):
    d_head = whole(x, n_heads)
    return x.unfold(-1, d_head, d_head).movedim(-2, -3)


# ---------------------------------------------------------------- merge_heads


@wrong("merge_heads", says=LEADING)
def four_axes_only(x):
    batch, n_heads, seq_len, d_head = x.shape
    return x.transpose(1, 2).reshape(batch, seq_len, n_heads * d_head)


@wrong("merge_heads", says=OWN_DTYPE)
def filled_into_zeros(x):
    *lead, n_heads, seq_len, d_head = x.shape
    out = torch.zeros(*lead, seq_len, n_heads * d_head)
    for head in range(n_heads):
        out[..., head * d_head : (head + 1) * d_head] = x[..., head, :, :]
    return out


@wrong("merge_heads")
def last_two_exchanged(x):
    return x.transpose(-2, -1).flatten(-3, -2).transpose(-2, -1).flip(-1)


@wrong("merge_heads", says="tokens and heads were mixed")
def contiguous_then_view(x):
    *lead, n_heads, seq_len, d_head = x.shape
    return x.contiguous().view(*lead, seq_len, n_heads * d_head)


@wrong("merge_heads", says="out is (…, seq_len, n_heads · d_head)")
def heads_below_one_another(x):
    return torch.cat(x.unbind(-3), dim=-2)


@wrong("merge_heads")
def a_list(x):
    return x.transpose(-3, -2).flatten(-2).tolist()


@wrong("merge_heads")
def cut_off(x):
    return torch.tensor(x.transpose(-3, -2).flatten(-2).tolist(), dtype=x.dtype)


@right("merge_heads", why="cat, one head after the other")
def concatenated_in_a_loop(x):
    out = x[..., 0, :, :]
    for head in range(1, x.shape[-3]):
        out = torch.cat([out, x[..., head, :, :]], dim=-1)
    return out


@right("merge_heads", why="permute with counted axes, reshape(-1)")
def permuted(x):
    axes = list(range(x.dim()))
    axes[-3], axes[-2] = axes[-2], axes[-3]
    return x.permute(axes).reshape(*x.shape[:-3], x.shape[-2], -1)


@right("merge_heads", why="padded blocks, added")
def added_blocks(x):
    n_heads, d_head = x.shape[-3], x.shape[-1]
    blocks = [nn.functional.pad(x[..., h, :, :], (h * d_head, (n_heads - 1 - h) * d_head)) for h in range(n_heads)]
    return sum(blocks)


# ---------------------------------------------------------------- shape_trace


def written(batch, seq_len, d_model, n_heads):
    if d_model % n_heads:
        raise ValueError("n_heads must divide d_model")
    d_head = d_model // n_heads
    shapes = dict.fromkeys(("x", "q", "k", "v", "merged", "output"), (batch, seq_len, d_model))
    shapes |= dict.fromkeys(("q_heads", "v_heads", "heads"), (batch, n_heads, seq_len, d_head))
    shapes |= dict.fromkeys(("scores", "attn_weights"), (batch, n_heads, seq_len, seq_len))
    return shapes | {"k_heads_transposed": (batch, n_heads, d_head, seq_len)}


@wrong("shape_trace", says="every head has its own scores")
def scores_of_the_batch(batch, seq_len, d_model, n_heads):
    shape = (batch, seq_len, seq_len)
    return written(batch, seq_len, d_model, n_heads) | {"scores": shape, "attn_weights": shape}


@wrong("shape_trace", says="scores are query by key: (…, seq_len, seq_len)")
def weights_mixed_already(batch, seq_len, d_model, n_heads):
    shape = (batch, n_heads, seq_len, d_model // n_heads)
    return written(batch, seq_len, d_model, n_heads) | {"attn_weights": shape}


@wrong("shape_trace", says="q, k and v are before the split")
def split_at_once(batch, seq_len, d_model, n_heads):
    shape = (batch, n_heads, seq_len, d_model // n_heads)
    return written(batch, seq_len, d_model, n_heads) | dict.fromkeys(("q", "k", "v"), shape)


@wrong("shape_trace", says="a head is d_model / n_heads wide")
def only_the_mix_is_wide(batch, seq_len, d_model, n_heads):
    return written(batch, seq_len, d_model, n_heads) | {"heads": (batch, n_heads, seq_len, d_model)}


@right("shape_trace", why="lists: nothing is done with them but reading")
def lists(batch, seq_len, d_model, n_heads):
    return {key: list(shape) for key, shape in written(batch, seq_len, d_model, n_heads).items()}


@wrong("shape_trace", says="q, k and v are before the split")
def as_wide_as_a_head(batch, seq_len, d_model, n_heads):
    shape = (batch, seq_len, d_model // n_heads)
    return written(batch, seq_len, d_model, n_heads) | dict.fromkeys(("q", "k", "v"), shape)


@wrong("shape_trace", says="merging fills d_model again")
def merged_without_the_width(batch, seq_len, d_model, n_heads):
    return written(batch, seq_len, d_model, n_heads) | {"merged": (batch, seq_len, n_heads)}


@right("shape_trace", why="shapes of nn.Linear's answers")
def through_layers(batch, seq_len, d_model, n_heads):
    if d_model % n_heads:
        raise ValueError("no whole heads")
    x = torch.zeros(batch, seq_len, d_model)
    q = k = v = nn.Linear(d_model, d_model)(x)
    cut = q.unflatten(-1, (n_heads, -1)).transpose(1, 2)
    scores = cut @ cut.mT
    heads = scores @ cut
    merged = heads.transpose(1, 2).flatten(2)
    steps = dict(x=x, q=q, k=k, v=v, q_heads=cut, k_heads_transposed=cut.mT, v_heads=cut, scores=scores)
    steps |= dict(attn_weights=scores.softmax(-1), heads=heads, merged=merged, output=merged)
    return {key: step.shape for key, step in steps.items()}


@right("shape_trace", why="OrderedDict-like update of one dict")
def updated(batch, seq_len, d_model, n_heads):
    out = {}
    for key, shape in written(batch, seq_len, d_model, n_heads).items():
        out[key] = torch.Size(shape)
    return out


@right("shape_trace", why="on the meta device")
def on_meta(batch, seq_len, d_model, n_heads):
    shapes = written(batch, seq_len, d_model, n_heads)
    return {key: tuple(torch.empty(shape, device="meta").shape) for key, shape in shapes.items()}


# ---------------------------------------------------------------- mha_parameters


def refuse(d_model, n_heads, n_kv_heads):
    if d_model % n_heads or n_heads % n_kv_heads:
        raise ValueError("n_heads must divide d_model, n_kv_heads must divide n_heads")
    return d_model // n_heads * n_kv_heads


@wrong("mha_parameters", says="keys and values have n_kv_heads")
def times_four(d_model, n_heads, n_kv_heads, bias):
    refuse(d_model, n_heads, n_kv_heads)
    return 4 * (d_model * d_model + bias * d_model)


@wrong("mha_parameters")
def one_narrow_matrix(d_model, n_heads, n_kv_heads, bias):
    narrow = refuse(d_model, n_heads, n_kv_heads)
    return sum((d_model + bool(bias)) * width for width in (d_model, d_model, narrow, d_model))


@wrong("mha_parameters")
def d_head_only(d_model, n_heads, n_kv_heads, bias):
    refuse(d_model, n_heads, n_kv_heads)
    return sum((d_model + bool(bias)) * width for width in (d_model, d_model // n_heads, d_model // n_heads, d_model))


@wrong("mha_parameters")
def n_kv_heads_times_model(d_model, n_heads, n_kv_heads, bias):
    refuse(d_model, n_heads, n_kv_heads)
    return 2 * (d_model + bool(bias)) * d_model + 2 * (d_model + bool(bias)) * n_kv_heads


@wrong("mha_parameters", says="bias was ignored")
def bias_is_a_word(d_model, n_heads, n_kv_heads, bias):
    narrow = refuse(d_model, n_heads, n_kv_heads)
    return 2 * d_model * (d_model + narrow) + (0 if bias is not None else 1)


@wrong("mha_parameters", says="return an int")
def as_a_tensor_would(d_model, n_heads, n_kv_heads, bias):
    refuse(d_model, n_heads, n_kv_heads)
    return 2 * (d_model + bool(bias)) * (d_model + d_model / n_heads * n_kv_heads)


@right("mha_parameters", why="one's own layer is built and counted")
def own_layer_counted(d_model, n_heads, n_kv_heads, bias):
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            narrow = refuse(d_model, n_heads, n_kv_heads)
            self.w_q, self.w_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
            self.w_k, self.w_v = nn.Linear(d_model, narrow), nn.Linear(d_model, narrow)

    return sum(part.numel() for name, part in Layer().named_parameters() if bias or "bias" not in name)


@right("mha_parameters", why="a fused layer and an output layer")
def fused(d_model, n_heads, n_kv_heads, bias):
    wide = d_model + 2 * refuse(d_model, n_heads, n_kv_heads)
    layers = nn.Linear(d_model, wide, bias=bool(bias)), nn.Linear(d_model, d_model, bias=bool(bias))
    return sum(part.numel() for layer in layers for part in layer.parameters())


@right("mha_parameters", why="weights and biases apart")
def apart(d_model, n_heads, n_kv_heads, bias):
    widths = [d_model, *2 * [refuse(d_model, n_heads, n_kv_heads)], d_model]
    return d_model * sum(widths) + (sum(widths) if bias else 0)
