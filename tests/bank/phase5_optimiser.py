"""AdamW, learning_rate, clip_grad_norm_: wrong solutions and unusual right ones."""

import math

import numpy as np
import torch

from tests.bank import right, wrong

# ---------------------------------------------------------------- AdamW


class Plain:
    """Right; the entries below turn one thing each."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        self.ps = [p for p in params]
        self.lr, self.betas, self.eps, self.wd = lr, betas, eps, weight_decay
        self.m, self.v = [torch.zeros_like(p) for p in self.ps], [torch.zeros_like(p) for p in self.ps]
        self.t = [0] * len(self.ps)

    def step(self):
        with torch.no_grad():
            for i, p in enumerate(self.ps):
                if p.grad is not None:
                    self.one(i, p, p.grad)

    def one(self, i, p, g):
        b1, b2 = self.betas
        self.t[i] += 1
        p *= 1 - self.lr * self.wd
        self.m[i] = b1 * self.m[i] + (1 - b1) * g
        self.v[i] = b2 * self.v[i] + (1 - b2) * g * g
        p -= self.lr * self.first(i) / (self.second(i).sqrt() + self.eps)

    def first(self, i):
        return self.m[i] / (1 - self.betas[0] ** self.t[i])

    def second(self, i):
        return self.v[i] / (1 - self.betas[1] ** self.t[i])

    def zero_grad(self):
        for p in self.ps:
            p.grad = None

    def state_dict(self):
        return {"m": self.m, "v": self.v, "t": self.t}

    def load_state_dict(self, state):
        self.m, self.v, self.t = state["m"], state["v"], state["t"]


@wrong("AdamW", says="that is Adam with L2, not AdamW")
class L2(Plain):
    def one(self, i, p, g):
        wd, self.wd = self.wd, 0.0
        super().one(i, p, g + wd * p)
        self.wd = wd


@wrong("AdamW", says="bias correction is missing")
class Uncorrected(Plain):
    def first(self, i):
        return self.m[i]

    def second(self, i):
        return self.v[i]


@wrong("AdamW")
class FirstCorrectedOnly(Plain):
    def second(self, i):
        return self.v[i]


@wrong("AdamW", says="eps stands outside the root")
class EpsInside(Plain):
    def one(self, i, p, g):
        eps, self.eps = self.eps, 0.0
        second = self.second
        self.second = lambda i: second(i) + eps
        super().one(i, p, g)
        self.eps, self.second = eps, second


@wrong("AdamW", says="a parameter without gradient is left alone: no decay either")
class DecaysAll(Plain):
    def step(self):
        super().step()
        with torch.no_grad():
            for p in self.ps:
                if p.grad is None:
                    p -= self.lr * self.wd * p


@wrong("AdamW", says="params were used up: make a list of them first")
class UsedUp(Plain):
    def __init__(self, params, **options):
        self.count = sum(p.numel() for p in params)
        super().__init__(params, **options)


@wrong("AdamW", says="each parameter counts its own steps")
class OneClock(Plain):
    def step(self):
        self.clock = getattr(self, "clock", 0) + 1
        super().step()

    def one(self, i, p, g):
        self.t[i] = self.clock - 1
        super().one(i, p, g)

    def state_dict(self):
        return super().state_dict() | {"clock": self.clock}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.clock = state["clock"]


@wrong("AdamW", says="step must not change gradients")
class DecaysTheGradient(Plain):
    def one(self, i, p, g):
        super().one(i, p, g.clone())
        g += self.wd * p


@wrong("AdamW", says="zero_grad leaves gradients behind")
class NeverZero(Plain):
    def zero_grad(self):
        pass


@wrong("AdamW", says="m and v belong into the state")
class ForgetsMoments(Plain):
    def load_state_dict(self, state):
        self.t = state["t"]


@wrong("AdamW", says="a new object could not take over: key the state by place, not by parameter")
class KeyedByParameter(Plain):
    def state_dict(self):
        return {p: (m, v, t) for p, m, v, t in zip(self.ps, self.m, self.v, self.t, strict=True)}

    def load_state_dict(self, state):
        self.m, self.v, self.t = (list(part) for part in zip(*(state[p] for p in self.ps), strict=True))


@wrong("AdamW", says="decay is lr · weight_decay · p")
class FullDecay(Plain):
    def one(self, i, p, g):
        p *= (1 - self.wd) / (1 - self.lr * self.wd)
        super().one(i, p, g)


@wrong("AdamW")
def torchs_own(params, **options):
    return torch.optim.AdamW(params, **options)


@wrong("AdamW")
class TorchsFunctional(Plain):
    def one(self, i, p, g):
        self.t[i] += 1
        from torch.optim.adamw import adamw

        tensor = [torch.tensor(float(self.t[i] - 1))]
        settings = dict(beta1=self.betas[0], beta2=self.betas[1], lr=self.lr, weight_decay=self.wd, eps=self.eps)
        adamw([p], [g], [self.m[i]], [self.v[i]], [], tensor, amsgrad=False, maximize=False, **settings)


@wrong("AdamW")
class Descent(Plain):
    def one(self, i, p, g):
        p -= self.lr * (g + self.wd * p)


right("AdamW", why="lists of moments")(type("Lists", (Plain,), {}))


@right("AdamW", why="a subclass of torch's Optimizer, state in self.state")
class Subclass(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                own = self.state[p]
                if not own:
                    own.update(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
                own["t"] += 1
                own["m"].lerp_(p.grad, 1 - group["betas"][0])
                own["v"].mul_(group["betas"][1]).addcmul_(p.grad, p.grad, value=1 - group["betas"][1])
                scale = math.sqrt(1 - group["betas"][1] ** own["t"])
                size = own["v"].sqrt() / scale + group["eps"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.addcdiv_(own["m"], size, value=-group["lr"] / (1 - group["betas"][0] ** own["t"]))


@right("AdamW", why="decay after the moments, new data instead of in place, gradients zeroed")
class NewData(Plain):
    def one(self, i, p, g):
        b1, b2 = self.betas
        self.t[i] += 1
        self.m[i] = self.m[i] + (1 - b1) * (g - self.m[i])
        self.v[i] = self.v[i] + (1 - b2) * (g**2 - self.v[i])
        p.data = p.data - self.lr * (self.wd * p.data + self.first(i) / (self.second(i) ** 0.5 + self.eps))

    def zero_grad(self):
        for p in self.ps:
            if p.grad is not None:
                p.grad.zero_()


@right("AdamW", why="foreach, products of betas instead of powers")
class Foreach(Plain):
    def __init__(self, params, **options):
        super().__init__(params, **options)
        self.t = [(1.0, 1.0)] * len(self.ps)

    @torch.no_grad()
    def step(self):
        at = [i for i, p in enumerate(self.ps) if p.grad is not None]
        if not at:
            return
        ps, gs = [self.ps[i] for i in at], [self.ps[i].grad for i in at]
        m, v = [self.m[i] for i in at], [self.v[i] for i in at]
        torch._foreach_mul_(ps, 1 - self.lr * self.wd)
        torch._foreach_lerp_(m, gs, 1 - self.betas[0])
        torch._foreach_mul_(v, self.betas[1])
        torch._foreach_addcmul_(v, gs, gs, 1 - self.betas[1])
        for i, p in zip(at, ps, strict=True):
            self.t[i] = tuple(done * beta for done, beta in zip(self.t[i], self.betas, strict=True))
            left, lower = 1 - self.t[i][0], 1 - self.t[i][1]
            p.sub_(self.lr * (self.m[i] / left) / ((self.v[i] / lower).sqrt() + self.eps))


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


@wrong("clip_grad_norm_")
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
