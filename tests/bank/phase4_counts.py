"""count_parameters, residual_census: wrong solutions and unusual right ones."""

import torch
from torch import nn

from tests.bank import right, wrong

# ---------------------------------------------------------------- count_parameters


def counter(name, change=lambda counts, config: None, total=lambda counts, config: sum(counts.values())):
    """A count_parameters in which `change` spoils a part."""

    def count_parameters(config):
        d, both = config.d_model, config.src_vocab_size is not None
        head = d // config.n_heads
        keys = (config.n_kv_heads or config.n_heads) * head
        attention = 2 * (d * d + d) + 2 * (d * keys + keys)
        ffn = d * config.d_ff + config.d_ff + config.d_ff * d + d
        norms = config.n_layers * (5 if both else 2) + (2 if both else 1) * config.norm_first
        counts = {
            "embedding": (config.vocab_size + (config.src_vocab_size or 0)) * d,
            "positions": 0 if both else config.max_len * d,
            "attention": config.n_layers * (3 if both else 1) * attention,
            "ffn": config.n_layers * (2 if both else 1) * ffn,
            "norm": norms * 2 * d,
            "output": 0 if config.tied else config.vocab_size * d,
        }
        change(counts, config)
        counts["total"] = total(counts, config)
        return counts

    count_parameters.__name__ = name
    return count_parameters


def setting(**values):
    def change(counts, config):
        counts.update({name: value(counts, config) for name, value in values.items()})

    return change


def stacks(config):
    return config.n_layers * (1 if config.src_vocab_size is None else 2)


