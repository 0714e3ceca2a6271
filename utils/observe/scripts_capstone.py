"""Plays for the parts of a whole training run: the split, the test loss, exact resume, one batch, several ranks."""

import builtins
import contextlib
import numbers
import random

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from utils.observe import codec
from utils.observe.effects import same
from utils.observe.fixtures_capstone import RandDropout
from utils.observe.scripts_training import number

# ---- the split -----------------------------------------------------------------------------------

WORDS = b"def return for in if else self model tokens = + ( ) : [ ] 0 1 loss step x y".split()


class _Document(bytes):
    """A text whose hash() is another one in every process, as Python's is; `process` says which this is."""

    process = 0

    def __hash__(self):
        return _hash((_Document.process, bytes(self)))


_hash = builtins.hash


@contextlib.contextmanager
def _process(number):
    """As if Python had been started anew."""
    before = _Document.process
    _Document.process, builtins.hash = number, lambda value: _hash((number, _hash(value)))
    try:
        yield
    finally:
        _Document.process, builtins.hash = before, _hash


def texts(count, seed, head=b"", tail=b"", length=8):
    """That many documents; with length 0 all are of one size."""
    draw = random.Random(seed)
    return [
        _Document(head + b" ".join(draw.choices(WORDS, k=length)) + b" %06d" % draw.randrange(10**6) + tail)
        for _ in range(count)
    ]


def split(obj):
    def play(count, val_share, seed=0, head=b"", tail=b"", length=8, more=0, twice=0):
        """Facts about what is split off from `count` documents.

        head, tail: how all begin and end; length: words; more: documents that come in between; twice: of how many
        there is a second copy
        """
        whole = texts(count, seed, head, tail, length)
        order = random.Random(seed + 1).sample(range(count), count)
        with _process(1):
            first = _sides(obj, whole, val_share)
        with _process(2):
            again = _sides(obj, whole, val_share)
            moved = _sides(obj, [whole[index] for index in order], val_share)
            grown = _sides(obj, [*texts(more, seed + 2), *whole, *whole[:twice]], val_share)
        for sides in (first, again, moved, grown):
            if isinstance(sides, str):
                return dict.fromkeys(SPLIT, False) | {"train, val": sides}
        inside, wanted = set(first[1]), count * val_share
        spread = max(0.0, wanted * (1 - val_share)) ** 0.5
        return {
            "train, val": "two ascending lists, every index in one of them",
            "about val_share of them": abs(len(inside) - wanted) <= 5 * spread,
            "the same in another order": {order[index] for index in moved[1]} == inside,
            "the same when documents are added": {n - more for n in grown[1] if more <= n < more + count} == inside,
            "equal documents on one side": {n - more - count for n in grown[1] if n >= more + count}
            == {n - more for n in grown[1] if more <= n < more + twice},
            "the same in another process": set(again[1]) == inside,
        }

    return play


SPLIT = (  # the facts about a split, in the order in which they are told
    "train, val",
    "about val_share of them",
    "the same in another order",
    "the same when documents are added",
    "equal documents on one side",
    "the same in another process",
)


def _sides(obj, documents, val_share):
    """(train, val), or in words what is wrong with them."""
    handed = list(documents)
    found = obj(handed, val_share)
    if len(handed) != len(documents) or any(one is not other for one, other in zip(handed, documents, strict=True)):
        return "the list of documents was changed"
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        return f"not two lists, but {type(found).__name__}"
    if any(isinstance(side, (set, frozenset)) for side in found):
        return "sets, which have no order"
    if any(isinstance(one, bytes) for side in found for one in side):
        return "documents, not their indices"
    try:
        train, val = ([int(index) for index in side] for side in found)
    except (TypeError, ValueError):
        return "not two lists of indices"
    if sorted(train + val) != list(range(len(documents))):
        return "some index is missing, or stands there twice"
    return (train, val) if sorted(train) == train and sorted(val) == val else "the indices are not in order"


# ---- the test loss -------------------------------------------------------------------------------


