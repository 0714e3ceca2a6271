"""unpack_in_proj, sum_of_heads, attention_dropout, alibi_bias: what hurried students write, and what experts would."""

import math

import torch
from torch.nn import functional as F

from tests.bank import right, wrong

OWN_DTYPE = "new tensors need the dtype of their input: x.new_zeros(…), or dtype=x.dtype"
NAMES = ("w_q", "w_k", "w_v", "w_o")

# ---------------------------------------------------------------- unpack_in_proj


def parts_of(mha):
    """(four weights, four biases or Nones), the parameters themselves."""
    packed = mha.in_proj_weight
    weights = (mha.q_proj_weight, mha.k_proj_weight, mha.v_proj_weight) if packed is None else packed.chunk(3)
    biases = [None] * 4 if mha.in_proj_bias is None else [*mha.in_proj_bias.chunk(3), mha.out_proj.bias]
    return [*weights, mha.out_proj.weight], biases


def named(weights, biases):
    found = {f"{name}.weight": part.detach().clone() for name, part in zip(NAMES, weights, strict=True)}
    rest = {f"{name}.bias": part.detach().clone() for name, part in zip(NAMES, biases, strict=True) if part is not None}
    return found | rest


@wrong("unpack_in_proj", says="rows come as q, k, v")
def values_before_keys(mha):
    (q, k, v, o), (a, b, c, d) = parts_of(mha)
    return named((q, v, k, o), (a, c, b, d))


@wrong("unpack_in_proj")
def none_for_absent(mha):
    weights, biases = parts_of(mha)
    return named(weights, biases) | {f"{name}.bias": None for name, part in zip(NAMES, biases, strict=True)
                                     if part is None}  # fmt: skip


@wrong("unpack_in_proj")
def names_of_torch(mha):
    return {key: part.detach().clone() for key, part in mha.state_dict().items()}


@wrong("unpack_in_proj")
def biases_needed(mha):
    weights, _ = parts_of(mha)
    return named(weights, [*mha.in_proj_bias.chunk(3), mha.out_proj.bias])


@wrong("unpack_in_proj", says="copies were asked: clone")
def detached_only(mha):
    weights, biases = parts_of(mha)
    found = {f"{name}.weight": part.detach() for name, part in zip(NAMES, weights, strict=True)}
    return found | {f"{name}.bias": part.detach() for name, part in zip(NAMES, biases, strict=True)
                    if part is not None}  # fmt: skip


@wrong("unpack_in_proj", says="the bias of w_o was left out")
def three_biases(mha):
    weights, biases = parts_of(mha)
    return named(weights, [*biases[:3], None])


@right("unpack_in_proj", why="unflatten, unbind")
def unbound(mha):
    weights, biases = parts_of(mha)
    if mha.in_proj_weight is not None:
        weights = [*mha.in_proj_weight.unflatten(0, (3, mha.embed_dim)).unbind(0), mha.out_proj.weight]
    return named(weights, biases)


@right("unpack_in_proj", why="deep copies of the data")
def copied_data(mha):
    return {key: torch.tensor(part.tolist(), dtype=part.dtype) for key, part in named(*parts_of(mha)).items()}


@right("unpack_in_proj", why="under no_grad, plus 0")
@torch.no_grad()
def plus_nothing(mha):
    weights, biases = parts_of(mha)
    found = {f"{name}.weight": part + 0 for name, part in zip(NAMES, weights, strict=True)}
    return found | {f"{name}.bias": part + 0 for name, part in zip(NAMES, biases, strict=True) if part is not None}


# ---------------------------------------------------------------- sum_of_heads


def slices(heads, w_o):
    d_head = heads.shape[-1]
    return [w_o.weight[:, h * d_head : (h + 1) * d_head] for h in range(heads.shape[1])]


def plus_bias(out, w_o):
    return out if w_o.bias is None else out + w_o.bias


def together(heads, w_o):
    return torch.stack([heads[:, h] @ block.T for h, block in enumerate(slices(heads, w_o))], dim=1)


@wrong("sum_of_heads", says="slice the input side")
def rows_of_the_weight(heads, w_o):
    d_head = heads.shape[-1]
    parts = [heads[:, h] @ w_o.weight[h * d_head : (h + 1) * d_head] for h in range(heads.shape[1])]
    return w_o(heads.transpose(1, 2).flatten(2)), torch.stack(parts, dim=1)


