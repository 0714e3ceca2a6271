"""leaks_future: the learner writes the test, and is graded on right and wrong attentions."""

import torch

from utils import oracle
from utils.checks.exercise import Spotted, case, register
from utils.checks.phase2 import PHASE, rules
from utils.observe.codec import Fixture


def attention(name, pattern_name="causal", kind="attention", **options):
    if kind == "attention":
        options["pattern_name"] = pattern_name
    return case(name, dict(attention=Fixture(kind, options)), grad=False)


def changes(attention, seq_len, cut, rows):
    """Do the outputs in `rows` change with the input at `cut`?"""
    x = torch.randn(2, seq_len, 8, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    other = x.clone()
    other[:, cut] += 1.0
    return bool((attention(x)[:, rows] - attention(other)[:, rows]).abs().max() > 1e-9)


register(
    expected=oracle.leaks_future,
    phase=PHASE,
    section="2.11",
    hint="change one later token and compare every earlier output; do it at every cut of a sentence of 16 tokens.",
    grad=False,
    whole=True,
    cases=(
        attention("no mask", "everything"),
        attention("causal", "causal", seed=1),
        attention("strictly the past", "strictly_past", seed=2),
        attention("a window of three", "window", seed=3),
        attention("each token by itself", "itself", seed=4),
        attention("a running mean", kind="mean", upto="here", seed=5),
        attention("one step ahead", "one_ahead", seed=6),
        attention("only the first rows see each other", "first_rows", seed=7),
        attention("only late rows leak", "late_rows", seed=8),
        attention("only a far token leaks", "far_token", seed=9),
        attention("only the sixteenth token leaks", "last_place", seed=15),
        attention("only from one end to the other", "from_end_to_end", seed=16),
        attention("one feature hears one feature of the next token", kind="whisper", seed=17),
        attention("causal, handed over in train mode", "causal", seed=18, training=True),
        attention("the mask is transposed", "transposed", seed=10),
        attention("the next token but one", "next_but_one", seed=11),
        attention("hidden scores become -8", "causal", fill=-9.0, seed=12),
        attention("masked after the softmax", "causal", late=True, seed=13),
        attention("statistics over the whole sentence", kind="mean", upto="end", seed=14),
    ),
    mistakes={
        "says False for an attention without a mask": Spotted(
            rules.false_without_a_mask,
            lambda attention: False,
            certain=True,
        ),
        "says True for a causal one": Spotted(
            rules.true_for_a_causal_one,
            lambda attention: True,
            certain=True,
        ),
        "misses a leak that needs a longer sentence": lambda attention: changes(attention, 2, 1, slice(0, 1)),
        "only row 0 was watched": lambda attention: any(
            changes(attention, 16, cut, slice(0, 1)) for cut in range(1, 16)
        ),
        "only the last token was changed": lambda attention: changes(attention, 16, 15, slice(0, 15)),
        "only neighbours were compared": lambda attention: any(
            changes(attention, 16, cut, slice(cut - 1, cut)) for cut in range(1, 16)
        ),
    },
)
