"""Recompute the numbers of phase 1: tokens, embeddings, positions, and what order means."""

from collections import Counter

import numpy as np

from tests.notes_ops import attention_of, exact, largest, recomputes, sinusoids


@recomputes("000-embedding-lookup")
def pick_rows(table, token_ids):
    vocabulary = list(table)
    one_hot = np.eye(len(vocabulary))[[vocabulary.index(str(token)) for token in token_ids]]
    return {"rows": one_hot @ np.array(list(table.values()))}


@recomputes("000-pe-table")
def sinusoidal_table(positions, d):
    return {"PE": sinusoids(positions, d)}


@recomputes("003-pe-p0")
def first_position(d):
    return {"p0": sinusoids([0], d)[0]}


@recomputes("000-x-enc-*", "000-residual-[12]", "000-vector-trace-attn-and-residuals")
def added(a, b):
    return {"result": np.add(a, b)}


@recomputes("000-pe-wavelength-range", "004-pe-wavelengths")
def wavelengths(d):
    speeds = 10_000.0 ** (-np.arange(0, d, 2) / d)
    return {"first_over_2pi": 1 / speeds[0], "last_over_2pi": 1 / speeds[-1]}


@recomputes("004-small-i-low-frequency")
def turning_speeds(d):
    omega = 10_000.0 ** (-np.arange(0, d, 2) / d)
    return {"omega": omega, "small_i_is_low_frequency": omega[0] < omega[-1]}


@recomputes("000-pe-rotation")
def shift_is_rotation(d, positions, offsets):
    speeds = 10_000.0 ** (-np.arange(0, d, 2) / d)
    worst = 0.0
    for offset in offsets:
        turn = np.zeros((d, d))
        for pair, angle in enumerate(speeds * offset):
            turn[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = [
                [np.cos(angle), -np.sin(angle)],
                [np.sin(angle), np.cos(angle)],
            ]
        later = sinusoids(np.add(positions, offset), d)
        worst = max(worst, largest(sinusoids(positions, d) @ turn - later))
    return {"max_identity_error": worst, "identity_holds": worst < 1e-12}


def _table_as_printed_in_003(positions, width):
    """Return the table one gets by taking i for the single dimension and 2i or 2i - 1 for the exponent."""
    dimension = np.arange(width)
    exponent = np.where(dimension % 2 == 0, 2 * dimension, 2 * dimension - 1) / width
    angles = np.asarray(positions, dtype=float)[:, None] / 10_000.0**exponent
    return np.where(dimension % 2 == 0, np.sin(angles), np.cos(angles))


def _best_shift_error(table, offset):
    """Return how far the best linear map from each row to the row `offset` later misses."""
    before, after = table[:-offset], table[offset:]
    best = np.linalg.lstsq(before, after)[0]
    return round(largest(before @ best - after), 6)


@recomputes("003-pe-formula")
def printed_formula(d, k):
    printed, standard = _table_as_printed_in_003(range(3), 4), sinusoids(range(3), 4)
    survives = _best_shift_error(_table_as_printed_in_003(range(200), d), k)
    return {
        "printed_values": printed,
        "standard_values": standard,
        "shift_residual_standard": _best_shift_error(sinusoids(range(200), d), k),
        "shift_residual_printed": survives,
        "agrees_with_standard": largest(printed - standard) < 1e-9,
        "shift_property_survives": survives < 1e-9,
    }


@recomputes("003-distance-matrix")
def steps_apart(n):
    return {"D": [[abs(row - column) for column in range(n)] for row in range(n)]}


@recomputes("003-one-hot-sqrt2")
def one_hot_distances(n):
    one_hot = np.eye(n)
    apart = [np.sqrt(((one_hot[i] - one_hot[j]) ** 2).sum()) for i in range(n) for j in range(i)]
    return {"distance": apart[0], "all_equal": max(apart) - min(apart) < 1e-12}


@recomputes("003-pe-distance", "003-pe-distance-d4")
def sinusoid_distances(n, d):
    table = exact(sinusoids(range(n), d))
    apart = (table[:, None] - table[None]).norm(dim=-1).numpy()
    spread = max(np.ptp(np.diagonal(apart, offset)) for offset in range(1, n))
    return {
        "row0": apart[0],
        "depends_only_on_offset": spread < 1e-9,
        "monotone": all(near < far for near, far in zip(apart[0], apart[0][1:], strict=False)),
    }


@recomputes("003-permutation-invariant", "004-permutation-invariant")
def reordered_tokens(seed, order, recipe):
    draw = np.random.default_rng(seed)
    weights = [draw.normal(size=(4, 4)) for _ in range(3)]
    x = draw.normal(size=(3, 4))
    future = np.triu(np.ones((3, 3), dtype=bool), 1)
    moved, original = attention_of(x[order], *weights), attention_of(x, *weights)
    causal = attention_of(x[order], *weights, hidden=future) - attention_of(x, *weights, hidden=future)[order]
    gaps = {
        "equivariance_gap": largest(moved - original[order]),
        "invariance_gap": largest(moved - original),
        "causal_equivariance_gap": largest(causal),
    }
    names = ("equivariant", "invariant", "causal_equivariant")
    return gaps | {name: gap < 1e-9 for name, gap in zip(names, gaps.values(), strict=True)}


@recomputes("004-same-multiset", "002-dog-bites-man")
def same_words(a, b):
    return {"identical": Counter(a.casefold().split()) == Counter(b.casefold().split())}
