"""mfu, bits_per_byte: wrong solutions and unusual right ones."""

import math

import numpy as np
import torch

from tests.bank import right, wrong

# ---------------------------------------------------------------- mfu


def ratio(name, answer=lambda speed, flops, peak: speed * flops / peak, known=True, capped=True, error=ValueError):
    def mfu(tokens_per_second, flops, peak):
        if known and not (peak > 0 and math.isfinite(peak)):
            raise error("peak")
        if capped and peak > 0 and tokens_per_second * flops > peak:
            raise error("above the peak: measure it again")
        return answer(tokens_per_second, flops, peak)

    mfu.__name__ = name
    return mfu


for _name, _says, _ways in [
    ("per_cent", "a share, not per cent", dict(answer=lambda s, f, p: 100 * s * f / p)),
    ("thrice", "flops are those of training already", dict(answer=lambda s, f, p: 3 * s * f / p)),
    ("six_times", "flops are those of training already", dict(answer=lambda s, f, p: 6 * s * f / p)),
    (
        "an_a100",
        "the peak is an argument: this device's, not an A100's",
        dict(answer=lambda s, f, p: s * f / 312e12),
    ),
    ("teraflops", "peak is in operations per second", dict(answer=lambda s, f, p: s * f / (p * 1e12))),
    (
        "upside_down",
        "what was used over what there is",
        dict(answer=lambda s, f, p: p / (s * f) if s else math.inf),
    ),
    ("one_token", "flops are per token", dict(answer=lambda s, f, p: f / p)),
    ("prints_104", "more than the ceiling: the ceiling is wrong, so refuse", dict(capped=False)),
    (
        "cut_off",
        "more than the ceiling: the ceiling is wrong, so refuse",
        dict(capped=False, answer=lambda s, f, p: min(1.0, s * f / p)),
    ),
    ("any_peak", "an unknown peak has no utilisation", dict(known=False)),
    ("refuses_one", None, dict(answer=lambda s, f, p: s * f / p if s * f < p else None)),
    ("asserts", None, dict(error=AssertionError)),
    ("rounded", None, dict(answer=lambda s, f, p: round(s * f / p, 3))),
]:
    wrong("mfu", says=_says)(ratio(_name, **_ways))


@wrong("mfu", says="more than the ceiling: the ceiling is wrong, so refuse")
def a_little_is_fine(tokens_per_second, flops, peak):
    """Allows one per cent of noise."""
    if not 0 < peak < math.inf or tokens_per_second * flops / peak > 1.01:
        raise ValueError("peak")
    return min(1.0, tokens_per_second * flops / peak)


right("mfu", why="a quotient")(ratio("plain"))
right("mfu", why="quotients in another order")(ratio("by_time", answer=lambda s, f, p: s / (p / f)))
right("mfu", why="a tensor without axes")(
    ratio("a_tensor", answer=lambda s, f, p: torch.tensor(s * f / p, dtype=torch.float64))
)


@right("mfu", why="refuses what is not between 0 and 1, whatever the reason")
def one_look(tokens_per_second, flops, peak):
    share = np.float64(tokens_per_second) * flops / peak if peak not in (0, math.inf) else np.float64(-1)
    if 0 <= share <= 1:
        return share
    raise ValueError(f"{share} is no share: is {peak} really the peak?")


# ---------------------------------------------------------------- bits_per_byte


def coded(name, answer=lambda loss, n: loss / (n * math.log(2)), refuses=lambda n: n < 1, error=ValueError):
    def bits_per_byte(loss_sum, n_bytes):
        if refuses(n_bytes):
            raise error("n_bytes must be positive")
        return answer(loss_sum, n_bytes)

    bits_per_byte.__name__ = name
    return bits_per_byte


for _name, _says, _ways in [
    ("nats", "losses are in nats: a nat is 1 / ln 2 bits", dict(answer=lambda loss, n: loss / n)),
    (
        "times_ln2",
        "divide by ln 2: bits are smaller, so there are more",
        dict(answer=lambda loss, n: loss * math.log(2) / n),
    ),
    ("digits", "divide by ln 2, not by ln 10", dict(answer=lambda loss, n: loss / math.log(10) / n)),
    ("per_bit", "per byte, not per bit", dict(answer=lambda loss, n: loss / math.log(2) / (8 * n))),
    ("two_to_the", "bits, not a perplexity", dict(answer=lambda loss, n: 2.0 ** (loss / math.log(2) / n))),
    ("e_to_the", "bits, not a perplexity", dict(answer=lambda loss, n: math.exp(loss / n))),
    ("upside_down", "bits over bytes", dict(answer=lambda loss, n: n * math.log(2) / loss if loss else math.inf)),
    ("log_of_a_log", "the loss is a logarithm already", dict(answer=lambda loss, n: math.log2(loss / n))),
    ("bits_of_the_text", "divide by the bytes", dict(answer=lambda loss, n: loss / math.log(2))),
    ("divides", "a text without bytes has no bits per byte: refuse it", dict(refuses=lambda n: False)),
    (
        "at_least_one",
        "a text without bytes has no bits per byte: refuse it",
        dict(answer=lambda loss, n: loss / math.log(2) / max(n, 1), refuses=lambda n: False),
    ),
    ("only_zero", "a text without bytes has no bits per byte: refuse it", dict(refuses=lambda n: n == 0)),
    ("rounded", None, dict(answer=lambda loss, n: round(float(loss) / n * 1.4427, 4))),
]:
    wrong("bits_per_byte", says=_says)(coded(_name, **_ways))

right("bits_per_byte", why="a quotient, a tensor where the loss is one")(coded("plain"))
right("bits_per_byte", why="log2(e)")(coded("log2_e", lambda loss, n: float(loss) * math.log2(math.e) / n))
right("bits_per_byte", why="NumPy")(coded("with_numpy", lambda loss, n: np.float64(loss) / np.log(2) / n))
right("bits_per_byte", why="torch's logarithm in float64")(
    coded("with_torch", lambda loss, n: loss / torch.log(torch.tensor(2.0, dtype=torch.float64)) / n)
)
