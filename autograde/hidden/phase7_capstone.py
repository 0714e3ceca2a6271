"""Hidden cases of phase 7."""

from dataclasses import replace

from utils.checks.exercise import refusal
from utils.checks.phase7.costs import count, step
from utils.checks.phase7.measuring import speed, text
from utils.checks.phase7.translating import CATS, LONG, OTHERS, SHORT, looking, texts

_TRAINING = {}

_MEASURING = {
    "flops_per_token": (count("h1", 37, n_kv_heads=3, tied=False, d_ff=51), count("h2", 2, n_layers=9, d_model=30)),
    "training_memory": (
        step("h1", 5, 13, 4, n_kv_heads=3, d_model=30, fused=False),
        step("h2", 2, 6, 2, tied=False, fused=True, norm_first=False),
    ),
    "mfu": (speed("h1", 77_700.0, 3.3e8, 65e12), speed("h2", 31.0, 2e10, 6.1e11, refusal)),
    "bits_per_byte": (text("h1", 40_321.25, 21_007), text("h2", 3.5, 0, refusal)),
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
