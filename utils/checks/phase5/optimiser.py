"""AdamW, learning_rate, clip_grad_norm_."""

import math

import torch

from utils import oracle
from utils.checks.draw import normal
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase5 import PHASE
from utils.checks.phase5 import rules_training as rules

# ---- AdamW ---------------------------------------------------------------------------------------


class _Faulty:
    """AdamW by hand; as it stands it is right, each wrong twin turns one thing."""

    l2 = early_eps = no_root = no_correction = swapped = one_state = one_clock = decays_all = False
    full_decay = decays_late = no_decay = fixed_rate = loses_memory = loses_clock = forgets_zero = keeps = False

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        self.params = params if self.keeps else list(params)
        if self.keeps:
            self.count = len([None for _ in params])
        self.lr, self.first_lr, self.betas, self.eps, self.wd = lr, lr, betas, eps, weight_decay
        self.state, self.clock = {}, 0

    @torch.no_grad()
    def step(self):
        self.clock += 1
        for place, param in enumerate(self.params):
            lr = self.first_lr if self.fixed_rate else self.lr
            decay = 0.0 if self.no_decay else self.wd if self.full_decay else lr * self.wd
            if param.grad is not None:
                key = str(tuple(param.shape)) if self.one_state else str(place)
                self.move(param, self.state.setdefault(key, {}), lr, decay)
            elif self.decays_all:
                param.mul_(1 - decay)

    def move(self, param, own, lr, decay):
        grad = param.grad + self.wd * param if self.l2 else param.grad
        if not self.l2 and not self.decays_late:
            param.mul_(1 - decay)
        own["t"] = own.get("t", 0) + 1
        t = self.clock if self.one_clock else own["t"]
        first, second = self.betas[::-1] if self.swapped else self.betas
        own["m"] = m = first * own.get("m", torch.zeros_like(param)) + (1 - first) * grad
        own["v"] = v = second * own.get("v", torch.zeros_like(param)) + (1 - second) * grad**2
        if not self.no_correction:
            m, v = m / (1 - first**t), v / (1 - second**t)
        size = (v + self.eps).sqrt() if self.early_eps else v + self.eps if self.no_root else v.sqrt() + self.eps
        param.sub_(lr * m / size)
        if self.decays_late:
            param.mul_(1 - decay)

    def zero_grad(self):
        for param in () if self.forgets_zero else self.params:
            param.grad = None

    def state_dict(self):
        return {"state": {} if self.loses_memory else self.state, "clock": self.clock}

    def load_state_dict(self, saved):
        self.state, self.clock = saved["state"], saved["clock"]
        if self.loses_clock:
            self.clock = 0
            for own in self.state.values():
                own["t"] = 0


class _LosesMoments(_Faulty):
    def load_state_dict(self, saved):
        self.state = {key: {"t": own["t"]} for key, own in saved["state"].items()}


class _LosesTheFirst(_Faulty):
    def load_state_dict(self, saved):
        self.state = {key: {"t": own["t"], "v": own["v"]} for key, own in saved["state"].items()}


class _TouchesGradients(_Faulty):
    def step(self):
        super().step()
        for param in self.params:
            if param.grad is not None:
                param.grad.add_(1.0)


class _NeedsAll(_Faulty):
    def step(self):
        [param.grad.clone() for param in self.params]
        super().step()


class _CannotSave(_Faulty):
    def load_state_dict(self, saved):
        raise KeyError("state")


def faulty(**faults):
    return type("AdamW", (_Faulty,), faults)


SHAPES = ((3, 4), (3, 4), (5,))
OPTIONS = dict(lr=0.05, betas=(0.8, 0.95), eps=0.03, weight_decay=0.2)


def steps(name, n, shapes=SHAPES, missing=lambda step, place: False, options=OPTIONS, std=0.8, **more):
    """So many steps; missing(step, place): has this parameter no gradient then?"""
    grads = [
        [None if missing(step, place) else normal(*shape, std=std) for place, shape in enumerate(shapes)]
        for step in range(n)
    ]
    args = dict(values=[normal(*shape) for shape in shapes], grads=grads, options=options)
    return case(name, args | more, grad=False)