def evaluation(obj):
    """The two numbers, and in which mode the model was run; the gradients of a training that goes on are its own."""

    def play(model, tokens, seq_len):
        before = [(weight.requires_grad, weight.grad.clone()) for weight in model.parameters()]
        found = obj(model, tokens, seq_len)
        weights = zip(model.parameters(), before, strict=True)
        alone = [part.requires_grad == was and same(slope, part.grad) for part, (was, slope) in weights]
        if isinstance(found, (tuple, list)) and len(found) == 2:
            loss, count = map(number, found)
            one = isinstance(count, torch.Tensor) and count.numel() == 1
            count = int(count) if one or isinstance(count, numbers.Integral) else count
            found = {
                "loss_sum": torch.tensor(loss, dtype=torch.float64) if isinstance(loss, float) else loss,
                "n_tokens": count,
            }
        modes = {"in eval mode": not any(model.trained), "without gradients": not any(model.tracked)}
        return found, modes | {"the weights' own gradients left alone": all(alone)}

    return play


# ---- exact resume --------------------------------------------------------------------------------


class _Wheel(torch.optim.Optimizer):
    """Momentum whose state_dict() hands out what it goes on writing into, as hand-made optimisers do."""

    def __init__(self, params, lr):
        self.params, self.lr = list(params), lr
        self.state_now = {"moves": [torch.zeros_like(p) for p in self.params], "count": [0]}
        super().__init__(self.params, {"lr": lr})

    def state_dict(self):
        return {"lr": self.lr, "inner": self.state_now}

    def load_state_dict(self, state_dict):
        self.lr, self.state_now = state_dict["lr"], state_dict["inner"]

    @torch.no_grad()
    def step(self, closure=None):
        self.state_now["count"][0] += 1
        for weight, move in zip(self.params, self.state_now["moves"], strict=True):
            if weight.grad is None:  # nobody used it
                continue
            move.mul_(0.9).add_(weight.grad)
            weight.sub_(self.lr / self.state_now["count"][0] ** 0.5 * move)


class Run:
    """A small training run: weights, a running mean kept as a buffer, dropout, batches drawn from a generator."""

    def __init__(self, seed, optimizer="wheel", scale=1.0, lr=0.1):
        draw = torch.Generator().manual_seed(seed)
        self.model = _Line(scale * (torch.rand(4, 3, generator=draw, dtype=torch.float64) - 0.5))
        self.generator = torch.Generator().manual_seed(seed + 1)
        parameters = self.model.parameters()
        self.optimizer = _Wheel(parameters, lr) if optimizer == "wheel" else torch.optim.AdamW(parameters, lr=lr)

    def train(self, steps):
        """The weights and the buffer after each of these steps."""
        path = []
        for _ in range(steps):
            x = torch.rand(5, 4, generator=self.generator, dtype=torch.float64)
            self.optimizer.zero_grad()
            (self.model(x) - x[:, :3]).square().mean().backward()
            self.optimizer.step()
            path.append({name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()})
        return path


