"""learning_rate, clip_grad_norm_: wrong solutions and unusual right ones."""

import math

import numpy as np
import torch

from tests.bank import right, wrong

# ---------------------------------------------------------------- learning_rate


def checked(step, warmup, total):
    if step < 0 or total <= warmup:
        raise ValueError("total")


def schedule(name, down, up=lambda step, peak, warmup, floor: peak * step / warmup):
    def learning_rate(step, peak, warmup, total, floor):
        checked(step, warmup, total)
        if step < warmup:
            return up(step, peak, warmup, floor)
        return down(step, peak, warmup, total, floor)

    learning_rate.__name__ = name
    return learning_rate


def share(step, warmup, total):
    return min((step - warmup) / (total - warmup), 1)


def wave(x):
    return 0.5 + 0.5 * math.cos(math.pi * x)


for _name, _says, _parts in [
    (
        "rises_again",
        "stay at the floor after total",
        [lambda s, p, w, t, f: f + (p - f) * wave((s - w) / (t - w))],
    ),
    ("to_zero", "the floor was ignored", [lambda s, p, w, t, f: p * wave(share(s, w, t))]),
    ("linear", "half a cosine, not a straight line", [lambda s, p, w, t, f: p - (p - f) * share(s, w, t)]),
    (
        "counted_from_1",
        "step 0 has rate 0, and step warmup the peak",
        [lambda s, p, w, t, f: f + (p - f) * wave(share(s, w, t)), lambda s, p, w, f: p * (s + 1) / w],
    ),
    (
        "whole_run",
        "the cosine begins at the peak, when the warm-up ends",
        [lambda s, p, w, t, f: f + (p - f) * wave(min(s / t, 1))],
    ),
    ("zero_afterwards", None, [lambda s, p, w, t, f: f + (p - f) * wave(share(s, w, t)) if s < t else 0.0]),
    ("quarter_wave", None, [lambda s, p, w, t, f: f + (p - f) * math.cos(math.pi / 2 * share(s, w, t))]),
    ("root", None, [lambda s, p, w, t, f: max(f, p * (max(w, 1) / max(s, 1)) ** 0.5)]),
]:
    wrong("learning_rate", says=_says)(schedule(_name, *_parts))


@wrong("learning_rate", says="warmup may be 0")
def divides_by_warmup(step, peak, warmup, total, floor):
    checked(step, warmup, total)
    return min(peak * step / warmup, floor + (peak - floor) * wave(max(share(step, warmup, total), 0)))


@wrong("learning_rate", says="refuse a negative step, and a total that leaves no room after warmup")
def refuses_nothing(step, peak, warmup, total, floor):
    if step < warmup:
        return peak * step / warmup
    if step >= total:
        return floor
    return floor + (peak - floor) * wave(share(step, warmup, total))


right("learning_rate", why="branches")(schedule("branches", lambda s, p, w, t, f: f + (p - f) * wave(share(s, w, t))))


@right("learning_rate", why="numpy, clip")
def with_clip(step, peak, warmup, total, floor):
    checked(step, warmup, total)
    if step < warmup:
        return np.float64(peak) * step / warmup
    done = np.clip((step - warmup) / (total - warmup), 0, 1)
    return floor + (peak - floor) * (1 + np.cos(np.pi * done)) / 2


@right("learning_rate", why="the square of a cosine")
def squared(step, peak, warmup, total, floor):
    checked(step, warmup, total)
    if step >= total:
        return float(floor)
    if step < warmup:
        return step / warmup * peak
    return floor + (peak - floor) * math.cos(math.pi / 2 * (step - warmup) / (total - warmup)) ** 2


@right("learning_rate", why="min and max instead of branches")
def min_and_max(step, peak, warmup, total, floor):
    checked(step, warmup, total)
    rising = min(step / warmup, 1.0) if warmup else 1.0
    done = max(0.0, min(1.0, (step - warmup) / (total - warmup)))
    return rising * peak if rising < 1 else peak - (peak - floor) * (1 - math.cos(math.pi * done)) / 2


