"""unpack_in_proj and sum_of_heads: wrong solutions and unusual right ones."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.bank import right, wrong


def matrices(mha):
    if mha.in_proj_weight is None:
        return mha.q_proj_weight, mha.k_proj_weight, mha.v_proj_weight
    return mha.in_proj_weight.split(mha.embed_dim)


def copied(weights, biases=None):
    found = {f"w_{name}.weight": weight.detach().clone() for name, weight in zip("qkvo", weights, strict=True)}
    if biases is not None:
        found |= {f"w_{name}.bias": bias.detach().clone() for name, bias in zip("qkvo", biases, strict=True)}
    return found


def biases(mha):
    return None if mha.in_proj_bias is None else (*mha.in_proj_bias.chunk(3), mha.out_proj.bias)


# ---------------------------------------------------------------- unpack_in_proj, wrong


@wrong("unpack_in_proj", says="rows come as q, k, v")
def keys_first(mha):
    k, q, v = matrices(mha)
    both = biases(mha)
    return copied((q, k, v, mha.out_proj.weight), None if both is None else (both[1], both[0], *both[2:]))


@wrong("unpack_in_proj", says="layout is (out, in): nothing is transposed")
def all_transposed(mha):
    return copied([part.T for part in (*matrices(mha), mha.out_proj.weight)], biases(mha))


@wrong("unpack_in_proj", says="layout is (out, in): nothing is transposed")
def output_transposed(mha):
    return copied((*matrices(mha), mha.out_proj.weight.T), biases(mha))


@wrong("unpack_in_proj", says="w_o was left out: it is out_proj")
def three_only(mha):
    found = copied((*matrices(mha), mha.out_proj.weight), biases(mha))
    return {name: part for name, part in found.items() if not name.startswith("w_o")}


@wrong("unpack_in_proj", says="the biases were left out")
def weights_only(mha):
    return copied((*matrices(mha), mha.out_proj.weight))


@wrong("unpack_in_proj", says="there are no biases where mha has none")
def zeros_instead(mha):
    both = biases(mha)
    zeros = torch.zeros(4, mha.embed_dim, dtype=mha.out_proj.weight.dtype)
    return copied((*matrices(mha), mha.out_proj.weight), zeros if both is None else both)


@wrong("unpack_in_proj", says="copies were asked: clone")
def views_of_it(mha):
    with torch.no_grad():
        found = {
            f"w_{name}.weight": part for name, part in zip("qkvo", (*matrices(mha), mha.out_proj.weight), strict=True)
        }
        if mha.in_proj_bias is not None:
            found |= {f"w_{name}.bias": part for name, part in zip("qkvo", biases(mha), strict=True)}
        return {name: part.detach() for name, part in found.items()}


@wrong("unpack_in_proj", says="copies were asked: detach, too")
def clones_that_hang_on(mha):
    found = {
        f"w_{name}.weight": part.clone()
        for name, part in zip("qkvo", (*matrices(mha), mha.out_proj.weight), strict=True)
    }
    if mha.in_proj_bias is not None:
        found |= {f"w_{name}.bias": part.clone() for name, part in zip("qkvo", biases(mha), strict=True)}
    return found


@wrong("unpack_in_proj")
def packed_only(mha):
    return copied((*mha.in_proj_weight.chunk(3), mha.out_proj.weight), biases(mha))


@wrong("unpack_in_proj")
def cut_by_columns(mha):
    if mha.in_proj_weight is None:
        return copied((*matrices(mha), mha.out_proj.weight), biases(mha))
    return copied((*mha.in_proj_weight.chunk(3, dim=1), mha.out_proj.weight), biases(mha))


@wrong("unpack_in_proj")
def every_third_row(mha):
    if mha.in_proj_weight is None:
        return copied((*matrices(mha), mha.out_proj.weight), biases(mha))
    return copied((*(mha.in_proj_weight[n::3] for n in range(3)), mha.out_proj.weight), biases(mha))


@wrong("unpack_in_proj")
def emptied(mha):
    found = copied((*matrices(mha), mha.out_proj.weight), biases(mha))
    mha.requires_grad_(False)
    with torch.no_grad():
        mha.out_proj.weight.zero_()
    return found


# ---------------------------------------------------------------- unpack_in_proj, right


@right("unpack_in_proj", why="slices by hand")
def sliced(mha):
    width, state = mha.embed_dim, mha.state_dict()
    found = {"w_o.weight": state["out_proj.weight"].clone()}
    for place, name in enumerate("qkv"):
        rows = slice(place * width, (place + 1) * width)
        separate = state.get(f"{name}_proj_weight")
        found[f"w_{name}.weight"] = (state["in_proj_weight"][rows] if separate is None else separate).clone()
        if "in_proj_bias" in state:
            found[f"w_{name}.bias"] = state["in_proj_bias"][rows].clone()
    if "out_proj.bias" in state:
        found["w_o.bias"] = state["out_proj.bias"].clone()
    return found


@right("unpack_in_proj", why="nn.Parameter, keys in another order")
def as_parameters(mha):
    found = copied((*matrices(mha), mha.out_proj.weight), biases(mha))
    return {name: nn.Parameter(found[name]) for name in sorted(found, reverse=True)}


@right("unpack_in_proj", why="a deep copy of the whole module, taken apart")
def deeply_copied(mha):
    mha = copy.deepcopy(mha).requires_grad_(False)
    found = {f"w_{name}.weight": part for name, part in zip("qkvo", (*matrices(mha), mha.out_proj.weight), strict=True)}
    if mha.in_proj_bias is not None:
        found.update({f"w_{name}.bias": part for name, part in zip("qkvo", biases(mha), strict=True)})
    return found


@right("unpack_in_proj", why="through the state_dict of layers")
def through_layers(mha):
    found = {}
    both = biases(mha)
    for place, (name, weight) in enumerate(zip("qkvo", (*matrices(mha), mha.out_proj.weight), strict=True)):
        layer = torch.nn.utils.skip_init(
            nn.Linear, weight.shape[1], weight.shape[0], bias=both is not None, dtype=weight.dtype
        )
        parts = {"weight": weight} | ({} if both is None else {"bias": both[place]})
        layer.load_state_dict(parts)
        found.update({f"w_{name}.{part}": value for part, value in layer.state_dict().items()})
    return found


# ---------------------------------------------------------------- sum_of_heads, wrong


def columns(heads, w_o):
    return w_o.weight.split(heads.shape[-1], dim=1)


def all_parts(heads, w_o):
    return torch.stack(
        [F.linear(head, part) for head, part in zip(heads.unbind(1), columns(heads, w_o), strict=True)], 1
    )


def bias(w_o):
    return 0 if w_o.bias is None else w_o.bias


@wrong("sum_of_heads", says="the bias belongs to the sum, once")
def bias_in_every_part(heads, w_o):
    parts = all_parts(heads, w_o) + bias(w_o)
    return parts.sum(1), parts


@wrong("sum_of_heads", says="the bias belongs to the sum, once")
def bias_shown_in_parts(heads, w_o):
    parts = all_parts(heads, w_o)
    return parts.sum(1) + bias(w_o), parts + bias(w_o)


@wrong("sum_of_heads", says="slice the input side")
def rows_instead(heads, w_o):
    rows = w_o.weight.split(heads.shape[-1], dim=0)
    parts = torch.stack([head @ part for head, part in zip(heads.unbind(1), rows, strict=True)], 1)
    return parts.sum(1) + bias(w_o), parts


@wrong("sum_of_heads", says="sum the parts, do not average")
def mean_of_parts(heads, w_o):
    parts = all_parts(heads, w_o)
    return parts.mean(1) + bias(w_o), parts


@wrong("sum_of_heads", says="the bias is missing from the sum")
def no_bias(heads, w_o):
    parts = all_parts(heads, w_o)
    return parts.sum(1), parts


@wrong("sum_of_heads", says="output comes first, then parts")
def parts_first(heads, w_o):
    parts = all_parts(heads, w_o)
    return parts, parts.sum(1) + bias(w_o)


@wrong("sum_of_heads", says="the features of a head stay together")
def every_nth_column(heads, w_o):
    n_heads = heads.shape[1]
    parts = torch.stack([F.linear(heads[:, h], w_o.weight[:, h::n_heads]) for h in range(n_heads)], 1)
    return parts.sum(1) + bias(w_o), parts


@wrong("sum_of_heads", says="no gradient reaches w_o")
def by_the_data(heads, w_o):
    blocks = w_o.weight.data.split(heads.shape[-1], dim=1)
    parts = torch.stack([head @ block.T for head, block in zip(heads.unbind(1), blocks, strict=True)], 1)
    return parts.sum(1) + bias(w_o), parts


@wrong("sum_of_heads")
def output_only(heads, w_o):
    return w_o(heads.transpose(1, 2).flatten(2))


@wrong("sum_of_heads")
def parts_are_heads(heads, w_o):
    return w_o(heads.transpose(1, 2).flatten(2)), heads


@wrong("sum_of_heads")
def mixed_tokens(heads, w_o):
    return w_o(heads.reshape(len(heads), heads.shape[2], -1)), all_parts(heads, w_o)


@wrong("sum_of_heads")
def bias_shared_out(heads, w_o):
    parts = all_parts(heads, w_o) + bias(w_o) / heads.shape[1]
    return parts.sum(1), parts


@wrong("sum_of_heads")
def bias_taken_from_the_layer(heads, w_o):
    found = w_o(heads.transpose(1, 2).flatten(2)), all_parts(heads, w_o)
    w_o.bias = None
    return found


# ---------------------------------------------------------------- sum_of_heads, right


@right("sum_of_heads", why="chunks of the weight, output by the layer itself")
def by_the_layer(heads, w_o):
    return w_o(heads.transpose(1, 2).flatten(2)), all_parts(heads, w_o)


@right("sum_of_heads", why="einsum, bias added in place")
def by_einsum(heads, w_o):
    blocks = w_o.weight.view(w_o.out_features, heads.shape[1], heads.shape[3])
    parts = torch.einsum("ohd,bhqd->bhqo", blocks, heads)
    out = parts.sum(1)
    return (out if w_o.bias is None else out.add_(w_o.bias)), parts


@right("sum_of_heads", why="one head at a time through the whole layer, the others at 0, the bias taken off")
def one_at_a_time(heads, w_o):
    n_heads, empty = heads.shape[1], torch.zeros_like(heads)
    nothing = w_o(empty.transpose(1, 2).flatten(2))
    parts = []
    for h in range(n_heads):
        alone = torch.cat([heads[:, n : n + 1] if n == h else empty[:, n : n + 1] for n in range(n_heads)], 1)
        parts.append(w_o(alone.transpose(1, 2).flatten(2)) - nothing)
    parts = torch.stack(parts, 1)
    return parts.sum(1) + bias(w_o), parts


@right("sum_of_heads", why="a batched matrix product with block matrices")
def batched(heads, w_o):
    blocks = torch.stack(columns(heads, w_o)).mT[None]  # (1, H, D, M)
    parts = torch.matmul(heads, blocks)
    return sum(parts.unbind(1), start=torch.zeros_like(parts[:, 0])) + bias(w_o), parts
