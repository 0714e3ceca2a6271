"""Hidden cases of phase 7."""

from dataclasses import replace

from utils.checks.exercise import refusal
from utils.checks.phase7.corpus import corpus
from utils.checks.phase7.costs import count, sized
from utils.checks.phase7.evaluating import text
from utils.checks.phase7.measuring import speed, spelled
from utils.checks.phase7.overfitting import fitted, model, rows
from utils.checks.phase7.ranks import step
from utils.checks.phase7.resuming import kept, resumed
from utils.checks.phase7.translating import CATS, LONG, OTHERS, SHORT, looking, texts

_TRAINING = {
    "split_corpus": (
        corpus("h1", count=260, val_share=0.15, more=90, twice=60, seed=20),
        corpus("h2", count=200, val_share=0.4, head=b"import torch\n" * 160, tail=b"\n" * 2400, seed=21),
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

_MEASURING = {
    "flops_per_token": (count("h1", 37, n_kv_heads=3, tied=False, d_ff=51), count("h2", 2, n_layers=9, d_model=30)),
    "training_memory": (
        sized("h1", 5, 13, 4, n_kv_heads=3, d_model=30, fused=False),
        sized("h2", 2, 6, 2, tied=False, fused=True, norm_first=False),
    ),
    "mfu": (speed("h1", 77_700.0, 3.3e8, 65e12), speed("h2", 31.0, 2e10, 6.1e11, refusal)),
    "bits_per_byte": (spelled("h1", 40_321.25, 21_007), spelled("h2", 3.5, 0, refusal)),
    "bleu": (
        texts("h1", ("la casa la casa la casa roja", "la casa roja es la casa de la tía"), LONG, OTHERS, CATS),
        texts("h2", SHORT, ("a b c d e f", "a b c d x f a b c")),
        texts("h3", ("x y z w v", "a b c d e"), ("a b", "a b")),
    ),
    "alignment_from_attention": (
        looking("h1", "..ww.wwww.", heads=5, rows=7, sinks=(1, 4)),
        looking("h2", "wwwww...", rows=4, first=(1, 3.5), others=(3, 2.2), heads=4),
    ),
}

HIDDEN = {
    name: tuple(replace(one, hidden=True) for one in cases) for name, cases in {**_TRAINING, **_MEASURING}.items()
}