# ---------------------------------------------------------------- clip_grad_norm_


def with_grads(parameters):
    return [p for p in parameters if p.grad is not None]


def length(ps):
    return math.sqrt(sum(p.grad.square().sum().item() for p in ps))


@wrong("clip_grad_norm_", says="below the limit leave it alone")
def always(parameters, max_norm):
    ps = with_grads(parameters)
    norm = length(ps)
    for p in ps:
        p.grad *= max_norm / norm
    return norm


@wrong("clip_grad_norm_", says="one norm for all")
def each_alone(parameters, max_norm):
    ps = with_grads(parameters)
    norm = length(ps)
    for p in ps:
        p.grad *= min(1.0, max_norm / p.grad.norm().item())
    return norm


@wrong("clip_grad_norm_", says="a generator is used up after one pass")
def two_passes(parameters, max_norm):
    norm = length(p for p in parameters if p.grad is not None)
    for p in parameters:
        if p.grad is not None and norm > max_norm:
            p.grad *= max_norm / norm
    return norm


@wrong("clip_grad_norm_", says="return the norm")
def returns_nothing(parameters, max_norm):
    ps = with_grads(parameters)
    norm = length(ps)
    for p in ps:
        p.grad *= min(1.0, max_norm / norm)


@wrong("clip_grad_norm_", says="return the norm from before")
def norm_afterwards(parameters, max_norm):
    ps = with_grads(parameters)
    norm = length(ps)
    for p in ps if norm > max_norm else []:
        p.grad *= max_norm / norm
    return length(ps)


@wrong("clip_grad_norm_", says="scale all gradients, do not clamp values")
def clamps(parameters, max_norm):
    ps = with_grads(parameters)
    norm = length(ps)
    for p in ps:
        p.grad.clamp_(-max_norm, max_norm)
    return norm


@wrong("clip_grad_norm_", says="a parameter without gradient is skipped")
def all_have_one(parameters, max_norm):
    ps = list(parameters)
    norm = length(ps)
    for p in ps:
        p.grad *= min(1.0, max_norm / norm)
    return norm


@wrong("clip_grad_norm_")
def torchs_own_by_another_name(parameters, max_norm):
    from torch.nn.utils import clip_grad_norm_ as clip

    return clip(list(parameters), max_norm)


@wrong("clip_grad_norm_", says="change the gradients themselves: g.mul_(…)")
def nothing_scaled(parameters, max_norm):
    return length(with_grads(parameters))


@right("clip_grad_norm_", why="stacked norms, the guard of 1e-6, a 0-d tensor")
def guarded(parameters, max_norm):
    ps = with_grads(parameters)
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(p.grad) for p in ps]))
    if norm > max_norm:
        for p in ps:
            p.grad.mul_(max_norm / (norm + 1e-6))
    return norm


@right("clip_grad_norm_", why="new .grad tensors, a float")
def new_gradients(parameters, max_norm):
    ps = with_grads(parameters)
    norm = length(ps)
    if norm > max_norm:
        for p in ps:
            p.grad = p.grad * (max_norm / norm)
    return norm


@right("clip_grad_norm_", why="all gradients as one vector; the factor is never above 1")
def one_vector(parameters, max_norm):
    ps = with_grads(parameters)
    norm = torch.cat([p.grad.ravel() for p in ps]).pow(2).sum().sqrt()
    factor = torch.clamp(max_norm / norm, max=1.0)
    with torch.no_grad():
        for p in ps:
            p.grad.copy_(p.grad * factor)
    return norm


@right("clip_grad_norm_", why="foreach")
def foreach(parameters, max_norm):
    grads = [p.grad for p in with_grads(parameters)]
    norm = torch.stack(torch._foreach_norm(grads)).norm().item()
    if norm > max_norm:
        torch._foreach_mul_(grads, max_norm / norm)
    return norm
