"""distillation_loss and SharedStack."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from utils import oracle
from utils.checks.draw import given, normal
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase6 import PHASE, rules_systems
from utils.observe.codec import Fixture


def kept(*lengths, seq_len=5):
    """A pad_mask in which the first `length` places of each row are real."""
    return given(lambda generator, others: torch.arange(seq_len) < torch.tensor(lengths)[:, None])


def labels(vocab_size=6, ignored=-100):
    """Targets (batch, seq_len); `ignored` at masked places."""

    def draw(generator, others):
        drawn = torch.randint(vocab_size, others["student_logits"].shape[:2], generator=generator)
        return drawn if ignored is None else torch.where(others["pad_mask"], drawn, ignored)

    return given(draw)


def lesson(name, temperature, alpha, mask=None, ignored=-100, shape=(2, 5, 6), teacher=None, **options):
    args = dict(
        student_logits=normal(*shape, std=1.5),
        teacher_logits=normal(*shape, std=1.5) if teacher is None else teacher,
        pad_mask=kept(5, 2) if mask is None else mask,
        targets=labels(shape[-1], ignored),
        temperature=temperature,
        alpha=alpha,
    )
    return case(name, args, **options)


def wrong(
    soft=lambda s, t, T: (t.softmax(-1) * (t.log_softmax(-1) - s.log_softmax(-1))).sum(-1),
    factor=lambda T: T**2,
    hard_at=lambda T: 1.0,
    mix=lambda soft, hard, alpha: alpha * soft + (1 - alpha) * hard,
    mean=lambda rows, mask: (rows * mask).sum() / mask.sum().clamp(min=1),
    detach=True,
    soft_at=lambda T: (T, T),
    soft_mean=None,
    hard_mean=None,
):
    """A wrong twin in its parts: `soft` gets both logits divided by T; soft_at: by what student and teacher are."""

    def distillation_loss(student_logits, teacher_logits, targets, temperature, alpha, pad_mask):
        teacher = teacher_logits.detach() if detach else teacher_logits
        own, others = soft_at(temperature)
        rows = factor(temperature) * soft(student_logits / own, teacher / others, temperature)
        safe = targets.clamp(min=0)
        logs = (student_logits / hard_at(temperature)).log_softmax(-1)
        hard = -logs.gather(-1, safe[..., None])[..., 0]
        mask = pad_mask.to(rows.dtype)
        if soft_mean or hard_mean:
            return mix((soft_mean or mean)(rows, mask), (hard_mean or mean)(hard, mask), alpha)
        return mean(mix(rows, hard, alpha), mask)

    return distillation_loss


def reverse(s, t, T):
    return (s.softmax(-1) * (s.log_softmax(-1) - t.log_softmax(-1))).sum(-1)


def entropy_left_out(s, t, T):
    return -(t.softmax(-1) * s.log_softmax(-1)).sum(-1)


def twice(s, t, T):
    return F.kl_div(s.softmax(-1).log_softmax(-1), t.softmax(-1).softmax(-1), reduction="none").sum(-1)


def twice_teacher(s, t, T):
    return F.kl_div(s.log_softmax(-1), t.softmax(-1).softmax(-1), reduction="none").sum(-1)


def per_word(s, t, T):
    return F.kl_div(s.log_softmax(-1), t.softmax(-1), reduction="none").mean(-1)


def two_logs(s, t, T):
    """The teacher's log-probabilities where kl_div wants its probabilities."""
    return F.kl_div(s.log_softmax(-1), t.log_softmax(-1), reduction="none").sum(-1)


def no_log(s, t, T):
    return F.kl_div(s.softmax(-1), t.softmax(-1), reduction="none").sum(-1)


def of_all(rows, mask):
    return rows.mean()


def over_all(rows, mask):
    return (rows * mask).sum() / mask.numel()


def per_sentence(rows, mask):
    return (rows * mask).sum() / len(rows)


def summed(rows, mask):
    return (rows * mask).sum()


def kept_or_nan(rows, mask):
    return (rows * mask).sum() / mask.sum()


