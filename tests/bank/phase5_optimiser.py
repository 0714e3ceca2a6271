"""AdamW: wrong solutions and unusual right ones."""

import math

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


@wrong("AdamW", says="m and v belong into the state, keyed by place")
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
