"""mfu, bits_per_byte: how near the ceiling a run came, and how much of a text it knows."""

import math

from utils import oracle
from utils.checks.draw import normal
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase7 import PHASE
from utils.checks.phase7 import rules_measuring as rules

# ---- mfu -----------------------------------------------------------------------------------------


def speed(name, tokens_per_second, flops, peak, make=case):
    return make(name, dict(tokens_per_second=tokens_per_second, flops=flops, peak=peak))


def share(change):
    """A wrong twin: change(the ratio, tokens_per_second, flops, peak)."""

    def mfu(tokens_per_second, flops, peak):
        right = oracle.mfu(tokens_per_second, flops, peak)  # for its refusals
        return float(change(right, tokens_per_second, flops, peak))

    return mfu


def upside_down(tokens_per_second, flops, peak):
    """With the refusals of one's own."""
    found = peak / (tokens_per_second * flops)
    if not 0 < peak < math.inf or found > 1:
        raise ValueError("the peak")
    return found


def above(most):
    """Tells what lies above the peak, or cuts it off."""

    def mfu(tokens_per_second, flops, peak):
        if not 0 < peak < math.inf:
            return oracle.mfu(tokens_per_second, flops, peak)
        return min(tokens_per_second * flops / peak, most)

    return mfu


def of_any_peak(tokens_per_second, flops, peak):
    if 0 < peak < math.inf:
        return oracle.mfu(tokens_per_second, flops, peak)
    return tokens_per_second * flops / peak if peak else 0.0


def never_all_of_it(tokens_per_second, flops, peak):
    if tokens_per_second * flops == peak:
        raise ValueError("peak")
    return oracle.mfu(tokens_per_second, flops, peak)


register(
    expected=oracle.mfu,
    phase=PHASE,
    section="7.16",
    hint="tokens_per_second · flops / peak; refuse a peak that is not positive and finite, and a ratio above 1.",
    grad=False,
    bans=(),
    script="mfu",
    cases=(
        speed("a laptop, hardly used", 88.0, 5.2e6, 88.7e9),  # small: what is too large by far is no refusal yet
        speed("a GPU", 185_000.0, 8.55e8, 312e12),
        speed("a laptop", 10_500.0, 5.2e6, 88.7e9),
        speed("ints", 441_000, 798_000_000, 788_000_000_000_000),
        speed("counted in 10¹⁵ operations", 185_000.0, 8.55e-7, 0.312),
        speed("nothing yet", 0.0, 8e8, 1e14),
        speed("exactly the peak", 1000.0, 2e9, 2e12),
        speed("104 %", 412_000.0, 7.98e8, 316e12, refusal),
        speed("a billionth above", 1000.000001, 2e9, 2e12, refusal),
        speed("an unknown peak", 1000.0, 2e9, math.inf, refusal),
        speed("a peak that is no number", 1000.0, 2e9, math.nan, refusal),
        speed("no peak", 1000.0, 2e9, 0.0, refusal),
        speed("a peak below 0", 1000.0, 2e9, -2e12, refusal),
    ),
    mistakes={
        "a share, not per cent": share(lambda right, *given: 100 * right),
        "flops are those of training already": Replays(
            share(lambda right, *given: 3 * right), share(lambda right, *given: 6 * right)
        ),
        "the peak is an argument: this device's, not an A100's": share(
            lambda right, tokens, flops, peak: tokens * flops / 312e12
        ),
        "peak is in operations per second": Replays(
            share(lambda right, *given: right * 1e12), share(lambda right, *given: right / 1e12)
        ),
        "what was used over what there is": Spotted(
            rules.small_share_refused,
            upside_down,
            also=(share(lambda right, *given: 1 / right if right else math.inf),),
        ),
        "flops are per token": share(lambda right, tokens, flops, peak: flops / peak),
        "more than the ceiling: the ceiling is wrong, so refuse": Spotted(
            rules.above_the_ceiling, above(math.inf), also=(above(1.0),), certain=True
        ),
        "an unknown peak has no utilisation": Spotted(rules.peak_unknown, of_any_peak, certain=True),
        "exactly the peak is a share: refuse what lies above": Spotted(rules.peak_itself_refused, never_all_of_it),
    },
)

# ---- bits_per_byte -------------------------------------------------------------------------------


def spelled(name, loss_sum, n_bytes, make=case):
    return make(name, dict(loss_sum=loss_sum, n_bytes=n_bytes))


def spread(change):
    """A wrong twin: change(sum of losses, bytes)."""

    def bits_per_byte(loss_sum, n_bytes):
        oracle.bits_per_byte(loss_sum, n_bytes)  # for its refusals
        return float(change(float(loss_sum), n_bytes))

    return bits_per_byte


def tensors_alone(loss_sum, n_bytes):
    return oracle.bits_per_byte(loss_sum.item(), n_bytes)


def divides_by_anything(loss_sum, n_bytes):
    return float(loss_sum) / math.log(2) / n_bytes if n_bytes else math.inf


register(
    expected=oracle.bits_per_byte,
    phase=PHASE,
    section="7.14",
    hint="a nat is 1 / ln 2 bits; divide by all bytes of the text.",
    grad=False,
    bans=(),
    script="bits_per_byte",
    cases=(
        spelled("a small text", 812.5, 397),
        spelled("a validation split", 917_344.2, 530_112),
        spelled("one byte", 5.545177444479562, 1),
        spelled("nothing lost", 0.0, 12),
        spelled("a tensor", normal(std=0.1, shift=9.0), 7),
        spelled("no bytes", 12.5, 0, refusal),
        spelled("fewer", 12.5, -3, refusal),
    ),
    mistakes={
        "losses are in nats: a nat is 1 / ln 2 bits": spread(lambda loss, n: loss / n),
        "divide by ln 2: bits are smaller, so there are more": spread(lambda loss, n: loss * math.log(2) / n),
        "divide by ln 2, not by ln 10": spread(lambda loss, n: loss / math.log(10) / n),
        "per byte, not per bit": spread(lambda loss, n: loss / math.log(2) / n / 8),
        "bits, not a perplexity": Replays(
            spread(lambda loss, n: 2 ** min(loss / math.log(2) / n, 1000)),
            spread(lambda loss, n: math.exp(min(loss / n, 700))),
        ),
        "bits over bytes": spread(lambda loss, n: n * math.log(2) / loss if loss else math.inf),
        "the loss is a logarithm already": spread(lambda loss, n: math.log2(loss / n) if loss else -math.inf),
        "divide by the bytes": spread(lambda loss, n: loss / math.log(2)),
        "loss_sum may be a plain number: float(loss_sum)": Spotted(rules.no_plain_number, tensors_alone),
        "a text without bytes has no bits per byte: refuse it": Spotted(
            rules.no_bytes, divides_by_anything, certain=True
        ),
    },
)
