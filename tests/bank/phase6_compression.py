"""distillation_loss, SharedStack: wrong solutions and unusual right ones."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from tests.bank import right, wrong

# ---------------------------------------------------------------- distillation_loss


def distiller(name, soft=None, square=True, hard_at=1.0, detach=True, average=None, alpha_for_soft=True):
    """A distillation_loss written with torch's losses; each option spoils a part."""

    def distillation_loss(student_logits, teacher_logits, targets, temperature, alpha, pad_mask):
        student = student_logits.flatten(0, 1)
        teacher = (teacher_logits.detach() if detach else teacher_logits).flatten(0, 1)
        kept = pad_mask.flatten()
        t = temperature
        if soft is None:
            parts = F.kl_div(
                F.log_softmax(student / t, -1), F.log_softmax(teacher / t, -1), reduction="none", log_target=True
            ).sum(-1)
        else:
            parts = soft(student / t, teacher / t)
        parts = parts * (t * t if square else 1)
        labels = targets.flatten().masked_fill(~kept, 0)
        ce = F.cross_entropy(student / (t if hard_at == "T" else 1), labels, reduction="none")
        a, b = (alpha, 1 - alpha) if alpha_for_soft else (1 - alpha, alpha)
        both = a * parts + b * ce
        return average(both, kept) if average else torch.where(kept, both, 0).sum() / kept.sum().clamp(min=1)

    distillation_loss.__name__ = name
    return distillation_loss


for _name, _says, _parts in [
    (
        "kl_reversed",
        "the divergence goes from the teacher to the student",
        dict(soft=lambda s, t: F.kl_div(t.log_softmax(-1), s.softmax(-1), reduction="none").sum(-1)),
    ),
    ("no_t_squared", "soft gradients shrink by T²", dict(square=False)),
    (
        "softmax_twice",
        "one softmax only",
        dict(
            soft=lambda s, t: F.kl_div(s.softmax(-1).log_softmax(-1), t.softmax(-1).softmax(-1), reduction="none").sum(
                -1
            )
        ),
    ),
    ("teacher_learns", "the teacher learns nothing", dict(detach=False)),
    (
        "mean_over_words",
        "sum over the words",
        dict(soft=lambda s, t: F.kl_div(s.log_softmax(-1), t.softmax(-1), reduction="none").mean(-1)),
    ),
    ("pads_counted", "pads were counted", dict(average=lambda rows, kept: rows.mean())),
    ("all_places", "pads were counted", dict(average=lambda rows, kept: (rows * kept).sum() / len(rows))),
    ("sum_of_all", "the mean, not the sum", dict(average=lambda rows, kept: (rows * kept).sum())),
    ("hard_at_t", "targets are met at temperature 1", dict(hard_at="T")),
    ("alpha_swapped", "alpha is the teacher's share", dict(alpha_for_soft=False)),
    (
        "soft_cross_entropy",
        "cross-entropy with the teacher is more than the divergence",
        dict(soft=lambda s, t: F.cross_entropy(s, t.softmax(-1), reduction="none")),
    ),
    ("squared_error", None, dict(soft=lambda s, t: (s - t).square().sum(-1))),
]:
    wrong("distillation_loss", says=_says)(distiller(_name, **_parts))


@wrong("distillation_loss")
def student_cut_off(student_logits, teacher_logits, targets, temperature, alpha, pad_mask):
    return distiller("cut")(student_logits.detach(), teacher_logits, targets, temperature, alpha, pad_mask)


@wrong("distillation_loss")
def none_kept_is_nan(student_logits, teacher_logits, targets, temperature, alpha, pad_mask):
    loss = distiller("nan", average=lambda rows, kept: rows[kept].mean())
    return loss(student_logits, teacher_logits, targets, temperature, alpha, pad_mask)


right("distillation_loss", why="torch's losses on flattened rows, where at the end")(distiller("with_losses"))


@right("distillation_loss", why="kl_div with batchmean on the selected rows")
def batchmean(student_logits, teacher_logits, targets, temperature, alpha, pad_mask):
    if not pad_mask.any():
        return 0.0 * student_logits.sum()
    s, t, y = (x[pad_mask] for x in (student_logits, teacher_logits.detach(), targets))
    soft = F.kl_div((s / temperature).log_softmax(-1), (t / temperature).softmax(-1), reduction="batchmean")
    return alpha * temperature**2 * soft + (1 - alpha) * F.cross_entropy(s, y)


