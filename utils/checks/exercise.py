"""What a check is made of: cases, the twin that is right, and the mistakes we know by name."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from utils.checks import draw
from utils.observe import Request, fixtures, observe, parts_of, scripts
from utils.observe.codec import Fixture
from utils.observe.forbid import free

SECONDS = 10.0  # a call of learner code may take this long
EXERCISES = {}  # name -> Exercise, in the order of the course


@dataclass(frozen=True, eq=False)
class Case:
    """One situation in which the learner's object is compared with the twin.

    args      {name: spec} of the call; `then` holds further calls on the same object. Of an object "method" names what
              is called, or the attribute that is read; of a module it may, in place of forward
    init      {name: spec} of the constructor of a module or object
    kind      "plain"; "edge" (empty rows, refusals: everything it shows counts under properties); "chance" (train mode;
              `judge(got, settled)` replaces the comparison, where `settled` is the twin's observation without chance)
    dtype     floating type of the run, and torch's default while it lasts unless default_dtype says otherwise
    grad      False where no gradient is asked for
    atol      replaces the usual tolerance, with a comment beside it
    train     a module is observed in train mode
    watch     the shapes of all floating tensors are reported
    repeats   the name of the case whose numbers this one uses again
    mutates   the argument whose state afterwards is compared, or "self", "held", "learning": see Request.mutates
    after     what happens between the calls (Request.after)
    as_made   a module keeps the weights it starts with
    zero      parameters whose names begin like this are 0 instead of drawn: to silence a branch
    """

    name: str
    args: dict
    then: tuple = ()
    init: dict | None = None
    kind: str = "plain"
    dtype: str = "float64"
    grad: bool = True
    atol: float | None = None
    judge: Callable | None = None
    default_dtype: str = ""
    train: bool = False
    watch: bool = False
    hidden: bool = False
    repeats: str = ""
    mutates: str = ""
    after: str = ""
    zero: tuple = ()
    as_made: bool = False


def case(name, args=None, **options):
    return Case(name, args or {}, **options)


def refusal(name, args=None, **options):
    """A case in which ValueError is the right answer."""
    return Case(name, args or {}, kind="edge", grad=False, **options)


@dataclass(frozen=True)
class Spotted:
    """A mistake told by a predicate over what was observed: where chance plays a part, or a constant is free.

    sees(got, request) -> bool; `twin` makes the mistake, so that the tests can see it recognised. `also`: wrong twins
    that are replayed where the predicate says no. certain: the predicate is the very statement, nothing can refute it.
    """

    sees: Callable
    twin: Callable
    also: tuple = ()
    certain: bool = False

    @property
    def twins(self):
        return self.also


class Replays:
    """A mistake that can be made in several ways: any of these wrong twins."""

    def __init__(self, *twins):
        self.twins, self.twin = twins, twins[0]


@dataclass(frozen=True, eq=False)
class Exercise:
    """One exercise. `expected` is its twin; `mistakes` maps what a learner reads to a wrong twin or a `Spotted`.

    library     "torch" or "numpy": what the arguments are made of
    bans        groups of operations that are off (utils.observe.forbid.BANS)
    properties  functions (observation, case, request) -> text or None, judged besides the comparison with the twin
    fresh       the result must share no storage with an argument
    whole       score is 1 or 0, nothing between (predicates, decisions)
    script      a name in utils.observe.scripts, or "": what plays with the object; cases hold the arguments of the play
    draws       torch's random state may move: the answer may be read off layers that are made for it
    """

    name: str
    phase: str
    section: str
    expected: Callable
    cases: tuple
    hint: str
    mistakes: dict = field(default_factory=dict)
    library: str = "torch"
    grad: bool = True
    bans: tuple = ("attention",)
    properties: tuple = ()
    fresh: bool = False
    whole: bool = False
    script: str = ""
    draws: bool = False

    @property
    def is_module(self):
        return not self.script and inspect.isclass(self.expected) and issubclass(self.expected, nn.Module)

    @property
    def kind(self):
        """What is asked of a learner: a "function", a "module", or the class of an "object" of another sort."""
        if self.is_module:
            return "module"
        return "object" if inspect.isclass(self.expected) and not self.script else "function"

    @functools.cached_property
    def visible(self):
        """The authored cases, then some again: in float32, and the first one after all the others."""
        first = self.cases[0]
        again = replace(first, name=f"{first.name}, once more", repeats=first.name)
        if not self.drawn:
            return (*self.cases, again)
        if not self.is_module:
            # inputs in float64 where the default is float32: the result follows the input. The tolerance is wide,
            # because torch.tensor(d_head) ** 0.5 is right, too, and then has float32's digits.
            again = replace(again, default_dtype="float32", atol=1e-5)
        single = [replace(one, name=f"{one.name}, float32", dtype="float32", repeats=one.name) for one in self._kinds()]
        return (*self.cases, *single, again)

    def _kinds(self):
        """The first plain case, and the first with each way to hide keys."""
        plain = [one for one in self.cases if one.kind == "plain" and one.dtype == "float64"]
        found = [plain[0]]
        for option in ("attn_mask", "pad_mask", "causal"):
            with_it = [one for one in plain if {**one.args, **(one.init or {})}.get(option)]
            found += [one for one in with_it[:1] if one not in found]
        return found

    @functools.cached_property
    def drawn(self):
        """Does the first case draw numbers, so that nobody can know its answer in advance?"""
        first = self.cases[0]
        if self.is_module:
            return True  # its weights are drawn
        values = draw.draw_all(first.args, 0, torch.float64, "torch").values()
        return first.kind == "plain" and any(isinstance(v, torch.Tensor) and v.is_floating_point() for v in values)


def register(**parts):
    """Add an exercise under the name of its twin."""
    exercise = Exercise(name=parts["expected"].__name__, **parts)
    EXERCISES[exercise.name] = exercise
    return exercise


@functools.lru_cache(maxsize=4096)
def request_for(exercise, case, seed):
    """The request that puts `case` to an object; its cotangents have the shapes of the twin's outputs."""
    dtype = getattr(torch, case.dtype)
    source = draw.seed_of(seed, exercise.name, case.repeats or case.name)
    calls = [
        _call(exercise, specs, draw.seed_of(source, index), dtype)
        for index, specs in enumerate((case.args, *case.then))
    ]
    request = Request(
        kind=exercise.kind,
        name=exercise.name,
        calls=calls,
        dtype=case.dtype,
        default_dtype=case.default_dtype or case.dtype,
        train=case.train or case.kind == "chance",
        bans=list(exercise.bans),
        watch=case.watch,
        mutates=case.mutates,
        after=case.after,
        script=exercise.script,
        seconds=SECONDS,
        seed=draw.seed_of(source, "global"),
    )
    if exercise.kind != "function":
        request.init = _arguments(exercise, "__init__", case.init or {}, source, dtype)
    if exercise.is_module:
        request.weights = None if case.as_made else _weights(exercise, request.init, source, dtype)
        for name in request.weights or ():
            if name.startswith(case.zero or ("\0",)):
                request.weights[name].zero_()
    if exercise.grad and case.grad and exercise.library == "torch":
        request.cotangents = _cotangents(observe(exercise.expected, request), source)
    return request


@functools.lru_cache(maxsize=4096)
def truth(exercise, case, seed):
    """What observing the twin on this case gives; without chance (a module in eval mode)."""
    request = request_for(exercise, case, seed)
    return observe(exercise.expected, replace(request, train=request.train and case.kind != "chance"))


def _call(exercise, specs, seed, dtype):
    """One call of a request: its arguments; of an object the method, of a module too, where one is named."""
    if exercise.kind == "function" or "method" not in specs:
        return _arguments(exercise, "forward", specs, seed, dtype)
    specs = dict(specs)
    method = specs.pop("method")
    arguments = _arguments(exercise, method, specs, seed, dtype) if specs else {"args": {}, "options": {}}
    return {"method": method, **arguments}


def _arguments(exercise, method, specs, seed, dtype):
    """{"args": …, "options": …}: what has no default goes by position, in the twin's order, the rest by keyword."""
    target = exercise.expected if exercise.kind == "function" else getattr(exercise.expected, method)
    if exercise.script:
        target = scripts.SCRIPTS[exercise.script](exercise.expected)
    values = draw.draw_all(specs, seed, dtype, exercise.library)
    args = {}
    for name, parameter in inspect.signature(target).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL and name in values:
            args[f"*{name}"] = values.pop(name)
        elif parameter.default is parameter.empty and name in values:
            args[name] = values.pop(name)
    return {"args": args, "options": values}


def _weights(exercise, init, seed, dtype):
    """Random weights and biases by the twin's parameter names; nothing is 0 or 1, and softmax stays soft."""
    with free(), torch.random.fork_rng():
        try:
            twin = exercise.expected(
                *map(_real, init["args"].values()), **{key: _real(value) for key, value in init["options"].items()}
            )
        except ValueError:
            return None  # a case in which the constructor must refuse
    weights = {}
    for name, parameter in twin.named_parameters():
        fan_in = parameter.shape[-1] if parameter.dim() > 1 else 4
        drawn = draw.normal(*parameter.shape, std=fan_in**-0.5)
        weights |= draw.draw_all({name: drawn}, seed, dtype, "torch")
    return weights


def _real(value):
    return fixtures.build(value.name, value.options) if isinstance(value, Fixture) else value


def _cotangents(seen, seed):
    rows = []
    for index, call in enumerate(seen["calls"]):
        parts = parts_of(call["value"])
        shapes = [tuple(p.shape) for p in parts if isinstance(p, torch.Tensor) and p.is_floating_point()]
        rows.append([draw.cotangent(shape, seed, (index, place)) for place, shape in enumerate(shapes)])
    return rows