for _name, _says, _change in [
    ("no_positions", "positions forgotten", setting(positions=lambda counts, c: 0)),
    ("tied_twice", "one table, counted once", setting(output=lambda counts, c: c.vocab_size * c.d_model)),
    ("no_output", "an output layer of its own counts", setting(output=lambda counts, c: 0)),
    (
        "no_ffn_bias",
        "FFN biases forgotten",
        setting(ffn=lambda counts, c: stacks(c) * 2 * c.d_model * c.d_ff),
    ),
    ("no_norms", "norms forgotten", setting(norm=lambda counts, c: 0)),
    ("half_norms", "a norm has gamma and beta", setting(norm=lambda counts, c: counts["norm"] // 2)),
    (
        "last_norm_forgotten",
        "the last norm of each stack",
        setting(norm=lambda counts, c: c.n_layers * (2 if c.src_vocab_size is None else 5) * 2 * c.d_model),
    ),
    (
        "last_norm_always",
        "post-norm has no last norm",
        setting(
            norm=lambda counts, c: counts["norm"] + (not c.norm_first) * 2 * c.d_model * (1 + bool(c.src_vocab_size))
        ),
    ),
    (
        "source_forgotten",
        "the source has a table of its own",
        setting(embedding=lambda counts, c: c.vocab_size * c.d_model),
    ),
    (
        "positions_always",
        "sinusoidal positions have no parameters",
        setting(positions=lambda counts, c: c.max_len * c.d_model),
    ),
    ("floats", None, setting(ffn=lambda counts, c: float(counts["ffn"]))),
]:
    wrong("count_parameters", says=_says)(counter(_name, _change))


@wrong("count_parameters", says="that leaves out biases, norms, embeddings")
def rule_of_thumb(config):
    size = config.n_layers * config.d_model**2
    return dict(embedding=0, positions=0, attention=4 * size, ffn=8 * size, norm=0, output=0, total=12 * size)


wrong("count_parameters")(counter("total_without_tables", total=lambda counts, c: counts["attention"] + counts["ffn"]))


@wrong("count_parameters", says="n_kv_heads narrows w_k and w_v")
def never_grouped(config):
    class Whole:
        n_kv_heads = None

        def __getattr__(self, name):
            return getattr(config, name)

    return counter("whole")(Whole())


right("count_parameters", why="algebra")(counter("algebra"))


@right("count_parameters", why="modules built on the meta device and counted")
def on_meta(config):
    d, both, n = config.d_model, config.src_vocab_size is not None, config.n_layers
    keys = d // config.n_heads * (config.n_heads if config.n_kv_heads is None else config.n_kv_heads)

    def size(parts):
        return sum(p.numel() for part in parts for p in part.parameters())

    with torch.device("meta"):
        attention = [nn.Linear(d, d), nn.Linear(d, keys), nn.Linear(d, keys), nn.Linear(d, d)]
        found = {
            "embedding": size([nn.Embedding(config.vocab_size, d)]),
            "positions": 0 if both else config.max_len * d,
            "attention": size(attention) * n * (3 if both else 1),
            "ffn": size([nn.Linear(d, config.d_ff), nn.Linear(config.d_ff, d)]) * n * (2 if both else 1),
            "norm": size([nn.LayerNorm(d)]) * (n * (5 if both else 2) + config.norm_first * (2 if both else 1)),
            "output": 0 if config.tied else size([nn.Linear(d, config.vocab_size, bias=False)]),
        }
        if both:
            found["embedding"] += size([nn.Embedding(config.src_vocab_size, d)])
    return {**found, "total": sum(found.values())}


@right("count_parameters", why="the keys in another order")
def other_order(config):
    return dict(sorted(counter("sorted")(config).items()))


@right("count_parameters", why="block by block, in a loop")
def block_by_block(config):
    counts = counter("whole")(config)
    d, both = config.d_model, config.src_vocab_size is not None
    norms = 0
    for _ in range(config.n_layers):
        norms += 2 + (3 if both else 0)
    norms += int(config.norm_first) * (1 + both)
    counts["total"] += 2 * d * norms - counts["norm"]
    counts["norm"] = 2 * d * norms
    return counts


# ---------------------------------------------------------------- residual_census


def census(name, encoder, decoder, total=lambda e, d: e + d):
    def residual_census(n_encoder, n_decoder):
        e, d = encoder(n_encoder, n_decoder), decoder(n_encoder, n_decoder)
        return {"encoder": e, "decoder": d, "total": total(e, d)}

    residual_census.__name__ = name
    return residual_census


for _name, _says, _parts in [
    ("two_each", "a decoder block has three", (lambda n, m: 2 * n, lambda n, m: 2 * m)),
    ("three_each", "an encoder block has two", (lambda n, m: 3 * n, lambda n, m: 3 * m)),
    ("exchanged", "encoder and decoder are mixed up", (lambda n, m: 2 * m, lambda n, m: 3 * n)),
    ("exchanged_factors", "encoder and decoder are mixed up", (lambda n, m: 3 * n, lambda n, m: 2 * m)),
    (
        "product",
        "add the two stacks, do not multiply",
        (lambda n, m: 2 * n, lambda n, m: 3 * m, lambda e, d: e * d),
    ),
    ("blocks", "each sub-layer is added, not each block", (lambda n, m: n, lambda n, m: m)),
    ("always_six", None, (lambda n, m: 12, lambda n, m: 18)),
    ("with_the_norms", None, (lambda n, m: 2 * n + 1, lambda n, m: 3 * m + 1)),
    ("floats_instead", None, (lambda n, m: 2.0 * n, lambda n, m: 3.0 * m)),
]:
    wrong("residual_census", says=_says)(census(_name, *_parts))


@wrong("residual_census")
def without_total(n_encoder, n_decoder):
    return {"encoder": 2 * n_encoder, "decoder": 3 * n_decoder}


right("residual_census", why="two products and a sum")(census("plain", lambda n, m: 2 * n, lambda n, m: 3 * m))
right("residual_census", why="repeated addition")(
    census("added", lambda n, m: sum(2 for _ in range(n)), lambda n, m: sum(3 for _ in range(m)))
)


@right("residual_census", why="a loop over both stacks")
def looped(n_encoder, n_decoder):
    found = {"encoder": 0, "decoder": 0}
    for name, count, each in (("encoder", n_encoder, 2), ("decoder", n_decoder, 3)):
        for _ in range(count):
            found[name] += each
    return {"total": found["encoder"] + found["decoder"], **found}


@right("residual_census", why="norms counted in built modules: one stands before each sum")
def counted_in_modules(n_encoder, n_decoder):
    from utils import oracle

    with torch.device("meta"):
        stacks = {
            "encoder": [oracle.EncoderBlock(4, 2, 3) for _ in range(n_encoder)],
            "decoder": [oracle.DecoderBlock(4, 2, 3) for _ in range(n_decoder)],
        }
    found = {
        name: sum(isinstance(part, oracle.LayerNorm) for block in blocks for part in block.modules())
        for name, blocks in stacks.items()
    }
    return found | {"total": sum(found.values())}