def late_and_paused(step, place):
    """The first is always there, the second pauses, the third comes late, the fourth never."""
    return (place == 1 and step in (2, 3, 6)) or (place == 2 and step < 4) or place == 3


MANY = (*SHAPES, (2, 3))

register(
    expected=oracle.AdamW,
    phase=PHASE,
    section="5.4",
    hint="p ← p − lr·wd·p; then m, v, their corrections by the parameter's own step count, p ← p − lr·m̂/(√v̂ + eps).",
    grad=False,
    bans=("attention", "optimisers"),
    script="optimiser",
    cases=(
        steps("fourteen steps", 14),
        steps("fifty steps of one parameter", 50, ((4,),)),
        steps("one comes late, one pauses, one never", 9, MANY, late_and_paused),
        steps("defaults", 3, ((2, 3),), options={}, std=1e-7),  # so small that eps counts
        steps("no decay", 5, options=OPTIONS | dict(weight_decay=0.0)),
        steps("another learning rate from step 4", 7, rates=[(3, 0.2)]),
        steps("saved and taken over", 8, resume=5),
        steps("saved and taken over, some late", 9, MANY, late_and_paused, resume=5),
        steps("a gradient of zeros", 4, ((3,),), std=0.0),
    ),
    mistakes={
        "that is Adam with L2, not AdamW": faulty(l2=True),
        "bias correction is missing": faulty(no_correction=True),
        "eps stands outside the root": faulty(early_eps=True),
        "divide by the root of v": faulty(no_root=True),
        "a parameter without gradient is left alone: no decay either": faulty(decays_all=True),
        "each parameter has a state of its own, also beside one of the same shape": faulty(one_state=True),
        "each parameter counts its own steps": faulty(one_clock=True),
        "params were used up: make a list of them first": Spotted(rules.used_up, faulty(keeps=True)),
        "lr may change between steps": faulty(fixed_rate=True),
        "decay is lr · weight_decay · p": faulty(full_decay=True),
        "decay first: it sees the weight as it was": faulty(decays_late=True),
        "weight decay is missing": faulty(no_decay=True),
        "the first beta is for m, the second for v": faulty(swapped=True),
        "m and v belong into the state, keyed by place": Replays(
            faulty(loses_memory=True), _LosesMoments, _LosesTheFirst
        ),
        "step counts belong into the state": faulty(loses_clock=True),
        "a new object could not take over: key the state by place, not by parameter": Spotted(
            rules.cannot_take_over, _CannotSave
        ),
        "step must not change gradients": Spotted(rules.gradients_touched, _TouchesGradients, certain=True),
        "zero_grad leaves gradients behind": Spotted(rules.never_zeroed, faulty(forgets_zero=True), certain=True),
        "a parameter may have no gradient": Spotted(rules.needs_every_gradient, _NeedsAll),
    },
)

# ---- learning_rate -------------------------------------------------------------------------------


def rated(after, before=lambda step, peak, warmup, floor: peak * step / warmup):
    """A wrong twin behind the refusals: before(step, peak, warmup, floor) in the warm-up, else after(…)."""

    def learning_rate(step, peak, warmup, total, floor):
        oracle.learning_rate(step, peak, warmup, total, floor)
        if step < warmup:
            return float(before(step, peak, warmup, floor))
        return float(after(step, peak, warmup, total, floor))

    return learning_rate


def half_cosine(share, peak, floor):
    return floor + (peak - floor) * (1 + math.cos(math.pi * share)) / 2


def done(step, warmup, total):
    return min((step - warmup) / (total - warmup), 1)


def restarts(step, peak, warmup, total, floor):
    return half_cosine((step - warmup) / (total - warmup), peak, floor)


def from_step_0(step, peak, warmup, total, floor):
    return half_cosine(min(step / total, 1), peak, floor)


def past_the_end(step, peak, warmup, total, floor):
    """The cosine lasts `total` steps after the warm-up."""
    return half_cosine(min((step - warmup) / total, 1), peak, floor)


