"""Hidden cases of phase 5."""

from dataclasses import replace

from utils.checks.exercise import case
from utils.checks.phase5.beams import search, tree
from utils.checks.phase5.cache import LENGTH, ONE_LAYER, append, calls, refuses, reorder, step, truncate
from utils.checks.phase5.cost import cost, size
from utils.checks.phase5.generating import PROMPT, both_ways, greedy, tokens_fed
from utils.checks.phase5.greedy import decoding
from utils.checks.phase5.losses import asked as prices
from utils.checks.phase5.losses import ids, loss_case, sentences
from utils.checks.phase5.optimiser import grads, late_and_paused, rate, steps
from utils.checks.phase5.rules_decoding import frequencies
from utils.checks.phase5.sampling import SHARES, asked, filtering, stacked
from utils.checks.phase5.scaling import budget, exact, noisy
from utils.checks.phase5.stepping import WORDS, fed
from utils.checks.phase5.steps import batches, gap, update

LATER = ((2, 3), (2, 3), (4,), (3,))
WIDE = dict(n_layers=2, batch=4, n_kv_heads=3, max_len=6, d_head=2)
ONE, TWO = (1.1, 0.1, 0.8), (0.2, 0.6, 1.3)

_HIDDEN = {
    "shift_targets": (
        case("h1", dict(tokens=sentences(7, 0, 7, 3, 6, pad=9), **ids(8, 9, 9))),
        case("h2", dict(tokens=sentences(2, 2, 1, pad=5), **ids(5, 3, 5))),
    ),
    "cross_entropy": (
        loss_case("h1", (3, 7), 2, (7, 1, 4), vocab=5, label_smoothing=0.15),
        loss_case("h2", (4,), -100, (3,), std=3e4),
    ),
    "perplexity": (prices("h1", [2.9, 0.3, 1.4, 0.8], [1, 30, 0, 6]),),
    "AdamW": (
        steps("h1", 11, LATER, late_and_paused, resume=6, rates=[(4, 0.3)]),
        steps("h2", 6, ((3, 2), (3, 2)), options=dict(lr=0.3, betas=(0.5, 0.7), eps=0.2, weight_decay=0.6)),
    ),
    "learning_rate": (rate(11, warmup=5, total=31, peak=2.0, floor=0.7), rate(77, warmup=5, total=31, floor=0.1)),
    "clip_grad_norm_": (grads("h1", 1.1, None, (4, 2), (3, 3)), grads("h2", 30.0, (2, 5), (2,))),
    "train_step": (
        update("h1", batches((2, 4, 5), (1, 2, 1), (1, 6, 2)), 0.1, atol=1e-5),
        update("h2", batches((3, 2, 1), (1, 3, 3))),
    ),
    "exposure_gap": (gap("h1", rows=5, p=3, n=6, dropout=0.3, training=True, seed=9),),
    "greedy_decode": (
        decoding("h1", (2, None, 5, 0), 8, length=3, eos=7, pad=1),
        decoding("h2", (3, 1), 9, length=5, eos_at=((1, 4),)),
    ),
    "filter_logits": (
        filtering("h1", stacked(SHARES[2], SHARES[0]), temperature=0.7, top_k=6, top_p=0.66),
        filtering("h2", temperature=3.0, top_p=0.9),
    ),
    "sample": (asked("h1", ONE, TWO, 25, frequencies(ONE, TWO)),),
    "beam_search": (
        search("h1", tree(5, 3, eos_bias=0.6), 4, 3, 0.8),
        search("h2", tree(3, 5, forbidden=0.3), 2, 5, 1.5, bos=11),
    ),
    "KVCache": (
        calls("h1", *[call for t in (1, 2, 1) for call in (*step(t, WIDE), LENGTH)], init=WIDE),
        calls("h2", *step(4, WIDE), reorder(2, 2, 0, 1), truncate(1), *step(2, WIDE), LENGTH, init=WIDE),
        refuses("h3", append(0, 2, ONE_LAYER, v=(2, 4, 1, 5))),
    ),
    "forward_cached": (
        fed("h1", 2, 4, 1, seed=9, n_layers=2, d_model=18, n_heads=6, n_kv_heads=3, d_ff=7, words=WORDS.flip(1)),
        fed("h2", 4, 1, 2, seed=8, norm_first=False, n_layers=1, cuts=(None, 3), counts=True, mutates="model"),
    ),
    "generate": (
        greedy("h1", 5, model=dict(seed=26, tied=False, n_layers=2), eos_id=5, pad_id=3),
        both_ways("h2", 4, temperature=2.0, top_p=0.8, seed=13),
        tokens_fed("h3", 4, PROMPT[:1], use_cache=True),
    ),
    "kv_cache_bytes": (size("h1", 5, 3, 2, n_kv_heads=2, n_layers=7), size("h2", 1, 17, 4, d_model=54)),
    "decode_flops": (cost("h1", 13, True, n_kv_heads=3, d_ff=50), cost("h2", 11, False, n_layers=2)),
    "fit_power_law": (exact("h1", E=0.9, A=75.0, alpha=0.27), noisy("h2", 5, E=1.4, A=220.0, alpha=0.31)),
    "compute_optimal": (
        budget("h1", 7e19, dict(E=1.1, A=310.0, alpha=0.37, B=95.0, beta=0.24)),
        budget("h2", 2e24, dict(E=1.9, A=25.0, alpha=0.18, B=4000.0, beta=0.41)),
    ),
}

HIDDEN = {name: tuple(replace(one, hidden=True) for one in cases) for name, cases in _HIDDEN.items()}
