"""unpack_in_proj and sum_of_heads: what stands inside the large matrices."""

import itertools

import torch
import torch.nn.functional as F

from utils import oracle
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase3 import PHASE, rules
from utils.checks.phase3.splitting import OWN_DTYPE, fixture

# ---- unpack_in_proj ------------------------------------------------------------------------------


def reordered(order):
    """The rows of the packed matrices taken in another order: "kqv" calls the first third keys."""

    def wrong(mha):
        right = oracle.unpack_in_proj(mha)
        moved = {f"w_{name}.{part}": right[f"w_{true}.{part}"] for name, true in zip(order, "qkv", strict=True)
                 for part in ("weight", "bias") if f"w_q.{part}" in right}  # fmt: skip
        return right | moved

    return wrong


def transposed(names):
    def wrong(mha):
        right = oracle.unpack_in_proj(mha)
        return right | {f"w_{name}.weight": right[f"w_{name}.weight"].T.contiguous() for name in names}

    return wrong


def without(*endings):
    def wrong(mha):
        return {name: part for name, part in oracle.unpack_in_proj(mha).items() if not name.endswith(endings)}

    return wrong


def biases_always(mha):
    right = oracle.unpack_in_proj(mha)
    zeros = {f"w_{name}.bias": torch.zeros(mha.embed_dim, dtype=mha.out_proj.weight.dtype) for name in "qkvo"}
    return zeros | right


def views(mha):
    """The parameters themselves, in parts."""
    packed = mha.in_proj_weight
    parts = (mha.q_proj_weight, mha.k_proj_weight, mha.v_proj_weight) if packed is None else packed.chunk(3)
    found = {f"w_{name}.weight": part for name, part in zip("qkvo", (*parts, mha.out_proj.weight), strict=True)}
    if mha.in_proj_bias is not None:
        biases = (*mha.in_proj_bias.chunk(3), mha.out_proj.bias)
        found |= {f"w_{name}.bias": part for name, part in zip("qkvo", biases, strict=True)}
    return found


def packed(**options):
    return dict(mha=fixture("packed", **options))


register(
    expected=oracle.unpack_in_proj,
    phase=PHASE,
    section="3.5",
    hint="in_proj_weight holds three matrices of d_model rows, one below the other; out_proj is a layer of its own.",
    fresh=True,
    properties=(rules.attached,),
    cases=(
        case("three heads", packed(d_model=12, n_heads=3)),
        case("one head, another width", packed(d_model=10, n_heads=1)),
        case("without biases", packed(d_model=12, n_heads=4, bias=False)),
        case("keys and values of other widths", packed(d_model=12, n_heads=3, kdim=7, vdim=5)),
        case("other widths, no biases", packed(d_model=6, n_heads=2, kdim=7, vdim=5, bias=False)),
        case("keys of another width alone", packed(d_model=12, n_heads=3, kdim=7)),
        case("three heads, float32", packed(d_model=12, n_heads=3), dtype="float32", repeats="three heads"),
        case("twice", packed(d_model=8, n_heads=2), then=(packed(d_model=8, n_heads=2),)),
    ),
    mistakes={
        "rows come as q, k, v": Replays(
            *(reordered(order) for order in map("".join, itertools.permutations("qkv")) if order != "qkv")
        ),
        "layout is (out, in): nothing is transposed": Replays(
            *map(transposed, ("qkvo", "qkv", "o", "q", "k", "v", "qk"))
        ),
        "w_o was left out: it is out_proj": without("w_o.weight", "w_o.bias"),
        "the biases were left out": without(".bias"),
        "the bias of w_o was left out": without("w_o.bias"),
        "there are no biases where mha has none": biases_always,
        "copies were asked: clone": Replays(
            views, lambda mha: {name: part.detach() for name, part in views(mha).items()}
        ),
        "copies were asked: detach, too": lambda mha: {name: part.clone() for name, part in views(mha).items()},
    },
)

# ---- sum_of_heads --------------------------------------------------------------------------------


def parts_of(heads, w_o):
    return oracle.sum_of_heads(heads, w_o)[1]


def bias_of(w_o):
    return 0.0 if w_o.bias is None else w_o.bias


def with_bias_in_parts(heads, w_o):
    parts = parts_of(heads, w_o) + bias_of(w_o)
    return parts.sum(1), parts


def with_bias_in_parts_only(heads, w_o):
    return oracle.merge_heads(heads) @ w_o.weight.T + bias_of(w_o), parts_of(heads, w_o) + bias_of(w_o)


