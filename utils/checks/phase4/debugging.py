"""reads_hidden: the learner writes one of the checklist's questions, and is graded on right and wrong attentions."""

import torch

from utils import oracle
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase4 import PHASE, rules_mending
from utils.observe.codec import Fixture


def attention(name, kind="right", **options):
    return case(name, dict(attention=Fixture("masked", dict(kind=kind, **options))), grad=False)


def probe(batches=(1, 2, 3, 4), length=8, alike=False, by_row=True, empty=True, own=False):
    """A wrong twin: it changes each token in turn, and looks at fewer masks, sentences or batches than it should."""

    @torch.no_grad()
    def reads_hidden(attention):
        generator = torch.Generator().manual_seed(5)
        for batch in batches:
            x = torch.randn(batch, length, 8, generator=generator, dtype=torch.float64)
            seen = torch.rand(batch, 1, length, length, generator=generator) < 0.5
            seen = seen if by_row else seen[:, :, :1].expand_as(seen).clone()
            if not empty:
                seen |= ~seen.any(-1, keepdim=True)
            elif by_row:
                seen[-1, :, 1] = False
            seen = seen[:1].expand_as(seen).clone() if alike else seen
            before = attention(x, seen)
            for place in range(length):
                other = x.clone()
                other[:, place] += 2.5
                moved = (attention(other, seen) - before).abs().amax(-1) > 1e-9
                moved[:, place] &= own
                if bool((moved & ~seen[:, 0, :, place]).any()):
                    return True
        return False

    return reads_hidden


register(
    expected=oracle.reads_hidden,
    phase=PHASE,
    section="4.15",
    hint="change one token at a time; no row but its own may move where the mask hides it. Vary batch, rows, length.",
    grad=False,
    whole=True,
    cases=(
        attention("the mask is ignored", "ignored"),
        attention("right", seed=1),
        attention("right, three heads, train mode", n_heads=3, seed=2, training=True),
        attention("causal besides", "causal", seed=3),
        attention("each token by itself", "itself", seed=5),
        attention("hidden after the softmax, made whole again", late="whole", seed=6),
        attention("hidden after the softmax", late="cut", seed=7),
        attention("hidden scores become -9", fill=-9.0, seed=8),
        attention("a row with nothing to see reads an average", fill=-1e30, average=True, seed=9),
        attention("True hides", "inverted", seed=10),
        attention("queries are hidden, not keys", "transposed", seed=11),
        attention("the first sentence's mask for all", "first_sentence", seed=12),
        attention("the first row's mask for all", "first_row", seed=13),
        attention("the mask meets the heads, two of them", "meets_heads", seed=14),
        attention("the mask meets the heads, three of them", "meets_heads", n_heads=3, seed=15),
        attention("only far tokens are read", "far", seed=16),
        attention("the first key is always seen", "first_key", seed=17),
        attention("one head obeys", "one_head", seed=18),
    ),
    mistakes={
        "says False though the mask is ignored": Spotted(
            rules_mending.false_where_ignored, lambda attention: False, certain=True
        ),
        "says True for a right one: a row may always read its own token": Spotted(
            rules_mending.true_where_right, probe(own=True), also=(lambda attention: True,), certain=True
        ),
        "misses a mask that differs from sentence to sentence": probe(alike=True),
        "misses a mask that differs from row to row": probe(by_row=False),
        "misses what a row with nothing to see reads": probe(empty=False),
        "misses a mask that meets the heads: try several batch sizes": Replays(
            probe(batches=(4,)), probe(batches=(1, 2)), probe(batches=(1, 3)), probe(batches=(2, 4))
        ),
        "misses a leak that needs a longer sentence": probe(length=5),
    },
)
