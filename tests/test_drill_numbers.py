"""Numeric cards against the course's own parts: their answers are computed anew from what the prompt says."""

import math
import random
import re

import pytest
import torch

from utils import oracle
from utils.config import ModelConfig
from utils.drills import load_cards

CARDS = {card.id: card for card in load_cards() if card.kind == "numeric"}


def numbers(prompt):
    """The numbers of a prompt, in order: 32,000 is one, −3 and -3 are negative."""
    found = re.findall(r"(?<![\w·^])[-−]?\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?", prompt)
    return [float(one.replace("−", "-").rstrip(",").replace(",", "")) for one in found]


def config(vocab_size=0, d_model=0, n_heads=1, n_layers=1, d_ff=0, max_len=0, **more):
    return ModelConfig(int(vocab_size), int(d_model), int(n_heads), int(n_layers), int(d_ff), int(max_len), **more)


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def of_a_token(layer):
    """What a norm makes of the first entry of a token, in a prompt that holds the token last."""
    return lambda *found: layer(tensor(*found[-4:]))[0].item()


def rms(x):
    return x / x.square().mean().sqrt()


def layer_norm(x):
    return oracle.layer_norm(x, torch.ones(4).double(), torch.zeros(4).double(), 0.0)


def int_mask_sum(mask):
    return int(mask.sum())


def softmax_share(*scores):
    return tensor(*scores).softmax(0)[0].item()


def beams(*found):
    *probs, alpha = found
    return sum(map(math.log, probs)) / len(probs) ** alpha


def guesses(n, alpha):
    """One token for sure, and then as many as stand: the walk itself, no closed form."""
    return 1 + sum(math.prod([alpha] * i) for i in range(1, int(n) + 1))


def four_bits(largest, bits, low, high, weight):
    q, scale = oracle.quantize(tensor(largest, weight), int(bits))
    return oracle.dequantize(q, scale)[1].item()


def packed(low, high):
    return oracle.pack_int4(torch.tensor([int(low), int(high)], dtype=torch.int8)).item()


def cached_bytes(layers, heads, groups, width, batch, length):
    sizes = config(d_model=heads * width, n_heads=heads, n_layers=layers, n_kv_heads=int(groups))
    return oracle.kv_cache_bytes(sizes, int(batch), int(length), 2)


def positions_apart(start, end):
    table = oracle.sinusoidal_positions(int(end) + 1, 4)
    return (table[int(start)] - table[int(end)]).norm().item()


# id: (which numbers of the prompt, in order, go in; how the answer comes out)
ANEW = {
    "phase1/no-ruler": (slice(-2, None), positions_apart),
    "phase1/padding-share": (
        slice(0, 5),
        lambda *n: 100 * (1 - oracle.pad_batch([[1] * int(k) for k in n], 0)[1].double().mean().item()),
    ),
    "phase1/vocabulary": (
        slice(None),
        lambda merges, specials: 256 + len(range(int(merges))) + len(range(int(specials))),
    ),
    "phase2/visible-pairs": (slice(None), lambda n: int_mask_sum(oracle.causal_mask(int(n)))),
    "phase2/visible-in-a-chunk": (slice(2, 4), lambda q, k: int_mask_sum(oracle.causal_mask(int(q), int(k)))),
    "phase2/scaled-share": (slice(None), lambda a, b, c, d: softmax_share(*(x / math.sqrt(d) for x in (a, b, c)))),
    "phase2/share-beside-a-hidden-key": (slice(0, 3), softmax_share),
    "phase2/attention-gigaflops": (
        slice(0, 4),
        lambda b, h, d, n: oracle.attention_cost(int(b), int(h), int(n), int(n), int(d), 4)[0] / 1e9,
    ),
    "phase2/score-table": (
        slice(0, 3),
        lambda b, h, n: oracle.attention_cost(int(b), int(h), int(n), int(n), 1, 1)[1] / 1e9,
    ),
    "phase2/jacobian-entry": (
        slice(None),
        lambda a, b, c: float(oracle.softmax_jacobian(tensor(a, b, c).numpy())[0, 1]),
    ),
    "phase3/mha-weights": (slice(None), lambda d, h: oracle.mha_parameters(int(d), int(h), int(h), True)),
    "phase3/grouped-weights": (
        slice(None),
        lambda d, h, g: oracle.mha_parameters(int(d), int(h), int(g), False) / 1e6,
    ),
    "phase3/cache-of-a-token": (slice(0, 4), lambda n, h, d, g: cached_bytes(n, h, g, d, 1, 1)),
    "phase3/even-entropy": (
        slice(None),
        lambda p, n: oracle.head_entropy(tensor(p, *[(1 - p) / n] * int(n))).item(),
    ),
    "phase3/alibi-handicap": (
        slice(None),
        lambda h, i, _, far: oracle.alibi_bias(int(h), 1, int(far) + 1)[int(i), 0, 0].item(),
    ),
    "phase4/norm-by-hand": (slice(None), of_a_token(layer_norm)),
    "phase4/rms-by-hand": (slice(None), of_a_token(rms)),
    "phase4/gpt-total": (
        slice(0, 4),
        lambda v, t, d, n: (v * d + t * d + n * (4 * d * d + 2 * d * 4 * d)) / 1e6,
    ),
    "phase4/sums-on-the-way": (slice(None), lambda e, d: oracle.residual_census(int(e), int(d))["total"]),
    "phase4/gelu-value": (slice(0, 1), lambda x: torch.nn.functional.gelu(tensor(x)).item()),
    "phase5/price-of-a-guess": (slice(0, 3), lambda *p: -tensor(*p).log().mean().item()),
    "phase5/perplexity-of-batches": (
        slice(None),
        lambda many, one, few, two: oracle.perplexity([one, two], [int(many), int(few)]),
    ),
    "phase5/rate-of-a-step": (
        slice(None),
        lambda warmup, peak, floor, total, step: oracle.learning_rate(int(step), peak, int(warmup), int(total), floor),
    ),
    "phase5/beam-score": (slice(None), beams),
    "phase5/cache-gigabytes": (slice(0, 6), lambda *n: cached_bytes(*n) / 1e9),
    "phase5/scores-saved": (slice(None), lambda n: sum(t * t for t in range(int(n) + 1)) / sum(range(int(n) + 1))),
    "phase6/prefix-sees": (
        slice(0, 2),
        lambda p, rest: int_mask_sum(oracle.prefix_lm_mask(int(p), int(p + rest))),
    ),
    "phase6/reading-window": (
        slice(None),
        lambda w, n: int_mask_sum(oracle.sliding_window_mask(int(n), int(n), int(w))),
    ),
    "phase6/guesses-that-stand": (slice(None), guesses),
    "phase6/packed-byte": (slice(0, 2), packed),
    "phase6/rounded-weight": (slice(None), four_bits),
}


@pytest.mark.parametrize("name", ANEW)
def test_the_course_gives_the_same_number(name):
    """Do the course's own functions, fed with the numbers of the prompt, give the answer on the card?"""
    taken, compute = ANEW[name]
    for seed in range(20):
        question = CARDS[name].make(random.Random(seed))
        again = compute(*numbers(question.prompt)[taken])
        again *= int(re.search(r"float(\d+)", question.prompt)[1]) / 8 if name == "phase2/score-table" else 1
        assert math.isclose(again, question.answer, rel_tol=2e-5, abs_tol=1e-9), (question, again)
