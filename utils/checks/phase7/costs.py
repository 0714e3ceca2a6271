"""flops_per_token, training_memory: what a training step costs."""

from utils import oracle
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase7 import PHASE
from utils.checks.phase7 import rules_measuring as rules
from utils.observe.codec import Fixture

SMALL = dict(vocab_size=29, d_model=24, n_heads=6, n_layers=5, d_ff=34, max_len=90)
GPT2 = dict(vocab_size=50304, d_model=768, n_heads=12, n_layers=12, d_ff=3072, max_len=1024)


class Changed:
    """A config in which some sizes are read otherwise."""

    def __init__(self, config, **changes):
        self._config = config
        vars(self).update({name: change(config) for name, change in changes.items()})

    def __getattr__(self, name):
        return getattr(self._config, name)


def narrow(config):
    """The width of all keys of a token."""
    return config.d_model // config.n_heads * (config.n_kv_heads or config.n_heads)


def always(value):
    return lambda config: value


def no_config(config):
    """The sizes of an encoder-decoder, read as a decoder's."""
    return Changed(config, src_vocab_size=always(None))


# ---- flops_per_token -----------------------------------------------------------------------------


def count(name, seq_len, base=SMALL, make=case, **options):
    return make(name, dict(config=Fixture("config", base | options), seq_len=seq_len))


def as_if(**changes):
    """The right count of another model."""
    return lambda config, seq_len: oracle.flops_per_token(Changed(config, **changes), seq_len)


def more(extra):
    """The right count, and extra(config, seq_len) more: one number for both, or {"causal": …, "palm": …}."""

    def flops_per_token(config, seq_len):
        right, added = oracle.flops_per_token(config, seq_len), extra(config, seq_len)
        added = added if isinstance(added, dict) else dict.fromkeys(right, added)
        return {name: value + added[name] for name, value in right.items()}

    return flops_per_token


def times(factor):
    def flops_per_token(config, seq_len):
        return {name: value * factor(seq_len) for name, value in oracle.flops_per_token(config, seq_len).items()}

    return flops_per_token


def attention(config, seq_len):
    """12 · L · d · T."""
    return 12 * config.n_layers * config.d_model * seq_len


def table(config):
    return config.vocab_size * config.d_model


def counted(*parts):
    """These parts of count_parameters as if all of them multiplied, and the output layer."""

    def extra(config, seq_len):
        found = oracle.count_parameters(config)
        matrices = config.n_layers * (2 * config.d_model * (config.d_model + narrow(config) + config.d_ff))
        return 6 * (sum(found[part] for part in parts) - matrices)

    return more(extra)


def renamed(change):
    return lambda config, seq_len: change(oracle.flops_per_token(config, seq_len))