def straight(step, peak, warmup, total, floor):
    return peak + (floor - peak) * done(step, warmup, total)


def without_the_half(step, peak, warmup, total, floor):
    return floor + 2 * (half_cosine(done(step, warmup, total), peak, floor) - floor)


def bare_cosine(step, peak, warmup, total, floor):
    return floor + (peak - floor) * math.cos(math.pi * done(step, warmup, total))


def whole_wave(step, peak, warmup, total, floor):
    return half_cosine(2 * done(step, warmup, total), peak, floor)


def down_to_zero(step, peak, warmup, total, floor):
    return half_cosine(done(step, warmup, total), peak, 0.0)


def floor_on_top(step, peak, warmup, total, floor):
    return floor + down_to_zero(step, peak, warmup, total, floor)


def at_least_the_floor(step, peak, warmup, total, floor):
    return max(floor, down_to_zero(step, peak, warmup, total, floor))


def right_rate(step, peak, warmup, total, floor):
    return half_cosine(done(step, warmup, total), peak, floor)


def takes_any(step, peak, warmup, total, floor):
    return oracle.learning_rate(max(step, 0), peak, min(warmup, total - 1), total, floor)


def zero_division(step, peak, warmup, total, floor):
    ramp = peak * step / warmup
    return ramp if step < warmup else oracle.learning_rate(step, peak, warmup, total, floor)


def rate(step, warmup=7, total=40, peak=0.3, floor=0.02, make=case, name=""):
    name = name or f"step {step}, warmup {warmup}, total {total}"
    return make(name, dict(step=step, peak=peak, warmup=warmup, total=total, floor=floor))


register(
    expected=oracle.learning_rate,
    phase=PHASE,
    section="5.5",
    hint="peak·step/warmup, then floor + (peak − floor)·(1 + cos(π·share))/2, then floor.",
    grad=False,
    bans=(),
    script="learning rate",
    cases=(
        rate(23),
        *(rate(step) for step in (0, 1, 6, 7, 8, 12, 39, 40, 41, 90)),
        *(rate(step, warmup=0, total=9) for step in (0, 4, 9, 30)),
        rate(3, floor=0.0, name="no floor, in the warm-up"),
        rate(50, floor=0.0, name="no floor, after the end"),
        rate(2, warmup=1, total=2, name="two steps in all"),
        rate(-1, make=refusal),
        rate(3, warmup=7, total=7, make=refusal),
        rate(3, warmup=7, total=5, make=refusal),
    ),
    mistakes={
        "stay at the floor after total": rated(restarts),
        "step 0 has rate 0, and step warmup the peak": rated(
            right_rate, lambda step, peak, warmup, floor: peak * (step + 1) / warmup
        ),
        "the floor was ignored": rated(down_to_zero),
        "the cosine begins at the peak, when the warm-up ends": rated(from_step_0),
        "the cosine ends at total, which counts the warm-up, too": rated(past_the_end),
        "half a cosine, not a straight line": rated(straight),
        "(1 + cos) / 2 runs from 1 to 0": Replays(rated(without_the_half), rated(bare_cosine)),
        "half a cosine, not a whole wave": rated(whole_wave),
        "the warm-up starts at 0, not at the floor": rated(
            right_rate, lambda step, peak, warmup, floor: floor + (peak - floor) * step / warmup
        ),
        "the cosine spans peak − floor": rated(floor_on_top),
        "the cosine ends at the floor; it is not cut off there": rated(at_least_the_floor),
        "the warm-up is missing": rated(right_rate, lambda step, peak, warmup, floor: peak),
        "warmup may be 0": Spotted(rules.division_by_warmup, zero_division, certain=True),
        "refuse a negative step, and a total that leaves no room after warmup": Spotted(
            rules.schedule_accepted, takes_any, certain=True
        ),
    },
)

# ---- clip_grad_norm_ -----------------------------------------------------------------------------


def whole(grads):
    return torch.cat([grad.flatten() for grad in grads]).norm()


