"""fit_power_law and compute_optimal: how loss falls with size, and what a budget is best spent on."""

import math

import numpy as np
import torch

from utils import oracle
from utils.checks.exercise import Spotted, case, register
from utils.checks.phase5 import PHASE, rules_scaling

SIZES = [10 ** (5 + 3 * step / 9) for step in range(10)]


def values(sizes, E, A, alpha):
    return [E + A * size**-alpha for size in sizes]


def exact(name, sizes=SIZES, **law):
    losses = values(sizes, **law)
    return case(name, dict(sizes=list(sizes), losses=losses), judge=rules_scaling.planted(**law))


def noisy(name, seed, sizes=SIZES, **law):
    right = values(sizes, **law)
    noise = torch.randn(len(sizes), generator=torch.Generator().manual_seed(seed), dtype=torch.float64).tolist()
    losses = [loss + 1e-3 * part for loss, part in zip(right, noise, strict=True)]
    return case(name, dict(sizes=list(sizes), losses=losses), judge=rules_scaling.predicts(sizes, right))


# ---- wrong ways ----------------------------------------------------------------------------------


def changed(change):
    """A wrong twin: change(fit, losses) is what is given."""
    return lambda sizes, losses: change(oracle.fit_power_law(sizes, losses), losses)


def straight(sizes, losses, floor=0.0):
    """One line through the logarithms."""
    slope, level = np.polyfit(np.log(sizes), np.log(np.array(losses) - floor), 1)
    return {"E": floor, "A": float(np.exp(level)), "alpha": float(-slope)}


def below_the_lowest(sizes, losses):
    return straight(sizes, losses, min(losses) * (1 - 1e-6))


register(
    expected=oracle.fit_power_law,
    phase=PHASE,
    section="5.16",
    hint="for each floor E below the lowest loss, a line through log(size), log(loss − E); keep the best, look finer.",
    grad=False,
    bans=(),
    cases=(
        exact("a law of language models", E=1.69, A=406.4, alpha=0.34),
        exact("a steep one with a low floor", E=0.3, A=900.0, alpha=0.5),
        exact("a flat one with a high floor", E=2.5, A=30.0, alpha=0.2),
        exact("sizes in no order", sizes=SIZES[::3] + SIZES[1::3] + SIZES[2::3], E=1.2, A=150.0, alpha=0.3),
        exact(
            "sizes as ints, six of them",
            sizes=[100_000, 10**6, 10**7, 3 * 10**5, 10**8, 4 * 10**6],
            E=2.0,
            A=60.0,
            alpha=0.25,
        ),
        noisy("noise of 0.001", 0, E=1.69, A=406.4, alpha=0.34),
        noisy("noise of 0.001, a flat law", 1, E=2.5, A=30.0, alpha=0.2),
    ),
    mistakes={
        "the loss has a floor E": Spotted(rules_scaling.no_floor, straight, certain=True),
        "the floor lies below the lowest loss": Spotted(rules_scaling.lowest_as_floor, below_the_lowest, certain=True),
        "alpha is positive: the loss falls with size": Spotted(
            rules_scaling.rises, changed(lambda fit, losses: fit | {"alpha": -fit["alpha"]}), certain=True
        ),
        "one base for all logarithms": Spotted(
            rules_scaling.bases_mixed,
            changed(lambda fit, losses: fit | {"A": 10 ** math.log(fit["A"])}),
            certain=True,
        ),
        "A is exp of the line's height at 0": Spotted(
            rules_scaling.still_a_logarithm, changed(lambda fit, losses: fit | {"A": math.log(fit["A"])}), certain=True
        ),
        "the keys are E, A and alpha": Spotted(
            rules_scaling.other_keys,
            changed(lambda fit, losses: (fit["E"], fit["A"], fit["alpha"])),
            certain=True,
        ),
    },
)

FITS = {
    "a": dict(E=1.69, A=406.4, alpha=0.34, B=410.7, beta=0.28),
    "b": dict(E=1.2, A=90.0, alpha=0.21, B=2500.0, beta=0.37),
    "c": dict(E=0.0, A=50.0, alpha=0.3, B=800.0, beta=0.3),
}


def budget(name, flops, fit):
    n_params, n_tokens = oracle.compute_optimal(flops, fit)
    return case(name, dict(flops=flops, fit=dict(fit)), judge=rules_scaling.cheapest(flops, n_params, n_tokens))


def other_split(change):
    """A wrong twin: n_params = change(flops, fit), the rest of the budget for tokens."""

    def compute_optimal(flops, fit):
        n_params = change(flops, fit)
        return n_params, flops / 6 / n_params

    return compute_optimal


def exchanged(flops, fit):
    return oracle.compute_optimal(flops, fit | {"alpha": fit["beta"], "beta": fit["alpha"]})[0]


def costs(per_pair):
    """A wrong twin: flops = per_pair · N · D."""
    return lambda flops, fit: oracle.compute_optimal(6 * flops / per_pair, fit)


def without_slopes(flops, fit):
    total = fit["alpha"] + fit["beta"]
    return (fit["A"] / fit["B"]) ** (1 / total) * (flops / 6) ** (fit["beta"] / total)


register(
    expected=oracle.compute_optimal,
    phase=PHASE,
    section="5.17",
    hint="put D = flops / (6 N) into the law; the slope in N is 0 at N = (αA/βB)^(1/(α+β)) · (flops/6)^(β/(α+β)).",
    grad=False,
    bans=(),
    cases=(
        budget("1e18 operations", 1e18, FITS["a"]),
        budget("3e21 operations", 3e21, FITS["a"]),
        budget("1e18, another law", 1e18, FITS["b"]),
        budget("3e21, another law", 3e21, FITS["b"]),
        budget("equal exponents", 1e20, FITS["c"]),
    ),
    mistakes={
        "N grows with beta/(alpha+beta)": Spotted(rules_scaling.split_is("exchanged"), other_split(exchanged)),
        "six operations per parameter and token": Spotted(rules_scaling.split_is("six"), costs(1), also=(costs(1),)),
        "two of the six operations are the forward pass alone": Spotted(rules_scaling.split_is("two"), costs(2)),
        "half and half is not the cheapest": Spotted(
            rules_scaling.split_is("half"), other_split(lambda flops, fit: math.sqrt(flops / 6))
        ),
        "20 tokens per parameter is one law's answer, not this one's": Spotted(
            rules_scaling.split_is("twenty"), other_split(lambda flops, fit: math.sqrt(flops / 120))
        ),
        "n_params first, then n_tokens": Spotted(
            rules_scaling.split_is("order"), lambda flops, fit: oracle.compute_optimal(flops, fit)[::-1]
        ),
        "the slopes bring alpha and beta down in front": Spotted(
            rules_scaling.split_is("slopes"), other_split(without_slopes)
        ),
    },
)