@wrong("sum_of_heads", says=OWN_DTYPE)
def parts_in_zeros(heads, w_o):
    batch, n_heads, q_len, _ = heads.shape
    parts = torch.zeros(batch, n_heads, q_len, w_o.out_features)
    for h, block in enumerate(slices(heads, w_o)):
        parts[:, h] = heads[:, h] @ block.T
    return plus_bias(parts.sum(1), w_o), parts


@wrong("sum_of_heads")
def bias_taken_for_granted(heads, w_o):
    parts = together(heads, w_o)
    return parts.sum(1) + w_o.bias, parts


@wrong("sum_of_heads", says="parts are (batch, n_heads, q_len, d_out)")
def stacked_behind_the_queries(heads, w_o):
    parts = torch.stack([heads[:, h] @ block.T for h, block in enumerate(slices(heads, w_o))], dim=2)
    return plus_bias(parts.sum(2), w_o), parts


@wrong("sum_of_heads", says="the bias belongs to the sum, once")
def each_through_a_layer(heads, w_o):
    parts = [F.linear(heads[:, h], block, w_o.bias) for h, block in enumerate(slices(heads, w_o))]
    return torch.stack(parts, 1).sum(1), torch.stack(parts, 1)


@wrong("sum_of_heads")
def a_list_of_parts(heads, w_o):
    parts = [heads[:, h] @ block.T for h, block in enumerate(slices(heads, w_o))]
    return plus_bias(sum(parts), w_o), parts


@wrong("sum_of_heads", says="the features of a head stay together")
def every_head_th_column(heads, w_o):
    n_heads = heads.shape[1]
    parts = torch.stack([heads[:, h] @ w_o.weight[:, h::n_heads].T for h in range(n_heads)], dim=1)
    return w_o(heads.transpose(1, 2).flatten(2)), parts


@right("sum_of_heads", why="parts in new_zeros")
def parts_in_new_zeros(heads, w_o):
    batch, n_heads, q_len, _ = heads.shape
    parts = heads.new_zeros(batch, n_heads, q_len, w_o.out_features)
    for h, block in enumerate(slices(heads, w_o)):
        parts[:, h] = heads[:, h] @ block.T
    return plus_bias(parts.sum(1), w_o), parts


@right("sum_of_heads", why="a list, as Python sums")
def python_sum(heads, w_o):
    parts = [F.linear(heads[:, h], block) for h, block in enumerate(slices(heads, w_o))]
    return plus_bias(sum(parts), w_o), torch.stack(parts, 1)


@right("sum_of_heads", why="matmul with (H, D, M)")
def by_matmul(heads, w_o):
    blocks = w_o.weight.T.reshape(heads.shape[1], heads.shape[3], -1)
    parts = heads.matmul(blocks)
    return w_o(heads.movedim(1, 2).flatten(-2)), parts


# ---------------------------------------------------------------- attention_dropout


def refuse(p):
    if not 0 <= p < 1:
        raise ValueError(f"p = {p}")


@wrong("attention_dropout", says="each weight is dropped on its own")
def rows_at_once(weights, p, generator):
    refuse(p)
    return weights * (torch.rand(*weights.shape[:-1], 1, generator=generator) >= p) / (1 - p)


@wrong("attention_dropout", says="each weight is dropped on its own")
def heads_at_once(weights, p, generator):
    refuse(p)
    return weights * (torch.rand(weights.shape[0], 1, *weights.shape[2:], generator=generator) >= p) / (1 - p)


@wrong("attention_dropout", says="all chance comes from the generator")
def rand_like(weights, p, generator):
    refuse(p)
    return weights * (torch.rand_like(weights) >= p) / (1 - p)


@wrong("attention_dropout")
def functional(weights, p, generator):
    refuse(p)
    torch.manual_seed(generator.initial_seed())
    return F.dropout(weights, p, True)


@wrong("attention_dropout")
def divided_by_p(weights, p, generator):
    refuse(p)
    return weights * (torch.rand(weights.shape, generator=generator) >= p) / max(p, 1e-9)


