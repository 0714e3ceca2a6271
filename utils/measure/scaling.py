"""Does size help? A few small models on equally many tokens, a line through them, and how sure that line is."""

import copy
import math
import random
import tempfile
from dataclasses import dataclass

from utils.train import Language, fit, settings

SIZES = ((1, 32), (1, 64), (2, 64), (2, 96))  # layers, width: small enough for a minute on two cores
STEPS, BATCH = 200, 8  # 205,000 tokens in rows of 128
TESTED = 50_000  # tokens of the held-out text: more would take as long as the training
DRAWS = 2_000  # of the residuals, for the interval


@dataclass(frozen=True)
class Sweep:
    """What a sweep found. law and the rest are None where there is no law to tell."""

    parameters: list
    losses: list  # bits per byte, in the order of the parameters
    law: tuple | None  # (factor, exponent): bits per byte = factor · parameters ** −exponent
    interval: tuple | None  # of the exponent, 95 %
    left_out: float | None  # the largest error, as a share, of predicting one model from the others
    tokens: int | None = None

    @property
    def verdict(self):
        """One or two sentences for the reader."""
        if self.law is None:
            return NOT_FALLING if len(self.losses) >= 3 else "No law: three models at least are needed for a line."
        factor, exponent = self.law
        low, high = self.interval
        text = f"bits per byte = {factor:.2f} · N^−{exponent:.3f}; 95 % of redrawn lines have exponents "
        text += f"{low:.3f} to {high:.3f}. Each model is predicted from the others within {self.left_out:.1%}. "
        if low <= 0:
            return text + "The interval holds 0: from these models alone, size might as well not help."
        return text + "A demonstration on few tokens, not a law to build on."


NOT_FALLING = (
    "No law: the bits per byte do not fall from each size to the next, so a line through these points would "
    "mean nothing. Train longer, with another learning rate, or with more seeds."
)


def sweep(stream, sizes=SIZES, steps=STEPS, batch_size=BATCH, **overrides):
    """Train one model of each (n_layers, d_model) for the same tokens and judge how the loss falls. Returns a Sweep.

    overrides: further settings of all models, such as lr
    """
    found = []
    for n_layers, d_model in sizes:
        config = settings(
            "b", "smoke", n_layers=n_layers, d_model=d_model, d_ff=4 * d_model, n_heads=max(2, d_model // 32),
            steps=steps, batch_size=batch_size, **overrides,
        )  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            run = fit(config, Language(_short(stream, config.device), config), folder, resume=False, watch=False)
        found.append((run.report["parameters"], run.report["bits_per_byte"]))
    return judge(*zip(*sorted(found), strict=True), tokens=steps * batch_size * config.seq_len)


def _short(stream, device):
    """The same stream with the beginning of its held-out text."""
    short = copy.copy(stream).to(device)
    short.val = short.val[: TESTED + 1]
    return short


def judge(parameters, losses, tokens=None, seed=0):
    """The Sweep of some measured pairs: a law only where the loss falls from each size to the next."""
    pairs = sorted(zip(parameters, losses, strict=True))
    parameters, losses = map(list, zip(*pairs, strict=True))
    falling = all(later < earlier for earlier, later in zip(losses, losses[1:], strict=False))
    if len(pairs) < 3 or not falling:
        return Sweep(parameters, losses, None, None, None, tokens)
    x, y = [math.log(n) for n in parameters], [math.log(loss) for loss in losses]
    level, slope = _line(x, y)
    interval = _interval(x, y, level, slope, seed)
    return Sweep(parameters, losses, (math.exp(level), -slope), interval, _left_out(x, y), tokens)


def _line(x, y):
    """(level, slope) of least squares."""
    middle, height = sum(x) / len(x), sum(y) / len(y)
    spread = sum((one - middle) ** 2 for one in x)
    slope = sum((one - middle) * (other - height) for one, other in zip(x, y, strict=True)) / spread
    return height - slope * middle, slope


def _interval(x, y, level, slope, seed):
    """Residuals, blown up for the two numbers the line has used, are dealt out anew and the line drawn again."""
    line = [level + slope * one for one in x]
    blown = math.sqrt(len(x) / (len(x) - 2))
    residuals = [blown * (other - on) for other, on in zip(y, line, strict=True)]
    draw = random.Random(seed)
    found = sorted(-_line(x, [on + draw.choice(residuals) for on in line])[1] for _ in range(DRAWS))
    return found[int(0.025 * DRAWS)], found[int(0.975 * DRAWS) - 1]


def _left_out(x, y):
    """The largest error of one point predicted from the others, as a share of its loss."""
    errors = []
    for n in range(len(x)):
        level, slope = _line(x[:n] + x[n + 1 :], y[:n] + y[n + 1 :])
        errors.append(abs(math.exp(level + slope * x[n] - y[n]) - 1))
    return max(errors)