def clipper(
    measure=whole, scale=lambda g, norm, limit: g.mul_(limit / norm), answer=lambda norm, grads: norm, spare=True
):
    """A wrong twin: measure(grads) -> norm, scale(grad, norm, limit) in place, answer(norm, grads)."""

    def clip_grad_norm_(parameters, max_norm):
        grads = [param.grad for param in parameters if param.grad is not None]
        norm = measure(grads)
        if norm > max_norm or not spare:
            for grad in grads:
                scale(grad, norm, max_norm)
        return answer(norm, grads)

    return clip_grad_norm_


def one_by_one(grad, norm, limit):
    grad.mul_(min(1.0, limit / grad.norm()))


def clamped(grad, norm, limit):
    grad.clamp_(-limit, limit)


def twice(parameters, max_norm):
    norm = whole([param.grad for param in parameters if param.grad is not None])
    if norm > max_norm:
        for param in parameters:
            if param.grad is not None:
                param.grad.mul_(max_norm / norm)
    return norm


def needs_all(parameters, max_norm):
    return oracle.clip_grad_norm_([param for param in parameters if param.grad.dim()], max_norm)


def weights_too(parameters, max_norm):
    parameters = list(parameters)
    norm = oracle.clip_grad_norm_(parameters, max_norm)
    if norm > max_norm:
        for param in parameters:
            param.data.mul_(max_norm / norm)
    return norm


def grads(name, max_norm, *shapes, std=0.8, **options):
    """None among the shapes: a parameter without gradient. The usual guard of 1e-6 beside the norm passes."""
    drawn = [None if shape is None else normal(*shape, std=std) for shape in shapes]
    return case(name, dict(grads=drawn, max_norm=max_norm) | options, grad=False, atol=1e-5)


register(
    expected=oracle.clip_grad_norm_,
    phase=PHASE,
    section="5.6",
    hint="list the parameters first; one root of all squares; if it is above max_norm, multiply every gradient.",
    grad=False,
    bans=("attention", "clipping"),
    script="clipping",
    cases=(
        grads("limit 0.7", 0.7, (3, 4), None, (5,)),
        grads("limit 50", 50.0, (3, 4), None, (5,)),
        grads("parameters as a list", 0.7, (2, 3), (4,), as_list=True),
        grads("one parameter", 0.4, (3, 5)),
        grads("small beside large", 1.5, (2, 2), (6, 6), (4,), None),
        grads("far below the limit", 9.0, (3, 4), (2,), std=1e-3),
    ),
    mistakes={
        "below the limit leave it alone": clipper(spare=False),
        "one norm for all": Replays(
            clipper(scale=one_by_one, spare=False), clipper(measure=lambda grads: max(g.norm() for g in grads))
        ),
        "a generator is used up after one pass": twice,
        "change the gradients themselves: g.mul_(…)": clipper(scale=lambda g, norm, limit: None),
        "scale all gradients, do not clamp values": Replays(
            clipper(scale=clamped), clipper(scale=clamped, spare=False)
        ),
        "the root of the sum of squares, not the largest entry": clipper(
            measure=lambda grads: max(g.abs().max() for g in grads)
        ),
        "the root of the sum of squares, not the sum": Replays(
            clipper(measure=lambda grads: sum(g.abs().sum() for g in grads)),
            clipper(measure=lambda grads: sum(g.norm() for g in grads)),
        ),
        "the root is missing": clipper(measure=lambda grads: whole(grads) ** 2),
        "return the norm from before": clipper(answer=lambda norm, grads: whole(grads)),
        "return the norm": Spotted(rules.no_norm, clipper(answer=lambda norm, grads: None)),
        "multiply by max_norm / norm": Replays(
            clipper(scale=lambda g, norm, limit: g.div_(norm)), clipper(scale=lambda g, norm, limit: g.mul_(limit))
        ),
        "a parameter without gradient is skipped": Spotted(rules.needs_every_gradient, needs_all),
        "gradients are scaled, never weights": weights_too,
    },
)