@right("distillation_loss", why="a loop over places")
def looped(student_logits, teacher_logits, targets, temperature, alpha, pad_mask):
    total, count = 0.0 * student_logits.sum(), 0
    for b, t in pad_mask.nonzero().tolist():
        s, big = student_logits[b, t], teacher_logits[b, t].detach()
        p = torch.softmax(big / temperature, 0)
        q = torch.softmax(s / temperature, 0)
        total = total + alpha * temperature**2 * (p * (p / q).log()).sum()
        total = total - (1 - alpha) * (s[targets[b, t]] - s.logsumexp(0))
        count += 1
    return total / max(count, 1)


@right("distillation_loss", why="cross-entropy with ignore_index, the teacher under no_grad")
def ignoring(student_logits, teacher_logits, targets, temperature, alpha, pad_mask):
    n = pad_mask.sum().clamp(min=1)
    with torch.no_grad():
        p = (teacher_logits / temperature).softmax(-1)
    log_q = (student_logits / temperature).log_softmax(-1)
    soft = ((p * (p.log() - log_q)).sum(-1) * pad_mask).sum()
    labels = torch.where(pad_mask, targets, -100)
    hard = F.cross_entropy(student_logits.transpose(1, 2), labels, ignore_index=-100, reduction="sum")
    return (alpha * temperature**2 * soft + (1 - alpha) * hard) / n


# ---------------------------------------------------------------- SharedStack


class _Stack(nn.Module):
    def __init__(self, block, n_layers):
        super().__init__()
        self.block = block
        self.n_layers = n_layers

    def forward(self, x, attn_mask=None):
        for number in range(self.n_layers):
            x = self.step(number, x, attn_mask)
        return x

    def step(self, number, x, attn_mask):
        return self.block(x, attn_mask=attn_mask)


@wrong("SharedStack", says="one set of weights")
class Copies(nn.Module):
    def __init__(self, block, n_layers):
        super().__init__()
        self.block = block
        self.others = nn.ModuleList([copy.deepcopy(block) for _ in range(n_layers - 1)])

    def forward(self, x, attn_mask=None):
        for block in [self.block, *self.others]:
            x = block(x, attn_mask=attn_mask)
        return x


@wrong("SharedStack", says="n_layers passes")
class OnePassTooMany(_Stack):
    def forward(self, x, attn_mask=None):
        return self.block(super().forward(x, attn_mask), attn_mask=attn_mask)


@wrong("SharedStack", says="n_layers passes")
class OnlyOnce(_Stack):
    def forward(self, x, attn_mask=None):
        return self.block(x, attn_mask=attn_mask)


@wrong("SharedStack", says="the mask was ignored")
class NoMask(_Stack):
    def step(self, number, x, attn_mask):
        return self.block(x)


@wrong("SharedStack", says="every pass needs the mask")
class MaskOnce(_Stack):
    def step(self, number, x, attn_mask):
        return self.block(x, attn_mask=attn_mask) if number == 0 else self.block(x)


@wrong("SharedStack", says="every pass sends its own gradient")
class Detached(_Stack):
    def step(self, number, x, attn_mask):
        return self.block(x.detach(), attn_mask=attn_mask)


@wrong("SharedStack")
class NotABlock(nn.Module):
    def __init__(self, block, n_layers):
        super().__init__()
        self.layer, self.n_layers = block, n_layers

    def forward(self, x, attn_mask=None):
        for _ in range(self.n_layers):
            x = self.layer(x, attn_mask=attn_mask)
        return x


right("SharedStack", why="the loop")(_Stack)


@right("SharedStack", why="a plain list of the same object")
class SameObject(nn.Module):
    def __init__(self, block, n_layers):
        super().__init__()
        self.block = block
        self.layers = [block] * n_layers

    def forward(self, x, attn_mask=None):
        for layer in self.layers:
            x = layer(x, attn_mask=attn_mask)
        return x


@right("SharedStack", why="a ModuleList of the same object: still one set of weights")
class SameInList(nn.Module):
    def __init__(self, block, n_layers):
        super().__init__()
        self.block = block
        self.blocks = nn.ModuleList([block] * n_layers)

    def forward(self, x, attn_mask=None):
        for layer in self.blocks:
            x = layer(x, attn_mask=attn_mask)
        return x


@right("SharedStack", why="recursion")
class Recursive(_Stack):
    def forward(self, x, attn_mask=None, left=None):
        left = self.n_layers if left is None else left
        return x if left == 0 else self.forward(self.block(x, attn_mask=attn_mask), attn_mask, left - 1)