class _Line(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight, self.bias = nn.Parameter(weight), nn.Parameter(torch.zeros(3, dtype=torch.float64))
        self.drop, self.still = RandDropout(0.4), RandDropout(0.4).eval()  # the second one sleeps: as frozen parts do
        self.register_buffer("mean", torch.zeros(4, dtype=torch.float64))

    def forward(self, x):
        if self.training:
            self.mean.mul_(0.8).add_(0.2 * x.mean(0))
        return self.still(self.drop(x - self.mean)) @ self.weight + self.bias


@contextlib.contextmanager
def chance(seed):
    """torch's random state for a while: it begins at this seed, and is put back."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


KEPT = ("model", "optimizer", "generator", "random", "step")


def keeping(obj):
    def play(steps, later, seed=0, optimizer="wheel"):
        """What was kept after so many steps, looked at when `later` more have been made, and another one taken."""
        with chance(seed):
            run = Run(seed, optimizer)
            run.train(steps)
            before = _all_of(run)
            state = obj(run.model, run.optimizer, run.generator, steps)
            quiet = before == _all_of(run)
            run.train(later)
            obj(run.model, run.optimizer, run.generator, steps + later)
        if not isinstance(state, dict):
            return state
        kept = {key: plain(state[key]) for key in KEPT if key in state}
        graph = any(isinstance(leaf, torch.Tensor) and leaf.grad_fn for leaf in tree_leaves(dict(state)))
        return kept | {"the run is as it was": quiet, "nothing in it keeps a graph": not graph}

    return play


def _all_of(run):
    """Everything that a look at a run could change, as bytes to compare."""
    flags = [part.training for part in run.model.modules()]
    slopes = [weight.grad for weight in run.model.parameters()]
    parts = run.model.state_dict(), run.optimizer.state_dict(), run.generator.get_state(), torch.get_rng_state()
    return codec.encode(plain((parts, flags, slopes)))


def plain(value):
    """Mappings as dicts, everything inside as it is."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(part) for part in value)
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def resuming(obj):
    def play(state, later, seed=0, steps=2, optimizer="wheel"):
        """How two other runs go on, one after the other, that were put into the same state."""
        found, was = {}, codec.encode(plain(state))
        for turn in ("first", "second"):
            with chance(seed):
                run = Run(seed, optimizer, scale=2.0, lr=0.3)
                run.train(steps)
                found[f"{turn} time, returned"] = obj(state, run.model, run.optimizer, run.generator)
                found[f"{turn} time, goes on"] = dict(enumerate(run.train(later), 1))
            seed += 1
        return found | {"the state is as it was": was == codec.encode(plain(state))}

    return play


# ---- one batch -----------------------------------------------------------------------------------


class _Curve(nn.Module):
    """Two layers with dropout between; one part is in eval mode, whatever the rest; it remembers its modes."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = nn.Parameter(first.clone()), nn.Parameter(second.clone())
        self.idle = nn.Parameter(torch.ones(2, dtype=first.dtype))
        self.drop, self.still, self.trained = RandDropout(0.5), nn.Identity().eval(), []

    def forward(self, x):
        self.trained.append(self.drop.training)
        return self.still(self.drop(torch.tanh(x @ self.first)) @ self.second)


class _Counted(torch.optim.SGD):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.made = 0

    def step(self, closure=None):
        found = super().step(closure)
        self.made += 1
        return found


def _in_one(losses, dtype):
    """A list of numbers, or of tensors with one number each, as one tensor; everything else as it is."""
    if not isinstance(losses, (list, tuple)):
        return losses
    numbers_alone = [one.item() if isinstance(one, torch.Tensor) and one.numel() == 1 else one for one in losses]
    return torch.tensor(numbers_alone, dtype=dtype) if all(isinstance(n, float) for n in numbers_alone) else losses


def one_batch(obj):
    def play(x, y, first, second, steps, lr=0.3, bad_at=-1, by="nan"):
        """bad_at: from so many steps on the loss is `by`, no number; or, by "a stumble", it cannot be made at all."""
        model = _Curve(first, second)
        for weight in model.parameters():
            weight.grad = torch.ones_like(weight)
        made = _Counted(model.parameters(), lr=lr, momentum=0.5)
        flags = [part.training for part in model.modules()]

        def loss(given):
            bad = 0 <= bad_at <= made.made
            if bad and by == "a stumble":
                raise ValueError("no memory left")
            return (model(x) - y).square().mean() * (float(by) if bad else 1.0)

        seen = {"refused": False}
        try:
            losses = obj(model, made, loss, steps)
        except ValueError:
            if bad_at < 0:
                raise
            losses, seen = [], {"refused": True}
        floats = isinstance(losses, (list, tuple)) and all(isinstance(one, float) for one in losses)
        return seen | {
            "losses": _in_one(losses, x.dtype),
            "a list of floats": floats,
            "steps": made.made,
            "flags as before": flags == [part.training for part in model.modules()],
            "in eval mode": not any(model.trained),
            **{f"weights {name}": weight.detach() for name, weight in model.named_parameters()},
        }

    return play


# ---- several ranks -------------------------------------------------------------------------------


def ranks(obj):
    """The means by their places: each is compared for itself."""

    def play(gradients, counts):
        means = obj(gradients, counts)
        if not isinstance(means, (list, tuple)):
            return means
        return {f"parameter {place}": mean for place, mean in enumerate(means)}

    return play


SCRIPTS = {
    "split": split,
    "evaluation": evaluation,
    "keeping": keeping,
    "resuming": resuming,
    "one batch": one_batch,
    "ranks": ranks,
}