register(
    expected=oracle.flops_per_token,
    phase=PHASE,
    section="7.3",
    hint="6 per entry of the matrices, output layer included; attention: 12 · L · d_model · seq_len, or half of it.",
    grad=False,
    bans=(),
    script="flops_per_token",
    cases=(
        count("tied, 7 tokens", 7),
        count("untied, 16 tokens", 16, tied=False),
        count("grouped heads", 11, n_kv_heads=2),
        count("one layer, one token", 1, n_layers=1, tied=False, d_ff=200),
        count("GPT-2 small, 1,024 tokens", 1024, GPT2),
        count("an encoder-decoder", 9, make=refusal, src_vocab_size=31),
    ),
    mistakes={
        "a table is looked up, not multiplied": Replays(
            more(lambda config, seq_len: 0 if config.tied else 6 * table(config)),
            more(lambda config, seq_len: 6 * table(config)),
        ),
        "a tied output layer multiplies, too": more(lambda config, seq_len: -6 * table(config) if config.tied else 0),
        "the output layer multiplies, too": more(lambda config, seq_len: -6 * table(config)),
        "biases, norms and positions are not matrices": Replays(
            counted("attention", "ffn"),
            counted("attention", "ffn", "norm"),
            counted("attention", "ffn", "norm", "positions"),
        ),
        "forward once, backward twice": Replays(times(lambda seq_len: 1 / 3), times(lambda seq_len: 2 / 3)),
        "a multiplication and an addition are two": times(lambda seq_len: 1 / 2),
        "attention's products train, too: three passes": more(
            lambda c, t: {"causal": -attention(c, t) / 3, "palm": -attention(c, t) * 2 / 3}
        ),
        "attention is missing": more(lambda c, t: {"causal": -attention(c, t) / 2, "palm": -attention(c, t)}),
        "attention makes two products": more(
            lambda c, t: {"causal": -attention(c, t) / 4, "palm": -attention(c, t) / 2}
        ),
        "attention is counted twice: 6 holds multiplication and addition": more(
            lambda c, t: {"causal": attention(c, t) / 2, "palm": attention(c, t)}
        ),
        "causal counts half of the keys, palm all": Replays(
            renamed(lambda right: dict.fromkeys(right, right["palm"])),
            renamed(lambda right: dict.fromkeys(right, right["causal"])),
            renamed(lambda right: {"causal": right["palm"], "palm": right["causal"]}),
            renamed(lambda right: {"causal": right["palm"] / 2, "palm": right["palm"]}),
        ),
        "half of seq_len, as everybody counts: without the diagonal's half": more(
            lambda c, t: {"causal": attention(c, 1) / 2, "palm": 0}
        ),
        "half of an odd seq_len is no whole number: /, not //": more(
            lambda c, t: {"causal": -attention(c, t % 2) / 2, "palm": 0}
        ),
        "seq_len tokens are read, not max_len": lambda config, seq_len: oracle.flops_per_token(config, config.max_len),
        "n_kv_heads counts heads: d_head columns each": more(
            lambda c, t: 12 * c.n_layers * c.d_model * (c.n_kv_heads - narrow(c)) if c.n_kv_heads else 0
        ),
        "two matrices in the feed-forward layer": Replays(
            as_if(d_ff=lambda config: config.d_ff * 3 // 2), as_if(d_ff=lambda config: config.d_ff // 2)
        ),
        "grouped heads narrow w_k and w_v": as_if(n_kv_heads=always(None)),
        "attention's products have full width": more(
            lambda c, t: {
                name: -attention(c, t) * part * (1 - narrow(c) / c.d_model)
                for name, part in (("causal", 0.5), ("palm", 1))
            }
        ),
        "d_ff need not be 4 · d_model": as_if(d_ff=lambda config: 4 * config.d_model),
        "all layers count": as_if(n_layers=always(1)),
        "per token, not per sequence": times(lambda seq_len: seq_len),
        "an encoder-decoder has two lengths: refuse it": Spotted(
            rules.two_stacks, lambda config, seq_len: oracle.flops_per_token(no_config(config), seq_len), certain=True
        ),
    },
)

# ---- training_memory -----------------------------------------------------------------------------


def sized(name, batch, seq_len, width, base=SMALL, make=case, fused=None, **options):
    """The default dtype is the usual one: who counts the bytes of a tensor of their own means float32."""
    args = dict(config=Fixture("config", base | options), batch=batch, seq_len=seq_len, bytes_per_element=width)
    return make(name, args if fused is None else args | dict(fused=fused), default_dtype="float32")


def held(change=lambda right, given: {}, **as_if):
    """A wrong twin: change(right, given) are the parts that differ; the total is made anew."""

    def training_memory(config, batch, seq_len, bytes_per_element, fused=True):
        given = dict(config=config, batch=batch, seq_len=seq_len, bytes_per_element=bytes_per_element, fused=fused)
        read = given | {name: value(given) for name, value in as_if.items()}
        right = oracle.training_memory(**read)
        right.pop("total")
        right |= change(right, given)
        return right | {"total": sum(right.values())}

    return training_memory


def rescaled(part, factor):
    return held(lambda right, given: {part: right[part] * factor(given)})


def in_half(right, given):
    """All that the optimiser holds, in bytes_per_element."""
    return {name: right[name] * given["bytes_per_element"] / 4 for name in ("weights", "gradients", "optimizer")}


def all_in_half(right, given):
    """The logits, too."""
    return {name: right[name] * given["bytes_per_element"] / 4 for name in (*in_half(right, given), "logits")}


def tables(given):
    """The bytes of all weights of attention, in all layers."""
    config, square = given["config"], given["seq_len"] ** 2
    return config.n_layers * given["batch"] * config.n_heads * square * given["bytes_per_element"]


def other_tables(factor):
    """Where attention is not fused: the tables' bytes times factor."""

    def change(right, given):
        return {} if given["fused"] else {"activations": right["activations"] + tables(given) * (factor(given) - 1)}

    return held(change)


def wide(**changes):
    """Activations as of another model."""

    def change(right, given):
        other = oracle.training_memory(**given | {"config": Changed(given["config"], **changes)})
        return {"activations": other["activations"]}

    return held(change)


def fewer(tensors):
    """So many tensors of width d_model left out."""

    def change(right, given):
        c, per_layer = given["config"], given["batch"] * given["seq_len"] * given["bytes_per_element"]
        return {"activations": right["activations"] - tensors * c.d_model * c.n_layers * per_layer}

    return change


def without_inner(right, given):
    """The feed-forward layer's own tensors left out."""
    c, per_layer = given["config"], given["batch"] * given["seq_len"] * given["bytes_per_element"]
    return {"activations": right["activations"] - 2 * c.d_ff * c.n_layers * per_layer}


def no_total(**given):
    right = oracle.training_memory(**given)
    return right | {"total": right["total"] - right["logits"]}


register(
    expected=oracle.training_memory,
    phase=PHASE,
    section="7.4",
    hint="16 bytes per parameter; L · tokens · (6 d_model + 2 d_kv + 2 d_ff) elements; logits twice, 4 bytes each.",
    grad=False,
    bans=(),
    script="training_memory",
    cases=(
        sized("2 bytes, fused", 3, 7, 2),
        sized("4 bytes, a table for each head", 3, 7, 4, fused=False),
        sized("grouped heads, untied", 2, 11, 2, fused=False, n_kv_heads=2, tied=False),
        sized("one token, 1 byte", 1, 1, 1, fused=True, n_layers=1, d_ff=200),
        sized("GPT-2 small, 16 × 1,024", 16, 1024, 2, GPT2),
        sized("an encoder-decoder", 2, 9, 2, make=refusal, src_vocab_size=31),
    ),
    mistakes={
        "weights, gradients and Adam stay in float32": Replays(
            held(in_half),
            rescaled("weights", lambda given: given["bytes_per_element"] / 4),
            rescaled("gradients", lambda given: given["bytes_per_element"] / 4),
            held(lambda right, given: {n: v for n, v in in_half(right, given).items() if n != "optimizer"}),
        ),
        "bytes_per_element is of activations: all the rest is float32": held(all_in_half),
        "weights are held once here: the copy in half precision does not last": rescaled(
            "weights", lambda given: 1 + given["bytes_per_element"] / 4
        ),
        "Adam keeps two numbers per parameter": Replays(
            rescaled("optimizer", lambda given: 1 / 2), rescaled("optimizer", lambda given: 0)
        ),
        "gradients take as much as the weights": rescaled("gradients", lambda given: 0),
        "each layer keeps its own activations": rescaled("activations", lambda given: 1 / given["config"].n_layers),
        "each sequence of the batch keeps its own": Replays(
            held(batch=lambda given: 1), rescaled("activations", lambda given: 1 / given["batch"])
        ),
        "each token keeps its own": held(seq_len=lambda given: 1),
        "an element takes bytes_per_element bytes": rescaled(
            "activations", lambda given: 1 / given["bytes_per_element"]
        ),
        "without a fused attention, each head keeps seq_len × seq_len weights": Replays(
            other_tables(lambda given: 0),
            other_tables(lambda given: 1 / given["config"].n_heads),
            other_tables(lambda given: 1 / given["seq_len"]),
        ),
        "the scores are written over by the weights: one table": other_tables(lambda given: 2),
        "grouping saves keys, not weights: a table for each head": other_tables(
            lambda given: (given["config"].n_kv_heads or given["config"].n_heads) / given["config"].n_heads
        ),
        "a fused attention keeps no table": held(fused=lambda given: False),
        "logits and their gradient: two tables": rescaled("logits", lambda given: 1 / 2),
        "logits are float32, whatever the activations are": rescaled(
            "logits", lambda given: given["bytes_per_element"] / 4
        ),
        "each token of each sequence has logits": Replays(
            rescaled("logits", lambda given: 1 / given["seq_len"]), rescaled("logits", lambda given: 1 / given["batch"])
        ),
        "gradients of activations do not last: one tensor each": rescaled("activations", lambda given: 2),
        "six tensors of d_model: what enters a norm is kept, too": Replays(held(fewer(1)), held(fewer(2))),
        "grouped heads keep fewer keys": wide(n_kv_heads=always(None)),
        "the feed-forward layer keeps two tensors of its own": held(without_inner),
        "d_ff need not be 4 · d_model": wide(d_ff=lambda config: 4 * config.d_model),
        "the total is the sum of all five": lambda config, batch, seq_len, bytes_per_element, fused=True: no_total(
            config=config, batch=batch, seq_len=seq_len, bytes_per_element=bytes_per_element, fused=fused
        ),
        "an encoder-decoder has two lengths: refuse it": Spotted(
            rules.two_stacks, held(config=lambda given: no_config(given["config"])), certain=True
        ),
    },
)
