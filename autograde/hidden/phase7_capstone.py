"""Hidden cases of phase 7."""

from dataclasses import replace

from utils.checks.phase7.corpus import corpus
from utils.checks.phase7.evaluating import text
from utils.checks.phase7.overfitting import fitted, model, rows
from utils.checks.phase7.ranks import step
from utils.checks.phase7.resuming import kept, resumed

_TRAINING = {
    "split_corpus": (
        corpus("h1", count=260, val_share=0.15, more=90, twice=60, seed=20),
        corpus("h2", count=200, val_share=0.4, head=b"import torch\n" * 80, tail=b"\n" * 400, seed=21),
    ),
    "overfit_one_batch": (fitted("h1", 5, lr=0.7), fitted("h2", 9, bad_at=4)),
    "sees_targets": (
        model("h1", seed=30, dropout=0.2, training=True, rounding=1e-9),
        model("h2", "middle", tokens=rows(1, 14), seed=31),
        model("h3", "window", bonus=12.0, tokens=rows(2, 12, counting=True), seed=32),
        model("h4", whisper=0.01, after=2, tokens=rows(3, 8, first=2), seed=33),
    ),
    "evaluate": (
        text("h1", 33, 7, dropout=0.3, training=True, frozen=True, seed=20),
        text("h2", 20, 9, seed=21),
    ),
    "training_state": (kept("h1", 4, 3, seed=20), kept("h2", 1, 1, seed=21, optimizer="adamw")),
    "restore_state": (
        resumed("h1", 5, 3, seed=20, stale=1),
        resumed("h2", 2, 2, seed=21, stale=4, optimizer="adamw"),
    ),
    "average_gradients": (
        step("h1", (2, 0, 41, 6), shapes=((3, 2), (1,)), nothing={1}, unused={(2, 1)}),
        step("h2", (9000, 100), dtype="float16", scale=30.0),
    ),
}

_MEASURING = {}

HIDDEN = {
    name: tuple(replace(one, hidden=True) for one in cases) for name, cases in {**_TRAINING, **_MEASURING}.items()
}