def by_targets(student_logits, teacher_logits, targets, temperature, alpha, pad_mask):
    """Cross-entropy wherever the target is a word."""
    soft = oracle.distillation_loss(student_logits, teacher_logits, targets, temperature, 1.0, pad_mask)
    hard = F.cross_entropy(student_logits.flatten(0, 1), targets.flatten(), reduction="sum")
    return alpha * soft + (1 - alpha) * hard / pad_mask.sum().clamp(min=1)


def all_by_t(student_logits, teacher_logits, targets, temperature, alpha, pad_mask):
    """The whole loss times T²."""
    args = student_logits, teacher_logits, targets, temperature, alpha, pad_mask
    return temperature**2 * wrong(factor=lambda T: 1.0)(*args)


def targets_as_they_are(student_logits, teacher_logits, targets, temperature, alpha, pad_mask):
    student_logits.log_softmax(-1).gather(-1, targets[..., None])
    return oracle.distillation_loss(student_logits, teacher_logits, targets, temperature, alpha, pad_mask)


SAME = given(lambda generator, others: others["student_logits"].clone())

register(
    expected=oracle.distillation_loss,
    phase=PHASE,
    section="6.12",
    hint="alpha · T² · Σ p_teacher (log p_teacher − log p_student) + (1 − alpha) · cross-entropy, mean over places.",
    cases=(
        lesson("temperature 2.5, alpha 0.3", 2.5, 0.3),
        lesson("temperature 1, only the teacher", 1.0, 1.0),
        lesson("temperature 4, only the targets", 4.0, 0.0),
        lesson("real tokens of 4 and 1 places, targets 0 at the others", 2.5, 0.3, kept(4, 1), ignored=0),
        lesson("a teacher that says the same", 3.0, 1.0, teacher=SAME),
        lesson("any word at masked places", 0.7, 0.6, kept(3, 5), ignored=None),
        lesson("one sentence of one token", 2.0, 0.5, kept(1, seq_len=1), shape=(1, 1, 4)),
        lesson("nothing kept", 2.5, 0.3, kept(0, 0), kind="edge"),
    ),
    mistakes={
        "the divergence goes from the teacher to the student": wrong(reverse),
        "soft gradients shrink by T²": Replays(
            wrong(factor=lambda T: 1.0), wrong(factor=lambda T: T), wrong(factor=lambda T: T**-2)
        ),
        "one softmax only": Replays(wrong(twice), wrong(twice_teacher)),
        "the teacher learns nothing": wrong(detach=False),
        "sum over the words": wrong(per_word),
        "pads were counted": Replays(
            *(wrong(mean=way) for way in (of_all, over_all)),
            *(wrong(soft_mean=way) for way in (of_all, over_all)),
            *(wrong(hard_mean=way) for way in (of_all, over_all)),
        ),
        "pad_mask says what counts, not the targets": by_targets,
        "divide by the kept tokens, not by the sentences": Replays(
            wrong(mean=per_sentence), wrong(soft_mean=per_sentence), wrong(hard_mean=per_sentence)
        ),
        "student and teacher are both softened": Replays(
            wrong(soft_at=lambda T: (1.0, T)), wrong(soft_at=lambda T: (T, 1.0)), wrong(soft_at=lambda T: (1.0, 1.0))
        ),
        "T² belongs to the teacher's part alone": all_by_t,
        "kl_div wants the student's log-probabilities and the teacher's probabilities": Replays(
            wrong(two_logs), wrong(no_log)
        ),
        "both parts have a weight: alpha and 1 − alpha": Replays(
            wrong(mix=lambda soft, hard, alpha: soft + hard),
            wrong(mix=lambda soft, hard, alpha: alpha * soft + hard),
            wrong(mix=lambda soft, hard, alpha: soft + alpha * hard),
        ),
        "nothing kept gives 0, not NaN": Spotted(rules_systems.nan_of_nothing, wrong(mean=kept_or_nan)),
        "a target at a masked place may be −100: take the kept rows first": Spotted(
            rules_systems.target_out_of_range, targets_as_they_are
        ),
        "the mean is over all kept tokens, not over sentences": wrong(
            mean=lambda rows, mask: ((rows * mask).sum(-1) / mask.sum(-1).clamp(min=1)).mean()
        ),
        "the mean, not the sum": Replays(wrong(mean=summed), wrong(soft_mean=summed), wrong(hard_mean=summed)),
        "targets are met at temperature 1": wrong(hard_at=lambda T: T),
        "alpha is the teacher's share": wrong(mix=lambda soft, hard, alpha: (1 - alpha) * soft + alpha * hard),
        "cross-entropy with the teacher is more than the divergence": wrong(entropy_left_out),
    },
)


