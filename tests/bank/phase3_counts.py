"""shape_trace and mha_parameters: wrong solutions and unusual right ones."""

import math

import torch
from torch import nn

from tests.bank import right, wrong


def trace(batch, seq_len, d_model, n_heads):
    if d_model % n_heads:
        raise ValueError("n_heads")
    width = d_model // n_heads
    whole, head, square = (
        (batch, seq_len, d_model),
        (batch, n_heads, seq_len, width),
        (batch, n_heads, seq_len, seq_len),
    )
    return {
        "x": whole,
        "q": whole,
        "k": whole,
        "v": whole,
        "q_heads": head,
        "k_heads_transposed": (batch, n_heads, width, seq_len),
        "v_heads": head,
        "scores": square,
        "attn_weights": square,
        "heads": head,
        "merged": whole,
        "output": whole,
    }


# ---------------------------------------------------------------- shape_trace, wrong


@wrong("shape_trace", says="every head has its own scores")
def one_table_of_scores(batch, seq_len, d_model, n_heads):
    table = (batch, seq_len, seq_len)
    return trace(batch, seq_len, d_model, n_heads) | {"scores": table, "attn_weights": table}


@wrong("shape_trace", says="a head is d_model / n_heads wide")
def heads_as_wide_as_the_model(batch, seq_len, d_model, n_heads):
    wide = (batch, n_heads, seq_len, d_model)
    return trace(batch, seq_len, d_model, n_heads) | {"q_heads": wide, "v_heads": wide, "heads": wide}


