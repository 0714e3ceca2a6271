"""kv_cache_bytes and decode_flops: what decoding costs."""

from types import SimpleNamespace

from utils import oracle
from utils.checks.exercise import case, register
from utils.checks.phase5 import PHASE
from utils.observe.codec import Fixture

SMALL = dict(vocab_size=11, d_model=24, n_heads=6, n_layers=5, d_ff=34, max_len=90)
BIG = dict(vocab_size=50257, d_model=4096, n_heads=32, n_layers=1, d_ff=4 * 4096, max_len=1024)


def size(name, batch, seq_len, bytes_per_element, **options):
    config = Fixture("config", SMALL | options)
    return case(name, dict(config=config, batch=batch, seq_len=seq_len, bytes_per_element=bytes_per_element))


def cost(name, n_tokens, use_cache, base=SMALL, **options):
    return case(name, dict(config=Fixture("config", base | options), n_tokens=n_tokens, use_cache=use_cache))


def scaled(factor):
    """A wrong twin: factor(config, batch, seq_len, bytes_per_element) times the right number."""

    def kv_cache_bytes(config, batch, seq_len, bytes_per_element):
        right = oracle.kv_cache_bytes(config, batch, seq_len, bytes_per_element)
        return int(right * factor(config, batch, seq_len, bytes_per_element))

    return kv_cache_bytes


def groups(config):
    return config.n_heads // (config.n_kv_heads or config.n_heads)


register(
    expected=oracle.kv_cache_bytes,
    phase=PHASE,
    section="5.15",
    hint="2 · layers · batch · heads of keys · d_head · tokens · bytes.",
    grad=False,
    bans=(),
    cases=(
        size("every head has keys of its own", 3, 7, 4),
        size("one head of keys", 3, 7, 4, n_kv_heads=1),
        size("two heads of keys, 2 bytes", 4, 11, 2, n_kv_heads=2),
        size("three heads of keys", 1, 90, 2, n_kv_heads=3),
        size("one token, one byte", 1, 1, 1),
        size("many layers", 2, 13, 8, n_layers=31),
    ),
    mistakes={
        "keys and values": scaled(lambda *given: 0.5),
        "grouped heads cache less": scaled(lambda config, *given: groups(config)),
        "bytes, not bits": scaled(lambda *given: 8),
        "each sentence of the batch has its own": scaled(lambda config, batch, *given: 1 / batch),
        "each layer has its own": scaled(lambda config, *given: 1 / config.n_layers),
        "each element takes bytes_per_element bytes": scaled(lambda *given: 1 / given[3]),
        "d_head = d_model / n_heads": scaled(lambda config, *given: config.n_heads),
        "every token so far is kept": scaled(lambda config, batch, seq_len, width: 1 / seq_len),
    },
)


def wrong(rows=lambda t, cached: 1 if cached else t, products=lambda row, t, d: 2 * row * t * d, factor=2, **config):
    """A wrong twin: other rows per step, other products of attention, other widths."""

    def decode_flops(given, n_tokens, use_cache):
        known = {name: getattr(given, name) for name in ("d_model", "n_heads", "n_layers", "d_ff", "n_kv_heads")}
        made = SimpleNamespace(**known | {name: change(given) for name, change in config.items()})
        narrow = made.d_model // made.n_heads * (made.n_kv_heads or made.n_heads)
        weights = 2 * made.d_model**2 + 2 * made.d_model * narrow + 2 * made.d_model * made.d_ff
        total = 0
        for t in range(1, n_tokens + 1):
            row = rows(t, use_cache)
            total += row * weights + products(row, t, made.d_model)
        return int(factor * made.n_layers * total)

    return decode_flops


def narrow_products(config_like):
    """Attention's products at the width of the grouped keys."""

    def decode_flops(config, n_tokens, use_cache):
        right = oracle.decode_flops(config, n_tokens, use_cache)
        steps = range(1, n_tokens + 1)
        whole = sum(4 * (1 if use_cache else t) * t * config.d_model for t in steps) * config.n_layers
        return right - whole + config_like(whole, config)

    return decode_flops


def scores_only(config, n_tokens, use_cache):
    return oracle.decode_flops(config, n_tokens, use_cache) - wrong(products=lambda *given: 0)(
        config, n_tokens, use_cache
    )


def last_step_only(config, n_tokens, use_cache):
    return oracle.decode_flops(config, n_tokens, use_cache) - oracle.decode_flops(config, n_tokens - 1, use_cache)


register(
    expected=oracle.decode_flops,
    phase=PHASE,
    section="5.15",
    hint="per step and layer: rows · weights, and 2 · rows · t · d_model for attention; two operations each.",
    grad=False,
    bans=(),
    cases=(
        cost("one token, cached", 1, True),
        cost("seven tokens, cached", 7, True),
        cost("seven tokens, without a cache", 7, False),
        cost("20 tokens, grouped heads, cached", 20, True, n_kv_heads=2),
        cost("20 tokens, grouped heads, without", 20, False, n_kv_heads=2),
        cost("one head of keys", 5, True, n_kv_heads=1, n_layers=1),
        cost("a layer of width 4096, 1024 tokens, cached", 1024, True, BIG),
        cost("a layer of width 4096, 1024 tokens, without", 1024, False, BIG),
    ),
    mistakes={
        "two operations each": wrong(factor=1),
        "with a cache, each step is one row": wrong(rows=lambda t, cached: t),
        "without a cache, each step is t rows": wrong(rows=lambda t, cached: 1),
        "a cached step reads t keys, not t² of them": wrong(
            products=lambda row, t, d: 2 * t * t * d, rows=lambda t, cached: 1 if cached else t
        ),
        "grouped heads narrow w_k and w_v": wrong(n_kv_heads=lambda config: None),
        "attention's products have full width": narrow_products(lambda whole, config: whole // groups(config)),
        "attention makes two products": wrong(products=lambda row, t, d: row * t * d),
        "attention's products are missing": wrong(products=lambda row, t, d: 0),
        "that leaves out the matrices": scores_only,
        "d_ff need not be 4 · d_model": wrong(d_ff=lambda config: 4 * config.d_model),
        "the feed-forward layer has two matrices": wrong(d_ff=lambda config: config.d_ff / 2),
        "all layers count": wrong(n_layers=lambda config: 1),
        "add up all steps": last_step_only,
        "step t reads t keys, itself included": wrong(products=lambda row, t, d: 2 * row * (t - 1) * d),
    },
)