# ---- SharedStack ---------------------------------------------------------------------------------

X = dict(x=(2, 5, 12))


def stack(n_layers=4, seed=0, **more):
    return dict(block=Fixture("counted_block", dict(seed=seed) | more), n_layers=n_layers)


class _OneCopy(oracle.SharedStack):
    def __init__(self, block, n_layers):
        super().__init__(copy.deepcopy(block), n_layers)


class _Copies(oracle.SharedStack):
    def __init__(self, block, n_layers):
        super().__init__(block, n_layers)
        self.blocks = nn.ModuleList([block, *(copy.deepcopy(block) for _ in range(n_layers - 1))])

    def forward(self, x, attn_mask=None):
        for block in self.blocks:
            x = block(x, attn_mask=attn_mask)
        return x


class _List(nn.Module):
    """The same weights under other names."""

    def __init__(self, block, n_layers):
        super().__init__()
        self.layers = nn.ModuleList([block] * n_layers)

    def forward(self, x, attn_mask=None):
        for layer in self.layers:
            x = layer(x, attn_mask=attn_mask)
        return x


def passing(forward):
    return type("Wrong", (oracle.SharedStack,), {"forward": forward})


def passes(number, mask=lambda place, attn_mask: attn_mask):
    """A wrong twin: number(n_layers) passes, the mask of each from mask(place, attn_mask)."""

    def forward(self, x, attn_mask=None):
        for place in range(number(self.n_layers)):
            x = self.block(x, attn_mask=mask(place, attn_mask))
        return x

    return passing(forward)


def first_thought_only(self, x, attn_mask=None):
    """All passes but the last are cut off from the gradient."""
    with torch.no_grad():
        for _ in range(self.n_layers - 1):
            x = self.block(x, attn_mask=attn_mask)
    return self.block(x, attn_mask=attn_mask)


def residual_again(self, x, attn_mask=None):
    for _ in range(self.n_layers):
        x = x + self.block(x, attn_mask=attn_mask)
    return x


def counts_down(self, x, attn_mask=None):
    while self.n_layers > 0:
        x, self.n_layers = self.block(x, attn_mask=attn_mask), self.n_layers - 1
    return x


def causal(*shape):
    return given(lambda generator, others: torch.ones(shape, dtype=torch.bool).tril())


register(
    expected=oracle.SharedStack,
    phase=PHASE,
    section="6.13",
    hint="for _ in range(n_layers): x = self.block(x, attn_mask=attn_mask)",
    bans=("attention", "blocks"),
    cases=(
        case("four passes", X, init=stack()),
        case("masked in each", X | dict(attn_mask=causal(5, 5)), init=stack(seed=1)),
        case("a block that may not be copied", X, init=stack(seed=4, single=True), grad=False),
        case("one pass", X, init=stack(n_layers=1, seed=2)),
        case("two calls of different lengths", dict(x=(1, 3, 12)), then=(X,), init=stack(n_layers=2, seed=3)),
    ),
    mistakes={
        "use the block that was handed over, no copy": Spotted(rules_systems.block_copied, _OneCopy, certain=True),
        "one block, no copies of it in a list": Spotted(rules_systems.block_not_named, _List),
        "one set of weights": Spotted(rules_systems.more_parameters, _Copies),
        "n_layers passes": Replays(
            passes(lambda n: n + 1), passes(lambda n: n - 1), passes(lambda n: 1), passes(lambda n: 2 * n)
        ),
        "the mask was ignored": passes(lambda n: n, lambda place, attn_mask: None),
        "every pass needs the mask": passes(lambda n: n, lambda place, attn_mask: None if place else attn_mask),
        "every pass sends its own gradient": passing(first_thought_only),
        "the block has a residual of its own": passing(residual_again),
        "a second call makes as many passes: count in a variable of your own": passing(counts_down),
        "each pass reads what the one before it wrote": passing(
            lambda self, x, attn_mask=None: (
                x + sum(self.block(x, attn_mask=attn_mask) - x for _ in range(self.n_layers))
            )
        ),
    },
)