@wrong("shape_trace", says="heads come before tokens")
def tokens_before_heads(batch, seq_len, d_model, n_heads):
    cut = (batch, seq_len, n_heads, d_model // n_heads)
    return trace(batch, seq_len, d_model, n_heads) | {"q_heads": cut, "v_heads": cut}


@wrong("shape_trace", says="transposed keys end in seq_len")
def keys_not_transposed(batch, seq_len, d_model, n_heads):
    found = trace(batch, seq_len, d_model, n_heads)
    return found | {"k_heads_transposed": found["q_heads"]}


@wrong("shape_trace", says="seq_len and d_head were exchanged")
def exchanged(batch, seq_len, d_model, n_heads):
    found = trace(batch, seq_len, d_model, n_heads)
    return found | dict.fromkeys(("q_heads", "v_heads", "heads"), found["k_heads_transposed"])


@wrong("shape_trace", says="sizes are whole: divide with //")
def fractions(batch, seq_len, d_model, n_heads):
    found, width = trace(batch, seq_len, d_model, n_heads), d_model / n_heads
    for name in ("q_heads", "v_heads", "heads"):
        found[name] = (batch, n_heads, seq_len, width)
    return found | {"k_heads_transposed": (batch, n_heads, width, seq_len)}


@wrong("shape_trace", says="merging fills d_model again")
def never_merged(batch, seq_len, d_model, n_heads):
    return trace(batch, seq_len, d_model, n_heads) | {"merged": (batch, seq_len, n_heads, d_model // n_heads)}


@wrong("shape_trace")
def one_key_short(batch, seq_len, d_model, n_heads):
    found = trace(batch, seq_len, d_model, n_heads)
    del found["merged"]
    return found


@wrong("shape_trace")
def a_key_too_many(batch, seq_len, d_model, n_heads):
    return trace(batch, seq_len, d_model, n_heads) | {"k_heads": (batch, n_heads, seq_len, d_model // n_heads)}


@wrong("shape_trace")
def refuses_nothing(batch, seq_len, d_model, n_heads):
    return trace(batch, seq_len, d_model // n_heads * n_heads, n_heads)


@wrong("shape_trace")
def no_batch(batch, seq_len, d_model, n_heads):
    return {name: shape[1:] for name, shape in trace(batch, seq_len, d_model, n_heads).items()}


@wrong("shape_trace")
def learned_by_heart(batch, seq_len, d_model, n_heads):
    return trace(2, 5, 12, 3) if d_model % n_heads == 0 else trace(batch, seq_len, d_model, n_heads)


# ---------------------------------------------------------------- shape_trace, right


@right("shape_trace", why="a real run, torch.Size")
def really_run(batch, seq_len, d_model, n_heads):
    if d_model % n_heads:
        raise ValueError("n_heads must divide d_model")
    x = torch.zeros(batch, seq_len, d_model)
    q_heads = x.view(batch, seq_len, n_heads, -1).transpose(1, 2)
    scores = q_heads @ q_heads.mT
    heads = scores @ q_heads
    sizes = {name: x.shape for name in ("x", "q", "k", "v", "merged", "output")}
    sizes |= {"q_heads": q_heads.shape, "v_heads": q_heads.shape, "heads": heads.shape}
    return sizes | {"k_heads_transposed": q_heads.mT.shape, "scores": scores.shape, "attn_weights": scores.shape}


@right("shape_trace", why="keys in another order")
def in_another_order(batch, seq_len, d_model, n_heads):
    return dict(reversed(trace(batch, seq_len, d_model, n_heads).items()))


@right("shape_trace", why="dict(...) with keywords and one loop")
def by_keywords(batch, seq_len, d_model, n_heads):
    width, rest = divmod(d_model, n_heads)
    if rest:
        raise ValueError(f"{n_heads} heads do not fit into {d_model}")
    found = dict(scores=(batch, n_heads, seq_len, seq_len), k_heads_transposed=(batch, n_heads, width, seq_len))
    found["attn_weights"] = found["scores"]
    for name in "x q k v merged output".split():
        found[name] = (batch, seq_len, d_model)
    for name in "q_heads v_heads heads".split():
        found[name] = (batch, n_heads, seq_len, width)
    return found


@right("shape_trace", why="shapes as strings of letters")
def from_letters(batch, seq_len, d_model, n_heads):
    if d_model % n_heads:
        raise ValueError("n_heads")
    size = {"B": batch, "T": seq_len, "M": d_model, "H": n_heads, "D": d_model // n_heads}
    letters = {name: "BTM" for name in ("x", "q", "k", "v", "merged", "output")}
    letters |= {name: "BHTD" for name in ("q_heads", "v_heads", "heads")}
    letters |= {"k_heads_transposed": "BHDT", "scores": "BHTT", "attn_weights": "BHTT"}
    return {name: tuple(size[letter] for letter in word) for name, word in letters.items()}


# ---------------------------------------------------------------- mha_parameters, wrong


def whole(d_model, n_heads, n_kv_heads):
    if d_model % n_heads:
        raise ValueError("n_heads")
    if n_heads % n_kv_heads:
        raise ValueError("n_kv_heads")
    return n_kv_heads * d_model // n_heads


@wrong("mha_parameters", says="w_o was left out")
def three_matrices(d_model, n_heads, n_kv_heads, bias):
    narrow = whole(d_model, n_heads, n_kv_heads)
    return d_model * (d_model + 2 * narrow) + (d_model + 2 * narrow if bias else 0)


@wrong("mha_parameters", says="bias was ignored")
def no_bias_at_all(d_model, n_heads, n_kv_heads, bias):
    return 2 * d_model * (d_model + whole(d_model, n_heads, n_kv_heads))


@wrong("mha_parameters", says="keys and values have n_kv_heads")
def four_square_matrices(d_model, n_heads, n_kv_heads, bias):
    whole(d_model, n_heads, n_kv_heads)
    return 4 * d_model * d_model + (4 * d_model if bias else 0)


@wrong("mha_parameters", says="heads share d_model: do not multiply by n_heads")
def once_more_per_head(d_model, n_heads, n_kv_heads, bias):
    narrow = whole(d_model, n_heads, n_kv_heads)
    return n_heads * (2 * d_model * (d_model + narrow) + bias * 2 * (d_model + narrow))


@wrong("mha_parameters", says="w_o has a bias too")
def bias_of_three(d_model, n_heads, n_kv_heads, bias):
    narrow = whole(d_model, n_heads, n_kv_heads)
    return 2 * d_model * (d_model + narrow) + bias * (d_model + 2 * narrow)


@wrong("mha_parameters", says="a bias is as wide as its layer's output")
def bias_of_the_input(d_model, n_heads, n_kv_heads, bias):
    narrow = whole(d_model, n_heads, n_kv_heads)
    return 2 * d_model * (d_model + narrow) + bias * 4 * d_model


@wrong("mha_parameters", says="return an int")
def divided(d_model, n_heads, n_kv_heads, bias):
    whole(d_model, n_heads, n_kv_heads)
    narrow = d_model / n_heads * n_kv_heads
    return 2 * d_model * (d_model + narrow) + bias * 2 * (d_model + narrow)


@wrong("mha_parameters", says="d_model must hold whole heads, n_heads whole groups: refuse the rest")
def counts_anything(d_model, n_heads, n_kv_heads, bias):
    narrow = d_model // n_heads * n_kv_heads
    return 2 * (d_model + bool(bias)) * (d_model + narrow)


@wrong("mha_parameters")
def refuses_half(d_model, n_heads, n_kv_heads, bias):
    if d_model % n_heads:
        raise ValueError("n_heads")
    return 2 * (d_model + bool(bias)) * (d_model + d_model // n_heads * n_kv_heads)


@wrong("mha_parameters")
def says_nothing(d_model, n_heads, n_kv_heads, bias):
    try:
        narrow = whole(d_model, n_heads, n_kv_heads)
    except ValueError:
        raise ValueError from None
    return 2 * (d_model + bool(bias)) * (d_model + narrow)


# ---------------------------------------------------------------- mha_parameters, right


@right("mha_parameters", why="factored")
def factored(d_model, n_heads, n_kv_heads, bias):
    return 2 * (d_model + bool(bias)) * (d_model + whole(d_model, n_heads, n_kv_heads))


@right("mha_parameters", why="counted on real layers")
def counted(d_model, n_heads, n_kv_heads, bias):
    narrow = whole(d_model, n_heads, n_kv_heads)
    with torch.device("meta"):
        layers = nn.ModuleList(
            nn.Linear(d_model, width, bias=bool(bias)) for width in (d_model, narrow, narrow, d_model)
        )
    return sum(parameter.numel() for parameter in layers.parameters())


@right("mha_parameters", why="a sum over layers")
def layer_by_layer(d_model, n_heads, n_kv_heads, bias):
    narrow = whole(d_model, n_heads, n_kv_heads)
    return sum(d_model * width + (width if bias else 0) for width in (d_model, narrow, narrow, d_model))


@right("mha_parameters", why="math.prod over shapes")
def by_shapes(d_model, n_heads, n_kv_heads, bias):
    narrow = whole(d_model, n_heads, n_kv_heads)
    shapes = [(d_model, d_model), (narrow, d_model), (narrow, d_model), (d_model, d_model)]
    shapes += [(rows,) for rows, _ in shapes] if bias else []
    return sum(map(math.prod, shapes))
