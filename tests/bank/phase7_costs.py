"""flops_per_token, training_memory: wrong solutions and unusual right ones."""

import numpy as np
import torch
from torch import nn

from tests.bank import right, wrong
from utils import oracle


def refuse(config):
    if config.src_vocab_size is not None:
        raise ValueError("src_vocab_size")


def keys_of(config):
    return config.d_model // config.n_heads * (config.n_kv_heads or config.n_heads)


# ---------------------------------------------------------------- flops_per_token


def counted(name, per_entry=6, block=None, extra=lambda c: 0, head=lambda c: c.vocab_size * c.d_model, keys=(0.5, 1),
            attention=12, refuses=refuse):  # fmt: skip
    """A flops_per_token with one thing otherwise. keys: shares of seq_len counted by causal and palm."""

    def flops_per_token(config, seq_len):
        refuses(config)
        d = config.d_model
        one = block(config) if block else 2 * d * d + 2 * d * keys_of(config) + 2 * d * config.d_ff
        entries = config.n_layers * one + head(config) + extra(config)
        looks = attention * config.n_layers * d * seq_len
        return {word: per_entry * entries + looks * share for word, share in zip(("causal", "palm"), keys, strict=True)}

    flops_per_token.__name__ = name
    return flops_per_token


def twelve_squares(config):
    return 12 * config.d_model**2


def all_parameters(config):
    """What nanoGPT multiplies by 6, biases and norms included."""
    found = oracle.count_parameters(config)
    return found["total"] - found["positions"]


for _name, _says, _ways in [
    ("forward_alone", "forward once, backward twice", dict(per_entry=2, attention=4)),
    ("backward_alone", "forward once, backward twice", dict(per_entry=4, attention=8)),
    ("multiplications", "a multiplication and an addition are two", dict(per_entry=3, attention=6)),
    ("attention_forward_alone", "attention's products train, too: three passes", dict(attention=4)),
    ("no_attention", "attention is missing", dict(attention=0)),
    ("scores_alone", "attention makes two products", dict(attention=6)),
    ("never_half", "causal counts half of the keys, palm all", dict(keys=(1, 1))),
    ("always_half", "causal counts half of the keys, palm all", dict(keys=(0.5, 0.5))),
    ("exchanged", "causal counts half of the keys, palm all", dict(keys=(1, 0.5))),
    ("no_head", "the output layer multiplies, too", dict(head=lambda c: 0)),
    (
        "head_if_untied",
        "a tied output layer multiplies, too",
        dict(head=lambda c: 0 if c.tied else c.vocab_size * c.d_model),
    ),
    ("table_and_head", "a table is looked up, not multiplied", dict(head=lambda c: 2 * c.vocab_size * c.d_model)),
    (
        "table_where_untied",
        "a table is looked up, not multiplied",
        dict(head=lambda c: (1 if c.tied else 2) * c.vocab_size * c.d_model),
    ),
    ("as_nanogpt", None, dict(block=lambda c: 0, head=all_parameters)),
    ("wide_keys", "grouped heads narrow w_k and w_v", dict(block=lambda c: 4 * c.d_model**2 + 2 * c.d_model * c.d_ff)),
    ("twelve_squares", None, dict(block=twelve_squares)),
    ("counts_both_stacks", "an encoder-decoder has two lengths: refuse it", dict(refuses=lambda config: None)),
]:
    wrong("flops_per_token", says=_says)(counted(_name, **_ways))


@wrong("flops_per_token", says="half of seq_len, as everybody counts: without the diagonal's half")
def exact_triangle(config, seq_len):
    found = counted("right")(config, seq_len)
    return found | {"causal": found["causal"] + 6 * config.n_layers * config.d_model}


@wrong("flops_per_token", says="attention's products have full width")
def narrow_products(config, seq_len):
    found = counted("right")(config, seq_len)
    saved = config.n_layers * (config.d_model - keys_of(config)) * seq_len
    return {"causal": found["causal"] - 6 * saved, "palm": found["palm"] - 12 * saved}


@wrong("flops_per_token", says="per token, not per sequence")
def whole_sequence(config, seq_len):
    return {name: value * seq_len for name, value in counted("right")(config, seq_len).items()}


@wrong("flops_per_token", says="all layers count")
def one_layer(config, seq_len):
    refuse(config)
    entries = 2 * config.d_model * (config.d_model + keys_of(config) + config.d_ff) + config.vocab_size * config.d_model
    looks = 6 * config.d_model * seq_len
    return {"causal": 6 * entries + looks, "palm": 6 * entries + 2 * looks}


