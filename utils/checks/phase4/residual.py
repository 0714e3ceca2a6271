"""Residual: a sub-layer with a way round it."""

import torch
import torch.nn.functional as F

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase4 import PHASE, rules
from utils.observe.codec import Fixture


class Parts:
    """How a branch is added, in parts: mixed into a twin, whose `add` it replaces. As it stands it is the right one."""

    def add(self, x, norm, branch):
        inside = norm(x) if self.first() else x
        total = self.skip(x, inside) + self.drop(self.branch(branch, inside, norm))
        return total if self.first() else self.last(norm, total)

    def first(self):
        return self.norm_first

    def skip(self, x, inside):
        return x

    def branch(self, branch, inside, norm):
        return branch(inside)

    def drop(self, added):
        return F.dropout(added, self.dropout, self.training)

    def last(self, norm, total):
        return norm(total)


class NormOfBranch(Parts):
    """x + norm(sub(x))"""

    def add(self, x, norm, branch):
        return x + self.drop(norm(branch(x))) if self.norm_first else super().add(x, norm, branch)


class NoNorm(Parts):
    def add(self, x, norm, branch):
        return x + self.drop(branch(x))


class NormOfSkip(Parts):
    """The normed token is what is carried on, in pre-norm."""

    def skip(self, x, inside):
        return inside


class NoSkip(Parts):
    def skip(self, x, inside):
        return torch.zeros_like(x)


class PreAlways(Parts):
    def first(self):
        return True


class PostAlways(Parts):
    def first(self):
        return False


class NormedTwice(Parts):
    """Pre-norm, and the sum is normed as well."""

    def add(self, x, norm, branch):
        total = super().add(x, norm, branch)
        return norm(total) if self.norm_first else total


class NoDropout(Parts):
    def drop(self, added):
        return added


class DropoutAlways(Parts):
    def drop(self, added):
        return F.dropout(added, self.dropout, True)


class DropoutOnSum(Parts):
    """Dropout after the addition: the skip is dropped, too."""

    def add(self, x, norm, branch):
        inside = norm(x) if self.norm_first else x
        total = self.drop(x + branch(inside))
        return total if self.norm_first else norm(total)


class DropoutInPreOnly(Parts):
    def drop(self, added):
        return super().drop(added) if self.norm_first else added


class NormOfBranchAlways(Parts):
    """x + norm(sub(x)) in both orders"""

    def add(self, x, norm, branch):
        return x + self.drop(norm(branch(x)))


ORDERS = {
    "the norm belongs before the sub-layer": (NormOfBranch, NormOfBranchAlways),
    "the skip carries x itself": (NormOfSkip,),
    "there is no norm": (NoNorm,),
    "pre and post gave the same": (PreAlways, PostAlways),
    "there is no skip": (NoSkip,),
    "pre-norm ends without a norm": (NormedTwice,),
    "dropout does nothing": (NoDropout, DropoutInPreOnly),
    "drop the branch, not the skip": (DropoutOnSum,),
}


def in_one_order(twin, right, norm_first):
    """A twin whose mistake is made in pre-norm (or post-norm) alone; elsewhere it is `right`."""

    class Wrong(twin):
        def forward(self, *args, **kwargs):
            if self.norm_first is norm_first:
                return super().forward(*args, **kwargs)
            return right.forward(_As(self, right), *args, **kwargs)

    return Wrong


class _As:
    """A module seen as one of another class: its parts and numbers, the other's methods."""

    def __init__(self, module, other):
        self.module, self.other = module, other

    def __getattr__(self, name):
        method = getattr(self.other, name, None)
        return method.__get__(self) if callable(method) else getattr(self.module, name)


def also_in_one_order(right, *twins):
    """Replays of these twins, and of each with its mistake in one order only."""
    halves = (in_one_order(twin, right, norm_first) for twin in twins for norm_first in (True, False))
    return Replays(*twins, *halves)


def mistakes_of(base, forward=None):
    """The mistakes above, made by a twin whose `add` they replace; forward(self, …) makes the branches."""
    body = {} if forward is None else {"forward": forward}

    def twin(part):
        return type(f"Wrong{base.__name__}", (part, base), body)

    named = {says: Replays(*map(twin, parts)) for says, parts in ORDERS.items()}
    return named | {"dropout must be off in eval mode": Spotted(rules.dropped_in_eval, twin(DropoutAlways))}


def forward(self, x, *args, **kwargs):
    return self.add(x, self.norm, lambda inside: self.sublayer(inside, *args, **kwargs))


def deaf(self, x, *args, **kwargs):
    return self.add(x, self.norm, self.sublayer)


def deaf_to_options(self, x, *args, **kwargs):
    return self.add(x, self.norm, lambda inside: self.sublayer(inside, *args))


def deaf_to_arguments(self, x, *args, **kwargs):
    return self.add(x, self.norm, lambda inside: self.sublayer(inside, **kwargs))


def made(forward):
    return type("WrongResidual", (Parts, oracle.Residual), {"forward": forward})


def zeros(*shape):
    return given(lambda g, o: torch.zeros(shape, dtype=torch.float64))


X = dict(x=(2, 5, 6))
BRANCH, SILENT = Fixture("branch", dict(seed=1)), Fixture("branch", dict(gain=0.0, seed=2))
PRE = dict(sublayer=BRANCH, d_model=6)
POST = PRE | dict(norm_first=False)
QUIET = dict(sublayer=SILENT, d_model=6)


def with_memory(*shape, shift=None):
    """Arguments for a sub-layer that takes another tensor, and perhaps an option."""
    return dict(x=shape, args=[given(lambda g, o: torch.randn(shape, generator=g, dtype=torch.float64))])


register(
    expected=oracle.Residual,
    phase=PHASE,
    section="4.7",
    hint="pre: x + drop(sublayer(norm(x))); post: norm(x + drop(sublayer(x))).",
    cases=(
        case("pre-norm", X, init=PRE),
        case("post-norm", X, init=POST),
        case("pre-norm, another argument", with_memory(2, 5, 6), init=PRE),
        case("post-norm, another argument", with_memory(2, 5, 6), init=POST),
        case("an option for the sub-layer", X | dict(shift=0.7), init=PRE),
        case("an option for the sub-layer, post-norm", X | dict(shift=-0.4), init=POST),
        case("a silent sub-layer, pre-norm", X, init=QUIET),
        case("a silent sub-layer, post-norm", X, init=QUIET | dict(norm_first=False)),
        case("norm_first and dropout said aloud", X, init=PRE | dict(norm_first=True, dropout=0.5)),
        case("one token, no batch", dict(x=(6,)), init=PRE),
        case("as many tokens as features", dict(x=(6, 6, 6)), init=POST),
        case("two calls", dict(x=(1, 3, 6)), then=(X,), init=PRE, train=True),
        case("dropout 0.5 in eval, post-norm", X, init=POST | dict(dropout=0.5)),
        case("dropout 1 in training", X, init=PRE | dict(dropout=1.0), train=True),
        case("dropout 1 in training, post-norm", X, init=POST | dict(dropout=1.0), train=True),
        case(
            "dropout 0.5 in training",
            dict(x=zeros(8, 40, 6)),
            then=(dict(x=zeros(8, 40, 6)),),
            init=PRE | dict(dropout=0.5),
            kind="chance",
            judge=rules.branch_dropout(0.5, ""),
            grad=False,
        ),
    ),
    mistakes=mistakes_of(oracle.Residual, forward)
    | {
        "the sub-layer's other arguments were lost": Replays(
            made(deaf), made(deaf_to_options), made(deaf_to_arguments)
        ),
    },
)