def rows_of_the_weight(heads, w_o):
    n_heads, d_head = heads.shape[1], heads.shape[3]
    parts = torch.einsum("bhqd,hdm->bhqm", heads, w_o.weight.unflatten(0, (n_heads, d_head)))
    return parts.sum(1) + bias_of(w_o), parts


def rows_transposed(heads, w_o):
    n_heads = heads.shape[1]
    blocks = w_o.weight.chunk(n_heads, 0)  # (H·D, M) cut along the output
    parts = torch.cat([F.linear(oracle.merge_heads(heads), block) for block in blocks], -1)
    return parts + bias_of(w_o), parts[:, None].expand(-1, n_heads, -1, -1)


def interleaved(heads, w_o):
    n_heads, d_head = heads.shape[1], heads.shape[3]
    parts = torch.einsum("bhqd,mdh->bhqm", heads, w_o.weight.unflatten(1, (d_head, n_heads)))
    return parts.sum(1) + bias_of(w_o), parts


def layer(d_in, d_out, bias=True):
    return fixture("linear", d_in=d_in, d_out=d_out, bias=bias)


register(
    expected=oracle.sum_of_heads,
    phase=PHASE,
    section="3.6",
    hint="head h meets columns h·d_head to (h+1)·d_head − 1 of the weight; the bias comes once, at the end.",
    cases=(
        case("three heads", dict(heads=(2, 3, 5, 4), w_o=layer(12, 12))),
        case("another width out", dict(heads=(2, 3, 5, 4), w_o=layer(12, 7))),
        case("no bias", dict(heads=(2, 3, 5, 4), w_o=layer(12, 7, bias=False))),
        case("one head", dict(heads=(2, 1, 5, 4), w_o=layer(4, 9))),
        case("as many heads as tokens and examples", dict(heads=(4, 4, 4, 3), w_o=layer(12, 5))),
        case("one query, heads one wide", dict(heads=(3, 6, 1, 1), w_o=layer(6, 2))),
        case(
            "two layers", dict(heads=(2, 3, 5, 4), w_o=layer(12, 7)), then=(dict(heads=(1, 2, 3, 5), w_o=layer(10, 4)),)
        ),
    ),
    mistakes={
        "the bias belongs to the sum, once": Replays(
            with_bias_in_parts,
            with_bias_in_parts_only,
            lambda heads, w_o: (parts_of(heads, w_o).sum(1) + heads.shape[1] * bias_of(w_o), parts_of(heads, w_o)),
        ),
        "slice the input side": Replays(
            rows_of_the_weight,
            rows_transposed,
            lambda heads, w_o: (oracle.sum_of_heads(heads, w_o)[0], rows_of_the_weight(heads, w_o)[1]),
        ),
        "sum the parts, do not average": lambda heads, w_o: (
            parts_of(heads, w_o).mean(1) + bias_of(w_o),
            parts_of(heads, w_o),
        ),
        "the bias is missing from the sum": lambda heads, w_o: (parts_of(heads, w_o).sum(1), parts_of(heads, w_o)),
        "the features of a head stay together": Replays(
            interleaved,
            lambda heads, w_o: (oracle.sum_of_heads(heads, w_o)[0], interleaved(heads, w_o)[1]),
        ),
        "output comes first, then parts": lambda heads, w_o: oracle.sum_of_heads(heads, w_o)[::-1],
        "parts are (batch, n_heads, q_len, d_out)": lambda heads, w_o: (
            oracle.sum_of_heads(heads, w_o)[0],
            parts_of(heads, w_o).transpose(1, 2),
        ),
        "no gradient reaches w_o": Replays(
            lambda heads, w_o: (oracle.sum_of_heads(heads, w_o)[0], _detached(heads, w_o)),
            lambda heads, w_o: (_detached(heads, w_o).sum(1) + bias_of(w_o), _detached(heads, w_o)),
            lambda heads, w_o: (
                _detached(heads, w_o).sum(1) + (0 if w_o.bias is None else w_o.bias.detach()),
                _detached(heads, w_o),
            ),
        ),
        OWN_DTYPE: Spotted(rules.default_dtype, rules.in_default_dtype(oracle.sum_of_heads)),
    },
)


def _detached(heads, w_o):
    weight = w_o.weight.detach().unflatten(1, (heads.shape[1], heads.shape[3]))
    return torch.einsum("bhqd,mhd->bhqm", heads, weight)