@wrong("flops_per_token", says="biases, norms and positions are not matrices")
def with_biases(config, seq_len):
    refuse(config)
    found = oracle.count_parameters(config)
    entries = found["attention"] + found["ffn"] + config.vocab_size * config.d_model
    looks = 6 * config.n_layers * config.d_model * seq_len
    return {"causal": 6 * entries + looks, "palm": 6 * entries + 2 * looks}


@wrong("flops_per_token")
def one_number(config, seq_len):
    return counted("right")(config, seq_len)["palm"]


@wrong("flops_per_token")
def refuses_with_a_crash(config, seq_len):
    assert config.src_vocab_size is None
    return counted("right")(config, seq_len)


right("flops_per_token", why="a product")(counted("plain"))


@right("flops_per_token", why="whole numbers, keys in another order, one more check")
def whole_numbers(config, seq_len):
    found = {name: int(value) for name, value in counted("right")(config, seq_len).items()}
    assert found["palm"] > found["causal"] > 0
    return dict(palm=found["palm"], causal=found["causal"])


@right("flops_per_token", why="shapes of matrices, NumPy numbers")
def by_shapes(config, seq_len):
    refuse(config)
    d = config.d_model
    block = np.array([[d, d], [d, keys_of(config)], [d, keys_of(config)], [d, d], [d, config.d_ff], [config.d_ff, d]])
    entries = block.prod(1).sum() * config.n_layers + d * config.vocab_size
    looks = 2 * config.n_layers * np.int64(seq_len) * d
    return {"palm": 6 * (entries + looks), "causal": 6 * entries + 3 * looks}


@right("flops_per_token", why="builds the layers on the meta device and walks over them")
def by_modules(config, seq_len):
    if config.src_vocab_size is not None:
        raise ValueError("an encoder-decoder reads two texts")
    d, narrow = config.d_model, keys_of(config)
    with torch.device("meta"):
        blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(d, d), nn.Linear(d, narrow), nn.Linear(d, narrow), nn.Linear(d, d),
                          nn.Linear(d, config.d_ff), nn.Linear(config.d_ff, d))
            for _ in range(config.n_layers)
        )  # fmt: skip
        blocks.append(nn.Linear(d, config.vocab_size))
    entries = sum(part.weight.numel() for part in blocks.modules() if isinstance(part, nn.Linear))
    forward = torch.tensor([2 * entries + 2 * config.n_layers * seq_len * d * share for share in (1, 2)])
    return dict(zip(("causal", "palm"), 3 * forward, strict=True))


# ---------------------------------------------------------------- training_memory


def needed(name, state=(4, 4, 8), kept=None, tables=1, table=None, logits=8, layers=lambda c: c.n_layers, width=None,
           state_width=None, tokens=lambda b, t: b * t, refuses=refuse, total=sum):  # fmt: skip
    """A training_memory with one thing otherwise."""

    def training_memory(config, batch, seq_len, bytes_per_element, fused=True):
        refuses(config)
        parameters = oracle.count_parameters(config)["total"]
        per_token = kept(config) if kept else 6 * config.d_model + 2 * keys_of(config) + 2 * config.d_ff
        if not fused or tables > 1:
            per_token += (table or (lambda c, t: c.n_heads * t))(config, seq_len) * min(tables, 2)
        scale = 1 if state_width is None else state_width(bytes_per_element)
        size = bytes_per_element if width is None else width
        found = {word: part * parameters * scale for word, part in zip(("weights", "gradients", "optimizer"), state,
                                                                     strict=True)}  # fmt: skip
        found["activations"] = layers(config) * tokens(batch, seq_len) * per_token * size
        wide = logits(bytes_per_element) if callable(logits) else logits
        found["logits"] = wide * batch * seq_len * config.vocab_size
        return found | {"total": total(found.values())}

    training_memory.__name__ = name
    return training_memory


