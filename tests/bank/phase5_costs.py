"""kv_cache_bytes, decode_flops, fit_power_law, compute_optimal: wrong solutions and unusual right ones."""

import itertools
import math

import numpy as np
import torch

from tests.bank import right, wrong

# ---------------------------------------------------------------- kv_cache_bytes


def sized(name, count):
    """A kv_cache_bytes that gives count(config, heads of keys, d_head, batch, seq_len, bytes)."""

    def kv_cache_bytes(config, batch, seq_len, bytes_per_element):
        heads = config.n_heads if config.n_kv_heads is None else config.n_kv_heads
        return count(config, heads, config.d_model // config.n_heads, batch, seq_len, bytes_per_element)

    kv_cache_bytes.__name__ = name
    return kv_cache_bytes


for _name, _says, _count in [
    ("keys_alone", "keys and values", lambda c, h, d, b, t, w: c.n_layers * b * h * d * t * w),
    ("query_heads", "grouped heads cache less", lambda c, h, d, b, t, w: 2 * c.n_layers * b * c.d_model * t * w),
    ("bits", "bytes, not bits", lambda c, h, d, b, t, w: 16 * c.n_layers * b * h * d * t * w),
    ("one_sentence", "each sentence of the batch has its own", lambda c, h, d, b, t, w: 2 * c.n_layers * h * d * t * w),
    ("one_layer", "each layer has its own", lambda c, h, d, b, t, w: 2 * b * h * d * t * w),
    ("elements", "each element takes bytes_per_element bytes", lambda c, h, d, b, t, w: 2 * c.n_layers * b * h * d * t),
    ("last_token", "every token so far is kept", lambda c, h, d, b, t, w: 2 * c.n_layers * b * h * d * w),
    ("a_float", None, lambda c, h, d, b, t, w: 2.0 * c.n_layers * b * h * d * t * w),
    ("kibibytes", None, lambda c, h, d, b, t, w: 2 * c.n_layers * b * h * d * t * w // 1024),
]:
    wrong("kv_cache_bytes", says=_says)(sized(_name, _count))

right("kv_cache_bytes", why="a product")(sized("plain", lambda c, h, d, b, t, w: 2 * c.n_layers * b * h * d * t * w))
right("kv_cache_bytes", why="d_model times the share of heads")(
    sized("share", lambda c, h, d, b, t, w: 2 * c.n_layers * b * t * w * (c.d_model * h // c.n_heads))
)
right("kv_cache_bytes", why="math.prod")(sized("prod", lambda c, *sizes: 2 * math.prod((c.n_layers, *sizes))))
right("kv_cache_bytes", why="counts a tensor on the meta device")(
    sized("meta", lambda c, h, d, b, t, w: torch.empty(c.n_layers, 2, b, h, t, d, device="meta").numel() * w)
)

# ---------------------------------------------------------------- decode_flops


def counted(name, rows=lambda t, cached: 1 if cached else t, keys=lambda t, n: t, ops=2, narrow=True, layers=True,
            ffn=lambda c: c.d_ff, attention=2, matrices=True):  # fmt: skip
    """A decode_flops with one thing otherwise."""

    def decode_flops(config, n_tokens, use_cache):
        d = config.d_model
        share = (config.n_kv_heads or config.n_heads) / config.n_heads if narrow else 1
        weights = (2 * d * d + 2 * d * int(d * share) + 2 * d * ffn(config)) if matrices else 0
        total = 0
        for t in range(1, n_tokens + 1):
            total += rows(t, use_cache) * (weights + attention * keys(t, n_tokens) * d)
        return ops * total * (config.n_layers if layers else 1)

    decode_flops.__name__ = name
    return decode_flops


for _name, _says, _ways in [
    ("multiplications", "two operations each", dict(ops=1)),
    ("always_all_rows", "with a cache, each step is one row", dict(rows=lambda t, cached: t)),
    ("always_one_row", "without a cache, each step is t rows", dict(rows=lambda t, cached: 1)),
    ("full_heads", "grouped heads narrow w_k and w_v", dict(narrow=False)),
    ("one_layer", "all layers count", dict(layers=False)),
    ("four_times_wide", "d_ff need not be 4 · d_model", dict(ffn=lambda c: 4 * c.d_model)),
    ("scores_alone", "attention makes two products", dict(attention=1)),
    ("attention_alone", "that leaves out the matrices", dict(matrices=False)),
    ("keys_before", "step t reads t keys, itself included", dict(keys=lambda t, n: t - 1)),
    ("all_keys_always", None, dict(keys=lambda t, n: n)),
]:
    wrong("decode_flops", says=_says)(counted(_name, **_ways))


@wrong("decode_flops", says="add up all steps")
def the_last_step(config, n_tokens, use_cache):
    whole = counted("whole")
    return whole(config, n_tokens, use_cache) - whole(config, n_tokens - 1, use_cache)


right("decode_flops", why="a loop over steps")(counted("loop"))


@right("decode_flops", why="closed forms of the sums")
def closed(config, n_tokens, use_cache):
    d, n = config.d_model, n_tokens
    wide = 2 * d * d + 2 * d * (d * (config.n_kv_heads or config.n_heads) // config.n_heads) + 2 * d * config.d_ff
    ones, triangle, squares = n, n * (n + 1) // 2, n * (n + 1) * (2 * n + 1) // 6
    rows, products = (ones, triangle) if use_cache else (triangle, squares)
    return 2 * config.n_layers * (rows * wide + 2 * d * products)


@right("decode_flops", why="shapes of matrices, multiplied")
def by_shapes(config, n_tokens, use_cache):
    d, head = config.d_model, config.d_model // config.n_heads
    keys = (config.n_kv_heads or config.n_heads) * head
    total = 0
    for t in range(1, n_tokens + 1):
        r = 1 if use_cache else t
        shapes = [(r, d, d), (r, d, keys), (r, d, keys), (r, d, d), (r, d, config.d_ff), (r, config.d_ff, d)]
        shapes += [(r, head, t), (r, t, head)] * config.n_heads
        total += sum(2 * math.prod(shape) for shape in shapes)
    return total * config.n_layers


@right("decode_flops", why="a running sum")
def running(config, n_tokens, use_cache):
    one = counted("one")
    steps = (one(config, t, use_cache) - one(config, t - 1, use_cache) for t in range(1, n_tokens + 1))
    return list(itertools.accumulate(steps))[-1]


# ---------------------------------------------------------------- fit_power_law


def line(sizes, rest):
    """Least squares in logarithms: (A, alpha, sum of squares)."""
    x, y = np.log(np.array(sizes, dtype=float)), np.log(rest)
    table = np.stack([np.ones_like(x), -x], 1)
    (level, alpha), *_ = np.linalg.lstsq(table, y, rcond=None)
    return float(np.exp(level)), float(alpha), float(((table @ [level, alpha] - y) ** 2).sum())


def on_a_grid(sizes, losses, points=4000):
    losses = np.array(losses)
    floors = losses.min() * (1 - np.geomspace(1e-4, 1, points))
    floor = min(floors, key=lambda floor: line(sizes, losses - floor)[2] if floor < losses.min() else math.inf)
    a, alpha, _ = line(sizes, losses - floor)
    return {"E": float(floor), "A": a, "alpha": alpha}


@wrong("fit_power_law", says="the loss has a floor E")
def no_floor(sizes, losses):
    a, alpha, _ = line(sizes, np.array(losses))
    return {"E": 0.0, "A": a, "alpha": alpha}


@wrong("fit_power_law", says="the floor lies below the lowest loss")
def lowest(sizes, losses):
    floor = min(losses) - 1e-4
    a, alpha, _ = line(sizes, np.array(losses) - floor)
    return {"E": floor, "A": a, "alpha": alpha}


@wrong("fit_power_law", says="alpha is positive: the loss falls with size")
def slope_itself(sizes, losses):
    fit = on_a_grid(sizes, losses, 400)
    return fit | {"alpha": -fit["alpha"]}


@wrong("fit_power_law", says="one base for all logarithms")
def two_bases(sizes, losses):
    fit = on_a_grid(sizes, losses)
    return fit | {"A": math.exp(math.log10(fit["A"]))}


@wrong("fit_power_law", says="the keys are E, A and alpha")
def other_keys(sizes, losses):
    fit = on_a_grid(sizes, losses, 400)
    return {"floor": fit["E"], "A": fit["A"], "alpha": fit["alpha"]}


@wrong("fit_power_law")
def coarse(sizes, losses):
    return on_a_grid(sizes, losses, 12)


@wrong("fit_power_law")
def first_and_last(sizes, losses):
    """A law through two points."""
    floor = 0.9 * min(losses)
    a, alpha, _ = line([sizes[0], sizes[-1]], np.array([losses[0], losses[-1]]) - floor)
    return {"E": floor, "A": a, "alpha": alpha}


right("fit_power_law", why="a grid of floors, least squares at each")(on_a_grid)


@right("fit_power_law", why="gradient steps on logarithms, with second derivatives (LBFGS)")
def descended(sizes, losses):
    x, y = torch.tensor(sizes, dtype=torch.float64).log(), torch.tensor(losses, dtype=torch.float64)
    start = on_a_grid(sizes, losses, 60)
    raw = torch.tensor([math.log(start["E"]), math.log(start["A"]), math.log(start["alpha"])], dtype=torch.float64)
    raw.requires_grad_()
    how = dict(max_iter=400, tolerance_grad=1e-14, tolerance_change=1e-18, line_search_fn="strong_wolfe")
    search = torch.optim.LBFGS([raw], **how)

    def loss():
        search.zero_grad()
        guess = raw[0].exp() + (raw[1] - raw[2].exp() * x).exp()
        value = 1e6 * (guess.log() - y.log()).square().mean()
        value.backward()
        return value

    for _ in range(5):
        search.step(loss)
    e, a, alpha = raw.exp().tolist()
    return {"E": e, "A": a, "alpha": alpha}


@right("fit_power_law", why="a grid of exponents: the law is linear in E and A then")
def by_exponent(sizes, losses):
    sizes, losses = np.array(sizes, dtype=float), np.array(losses)

    def solved(alpha):
        table = np.stack([np.ones_like(sizes), (sizes / sizes[0]) ** -alpha], 1)
        (floor, height), *_ = np.linalg.lstsq(table, losses, rcond=None)
        return ((table @ [floor, height] - losses) ** 2).sum(), floor, height * sizes[0] ** alpha

    alpha = min(np.linspace(0.01, 1, 2000), key=lambda alpha: solved(alpha)[0])
    _, floor, a = solved(alpha)
    return {"alpha": alpha, "A": a, "E": floor}


@right("fit_power_law", why="ternary search over the floor")
def ternary(sizes, losses):
    losses, low, high = np.array(losses), 0.0, min(losses) - 1e-9
    for _ in range(200):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if line(sizes, losses - a)[2] < line(sizes, losses - b)[2] else (a, high)
    a, alpha, _ = line(sizes, losses - low)
    return {"E": low, "A": a, "alpha": alpha}


# ---------------------------------------------------------------- compute_optimal


def formula(name, scale=lambda f: f["alpha"] * f["A"] / (f["beta"] * f["B"]), power="beta", per=6.0):
    def compute_optimal(flops, fit):
        total = fit["alpha"] + fit["beta"]
        n = scale(fit) ** (1 / total) * (flops / per) ** (fit[power] / total)
        return n, flops / per / n

    compute_optimal.__name__ = name
    return compute_optimal


def split(name, n_params):
    def compute_optimal(flops, fit):
        n = n_params(flops)
        return n, flops / 6 / n

    compute_optimal.__name__ = name
    return compute_optimal


wrong("compute_optimal", says="N grows with beta/(alpha+beta)")(formula("exchanged", power="alpha"))
wrong("compute_optimal", says="six operations per parameter and token")(formula("one_operation", per=1.0))
wrong("compute_optimal", says="half and half is not the cheapest")(split("half", lambda flops: (flops / 6) ** 0.5))
wrong("compute_optimal", says="20 tokens per parameter is one law's answer, not this one's")(
    split("twenty", lambda flops: (flops / 120) ** 0.5)
)
wrong("compute_optimal", says="the slopes bring alpha and beta down in front")(
    formula("no_slopes", scale=lambda f: f["A"] / f["B"])
)
wrong("compute_optimal")(formula("upside_down", scale=lambda f: f["beta"] * f["B"] / (f["alpha"] * f["A"])))


@wrong("compute_optimal", says="n_params first, then n_tokens")
def tokens_come_first(flops, fit):
    return formula("right")(flops, fit)[::-1]


@wrong("compute_optimal")
def one_number(flops, fit):
    return formula("right")(flops, fit)[0]


right("compute_optimal", why="the closed form")(formula("closed_form"))


@right("compute_optimal", why="all of a fine grid, in logarithms")
def scanned(flops, fit):
    n = np.geomspace(1e3, 1e15, 20_001)
    d = flops / 6 / n
    best = (fit["A"] * n ** -fit["alpha"] + fit["B"] * d ** -fit["beta"]).argmin()
    return float(n[best]), float(d[best])


@right("compute_optimal", why="bisection of the slope")
def bisected(flops, fit):
    low, high = 1.0, flops / 6
    for _ in range(300):
        n = (low * high) ** 0.5
        d = flops / 6 / n
        rising = fit["beta"] * fit["B"] * d ** -fit["beta"] > fit["alpha"] * fit["A"] * n ** -fit["alpha"]
        low, high = (low, n) if rising else (n, high)
    return n, flops / 6 / n


@right("compute_optimal", why="the tokens first, by the same formula turned round")
def tokens_first(flops, fit):
    total = fit["alpha"] + fit["beta"]
    d = (fit["beta"] * fit["B"] / (fit["alpha"] * fit["A"])) ** (1 / total) * (flops / 6) ** (fit["alpha"] / total)
    return flops / (6 * d), d