@wrong("attention_dropout", says="p is the share that is dropped")
def bernoulli_of_p(weights, p, generator):
    refuse(p)
    keep = torch.empty_like(weights).bernoulli_(p, generator=generator)
    return weights * keep / (1 - p)


@wrong("attention_dropout")
def hidden_as_in_a_mask(weights, p, generator):
    refuse(p)
    return weights.masked_fill(torch.rand(weights.shape, generator=generator) < p, float("-inf")) / (1 - p)


@right("attention_dropout", why="where, a number for each weight in its dtype")
def by_where(weights, p, generator):
    refuse(p)
    chance = torch.rand(weights.shape, generator=generator, dtype=weights.dtype)
    return torch.where(chance < p, 0, weights / (1 - p))


@right("attention_dropout", why="multinomial draws of keep or drop")
def by_multinomial(weights, p, generator):
    refuse(p)
    chances = torch.tensor([p, 1 - p]).expand(weights.numel(), 2)
    keep = torch.multinomial(chances, 1, generator=generator).view(weights.shape)
    return weights * keep / (1 - p)


@right("attention_dropout", why="integers below a million")
def by_integers(weights, p, generator):
    refuse(p)
    numbers = torch.randint(1_000_000, weights.shape, generator=generator)
    return weights * (numbers >= round(p * 1_000_000)).to(weights.dtype) * (1 / (1 - p))


# ---------------------------------------------------------------- alibi_bias


def slopes_of(n_heads):
    def powers(n):
        return [2.0 ** (-8 * h / n) for h in range(1, n + 1)]

    lower = 2 ** int(math.log2(n_heads))
    return torch.tensor(powers(lower) + powers(2 * lower)[::2][: n_heads - lower])


def distance(q_len, kv_len):
    return torch.arange(q_len)[:, None] + kv_len - q_len - torch.arange(kv_len)


@wrong("alibi_bias", says="align to the end")
def first_query_first(n_heads, q_len, kv_len):
    gap = torch.arange(q_len)[:, None] - torch.arange(kv_len)
    return -slopes_of(n_heads)[:, None, None] * gap


@wrong("alibi_bias")
def no_queries(n_heads, q_len, kv_len):
    return -slopes_of(n_heads)[:, None] * distance(1, kv_len)


@wrong("alibi_bias", says="far keys must lose: the sign")
def keys_minus_queries_negated(n_heads, q_len, kv_len):
    return slopes_of(n_heads)[:, None, None] * distance(q_len, kv_len)


@wrong("alibi_bias", says="six is no power of 2")
def one_ratio(n_heads, q_len, kv_len):
    steps = torch.arange(1, n_heads + 1) / n_heads
    return -(2.0 ** (-8 * steps))[:, None, None] * distance(q_len, kv_len)


@wrong("alibi_bias")
def next_power_cut_short(n_heads, q_len, kv_len):
    higher = 2 ** math.ceil(math.log2(n_heads))
    return -slopes_of(higher)[:n_heads, None, None] * distance(q_len, kv_len)


@wrong("alibi_bias", says="every other of the finer slopes")
def finer_without_gaps(n_heads, q_len, kv_len):
    lower = 2 ** int(math.log2(n_heads))
    slopes = torch.cat([slopes_of(lower), slopes_of(2 * lower)[: n_heads - lower]])
    return -slopes[:, None, None] * distance(q_len, kv_len)


@wrong("alibi_bias")
def whole_numbers(n_heads, q_len, kv_len):
    return (-slopes_of(n_heads)[:, None, None] * distance(q_len, kv_len)).double().float().half()


@right("alibi_bias", why="clamped: later keys at 0")
def clamped(n_heads, q_len, kv_len):
    return -slopes_of(n_heads)[:, None, None] * distance(q_len, kv_len).clamp(min=0)


@right("alibi_bias", why="einsum of slopes and a table")
def by_einsum(n_heads, q_len, kv_len):
    slopes = slopes_of(n_heads)
    return torch.einsum("h,qk->hqk", -slopes, distance(q_len, kv_len).to(slopes.dtype))


@right("alibi_bias", why="outer products in NumPy's order, log space")
def in_log_space(n_heads, q_len, kv_len):
    return torch.stack([-slope * distance(q_len, kv_len) for slope in slopes_of(n_heads).log().exp()])
