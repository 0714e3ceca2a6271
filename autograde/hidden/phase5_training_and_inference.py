"""Hidden cases of phase 5."""

from dataclasses import replace

from utils.checks.exercise import case
from utils.checks.phase5.beams import search, tree
from utils.checks.phase5.greedy import decoding
from utils.checks.phase5.losses import asked as prices
from utils.checks.phase5.losses import ids, loss_case, sentences
from utils.checks.phase5.optimiser import grads, late_and_paused, rate, steps
from utils.checks.phase5.rules_decoding import frequencies
from utils.checks.phase5.sampling import SHARES, asked, filtering, stacked
from utils.checks.phase5.steps import batches, gap, update

LATER = ((2, 3), (2, 3), (4,), (3,))
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
}

HIDDEN = {name: tuple(replace(one, hidden=True) for one in cases) for name, cases in _HIDDEN.items()}