for _name, _says, _ways in [
    ("all_in_half", "weights, gradients and Adam stay in float32", dict(state_width=lambda width: width / 4)),
    ("one_moment", "Adam keeps two numbers per parameter", dict(state=(4, 4, 4))),
    ("no_moments", "Adam keeps two numbers per parameter", dict(state=(4, 4, 0))),
    ("no_gradients", "gradients take as much as the weights", dict(state=(4, 0, 8))),
    ("one_layer", "each layer keeps its own activations", dict(layers=lambda c: 1)),
    ("one_sequence", "each sequence of the batch keeps its own", dict(tokens=lambda b, t: t)),
    ("elements", "an element takes bytes_per_element bytes", dict(width=1)),
    ("never_a_table", None, dict(table=lambda c, t: 0)),
    (
        "one_head",
        "without a fused attention, each head keeps seq_len × seq_len weights",
        dict(table=lambda c, t: t),
    ),
    (
        "no_square",
        "without a fused attention, each head keeps seq_len × seq_len weights",
        dict(table=lambda c, t: c.n_heads),
    ),
    ("always_a_table", "a fused attention keeps no table", dict(tables=1.0000001)),
    ("logits_alone", "logits and their gradient: two tables", dict(logits=4)),
    (
        "narrow_logits",
        "logits are float32, whatever the activations are",
        dict(logits=lambda width: 2 * width),
    ),
    ("wide_keys", "grouped heads keep fewer keys", dict(kept=lambda c: 8 * c.d_model + 2 * c.d_ff)),
    (
        "no_inner",
        "the feed-forward layer keeps two tensors of its own",
        dict(kept=lambda c: 6 * c.d_model + 2 * keys_of(c)),
    ),
    ("seventeen", None, dict(kept=lambda c: 17 * c.d_model)),
    ("counts_both_stacks", "an encoder-decoder has two lengths: refuse it", dict(refuses=lambda config: None)),
    ("megabytes", None, dict(total=lambda parts: sum(parts) / 2**20)),
]:
    wrong("training_memory", says=_says)(needed(_name, **_ways))


@wrong("training_memory", says="the total is the sum of all five")
def total_without_logits(config, batch, seq_len, bytes_per_element, fused=True):
    found = needed("right")(config, batch, seq_len, bytes_per_element, fused)
    return found | {"total": found["total"] - found["logits"]}


@wrong("training_memory", says="the scores are written over by the weights: one table")
def scores_and_weights(config, batch, seq_len, bytes_per_element, fused=True):
    found = needed("right", table=lambda c, t: 2 * c.n_heads * t)(config, batch, seq_len, bytes_per_element, fused)
    return found


@wrong("training_memory")
def only_the_total(config, batch, seq_len, bytes_per_element, fused=True):
    return needed("right")(config, batch, seq_len, bytes_per_element, fused)["total"]


right("training_memory", why="products")(needed("plain"))


@right("training_memory", why="widths in a list, `fused` read as a number, keys in another order")
def widths(config, batch, seq_len, bytes_per_element, fused=True):
    if config.src_vocab_size:
        raise ValueError("decoder-only")
    state = dict(zip(("optimizer", "gradients", "weights"),
                     (size * oracle.count_parameters(config)["total"] for size in (8, 4, 4)), strict=True))  # fmt: skip
    kept = [config.d_model] * 6 + [keys_of(config)] * 2 + [config.d_ff] * 2 + [config.n_heads * seq_len] * (1 - fused)
    rows = batch * seq_len
    out = {"logits": 2 * 4.0 * rows * config.vocab_size}
    out["activations"] = bytes_per_element * rows * config.n_layers * sum(kept)
    out.update(state)
    out["total"] = sum(out.values())
    return out


@right("training_memory", why="tensors on the meta device, numbers of all kinds")
def on_meta(config, batch, seq_len, bytes_per_element, fused=True):
    refuse(config)
    shape = (config.n_layers, batch, seq_len)
    with torch.device("meta"):
        kept = [torch.empty(*shape, config.d_model) for _ in range(6)]
        kept += [torch.empty(*shape, keys_of(config)) for _ in "kv"] + [torch.empty(*shape, config.d_ff) for _ in "ab"]
        if not fused:
            kept.append(torch.empty(*shape, config.n_heads, seq_len))
        logits = torch.empty(2, batch, seq_len, config.vocab_size)
    parameters = np.float64(oracle.count_parameters(config)["total"])
    found = dict(weights=4 * parameters, gradients=4 * parameters, optimizer=8 * parameters)
    found["activations"] = torch.tensor(sum(part.numel() for part in kept) * bytes_per_element)
    found["logits"] = logits.nbytes
    return {**found, "total": sum(map(float, found.values()))}


@right("training_memory", why="counts the parameters itself")
def counts_itself(config, batch, seq_len, bytes_per_element, fused=True):
    refuse(config)
    d, f = config.d_model, config.d_ff
    block = 2 * d * d + 2 * d * keys_of(config) + 2 * d + 2 * keys_of(config) + 2 * d * f + d + f + 4 * d
    parameters = config.n_layers * block + (2 * d if config.norm_first else 0) + config.max_len * d
    parameters += (1 if config.tied else 2) * config.vocab_size * d
    rest = needed("rest")(config, batch, seq_len, bytes_per_element, fused)
    found = dict(weights=4 * parameters, gradients=4 * parameters, optimizer=8 * parameters)
    found |= {name: rest[name] for name in ("activations", "logits")}
    return found | dict(total=sum(found.values()))
