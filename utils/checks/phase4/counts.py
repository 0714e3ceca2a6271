"""count_parameters and residual_census."""

from utils import oracle
from utils.checks.exercise import Replays, case, register
from utils.checks.phase4 import PHASE
from utils.observe.codec import Fixture

SMALL = dict(vocab_size=11, d_model=12, n_heads=6, n_layers=3, d_ff=20, max_len=7)
BOTH = SMALL | dict(src_vocab_size=9)


def sizes(name, base=SMALL, **options):
    return case(name, dict(config=Fixture("config", base | options)))


def wrong(change):
    """A wrong twin: change(counts, config) returns what is different; the total is made anew."""

    def count_parameters(config):
        counts = oracle.count_parameters(config)
        counts.pop("total")
        counts |= change(counts, config)
        return counts | {"total": sum(counts.values())}

    return count_parameters


def layers(config):
    return config.n_layers * (1 if config.src_vocab_size is None else 2)


def attentions(config):
    return config.n_layers * (1 if config.src_vocab_size is None else 3)


def twelve(config):
    """12 · L · d² and nothing else."""
    d_model, n_layers = config.d_model, config.n_layers
    attention, ffn = 4 * n_layers * d_model**2, 8 * n_layers * d_model**2
    counts = dict(embedding=0, positions=0, attention=attention, ffn=ffn, norm=0, output=0)
    return counts | dict(total=12 * n_layers * d_model**2)


def no_norms(counts, config):
    return dict(norm=0)


def as_if(**options):
    """The right count of another configuration."""

    def count_parameters(config):
        class Other:
            pass

        other = Other()
        for name in ("vocab_size", "d_model", "n_heads", "n_layers", "d_ff", "max_len", "n_kv_heads", "src_vocab_size"):
            setattr(other, name, getattr(config, name))
        other.tied, other.norm_first = config.tied, config.norm_first
        for name, value in options.items():
            setattr(other, name, value(config) if callable(value) else value)
        return oracle.count_parameters(other)

    return count_parameters


register(
    expected=oracle.count_parameters,
    phase=PHASE,
    section="4.14",
    hint="a linear layer has in·out + out; two norms per block, three per decoder block, one last norm per stack.",
    grad=False,
    cases=(
        sizes("decoder-only"),
        sizes("an output layer of its own", tied=False),
        sizes("grouped heads", n_kv_heads=2),
        sizes("post-norm", norm_first=False),
        sizes("encoder and decoder", BOTH),
        sizes("encoder and decoder, untied, grouped, post-norm", BOTH, tied=False, n_kv_heads=3, norm_first=False),
        sizes(
            "the sizes of GPT-2 small",
            dict(vocab_size=50257, d_model=768, n_heads=12, n_layers=12, d_ff=3072, max_len=1024),
        ),
        sizes(
            "the paper's base model",
            dict(vocab_size=37000, src_vocab_size=37000, d_model=512, n_heads=8, n_layers=6, d_ff=2048, max_len=512),
        ),
    ),
    mistakes={
        "that leaves out biases, norms, embeddings": twelve,
        "positions forgotten": wrong(lambda counts, config: dict(positions=0)),
        "one table, counted once": as_if(tied=False),
        "an output layer of its own counts": as_if(tied=True),
        "FFN biases forgotten": wrong(lambda counts, c: dict(ffn=layers(c) * 2 * c.d_model * c.d_ff)),
        "attention biases forgotten": wrong(
            lambda counts, c: dict(
                attention=counts["attention"]
                - attentions(c) * (2 * c.d_model + 2 * c.d_model // c.n_heads * (c.n_kv_heads or c.n_heads))
            )
        ),
        "norms forgotten": wrong(no_norms),
        "a norm has gamma and beta": wrong(lambda counts, c: dict(norm=counts["norm"] // 2)),
        "the last norm of each stack": Replays(
            as_if(norm_first=False),
            wrong(lambda counts, c: dict(norm=counts["norm"] - (2 * c.d_model if c.norm_first else 0))),
        ),
        "post-norm has no last norm": as_if(norm_first=True),
        "n_kv_heads narrows w_k and w_v": as_if(n_kv_heads=None),
        "a decoder block has two attentions": wrong(
            lambda counts, c: dict(attention=counts["attention"] * 2 // 3) if c.src_vocab_size else {}
        ),
        "a decoder block has three norms": wrong(
            lambda counts, c: dict(norm=counts["norm"] - c.n_layers * 2 * c.d_model) if c.src_vocab_size else {}
        ),
        "the source has a table of its own": wrong(lambda counts, c: dict(embedding=c.vocab_size * c.d_model)),
        "sinusoidal positions have no parameters": wrong(lambda counts, c: dict(positions=c.max_len * c.d_model)),
    },
)


def census(encoder, decoder, total=lambda e, d: e + d):
    def residual_census(n_encoder, n_decoder):
        e, d = encoder(n_encoder, n_decoder), decoder(n_encoder, n_decoder)
        return {"encoder": e, "decoder": d, "total": total(e, d)}

    return residual_census


register(
    expected=oracle.residual_census,
    phase=PHASE,
    section="4.14",
    hint="one addition per sub-layer: two in an encoder block, three in a decoder block.",
    grad=False,
    cases=tuple(
        case(f"{n} and {m} blocks", dict(n_encoder=n, n_decoder=m)) for n, m in ((6, 6), (4, 7), (0, 5), (3, 0), (1, 1))
    ),
    mistakes={
        "a decoder block has three": census(lambda n, m: 2 * n, lambda n, m: 2 * m),
        "an encoder block has two": census(lambda n, m: 3 * n, lambda n, m: 3 * m),
        "encoder and decoder are mixed up": Replays(
            census(lambda n, m: 2 * m, lambda n, m: 3 * n), census(lambda n, m: 3 * n, lambda n, m: 2 * m)
        ),
        "add the two stacks, do not multiply": census(lambda n, m: 2 * n, lambda n, m: 3 * m, lambda e, d: e * d),
        "each sub-layer is added, not each block": census(lambda n, m: n, lambda n, m: m),
    },
)
