"""`observe(obj, request)`: call the object as asked and write down what happened, without any opinion about it."""

import contextlib
import linecache
import math
import os
import traceback
from dataclasses import dataclass, field
from functools import cache

import torch
from torch import nn

from utils.observe import codec, fixtures, forbid, layout, limits, scripts
from utils.observe.effects import bytes_held, learning_held, parts_of, same, shares, snapshot

HELD = {"held": bytes_held, "learning": learning_held}  # what `mutates` may ask of an object between calls
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@dataclass
class Request:
    """Everything the observing side needs for one case; plain data only.

    kind        "function", "module" or "object" (of a class that is no module: each call says which "method")
    name        the exercise, whose own twin is off while it is observed
    calls       list of {"args": {name: value}, "options": {name: value}}, made in this order on one object;
                args go by position, options by keyword
    init        the same for the constructor of a module or object
    weights     {"w_q.weight": tensor, …} to be loaded into a module, or None
    cotangents  one list of tensors per call (one per floating output), or None: no gradients are taken
    bans        groups of `forbid.BANS`; own_twin: whether the course's own answer is banned, too
    watch       whether the shapes of all floating tensors made are reported
    mutates     the argument whose state after the call is reported as the value; "self": the module; "held": the
                bytes of all tensors that the object keeps; "learning": names of those a gradient may reach; "": none
    after       "spoil": tensors handed over are overwritten after each call; "keep": an earlier answer that a later
                call changes is reported
    script      a name in `scripts.SCRIPTS`, or "": what plays with the object and is called in its place
    """

    kind: str
    name: str
    calls: list
    init: dict | None = None
    weights: dict | None = None
    cotangents: list | None = None
    dtype: str = "float64"
    default_dtype: str = ""  # torch's default while it lasts; "" means dtype
    train: bool = False
    bans: list = field(default_factory=list)
    own_twin: bool = False
    watch: bool = False
    mutates: str = ""
    after: str = ""
    script: str = ""
    seconds: float = 10.0  # for one call
    seed: int = 0


def observe(obj, request):
    """Plain data about running `obj` as `request` asks: the only thing a judge ever sees of a learner's object.

    Returns a dict: `calls` (one dict each: `raised`, `value`, `grads`, `weight_grads`, `changed`, `shares`),
    `problem` (why there are no calls, or None), `parameters` (count), `printed`, `disturbed`, `caught`, `shapes`.
    It went through `codec`, so that live and sandboxed runs are judged alike. Never raises for what `obj` does.
    """
    return codec.decode(answer(obj, codec.encode(vars(request))))


def answer(obj, message, put_back=True):
    """`observe` as it crosses a process boundary: an encoded request in, an encoded observation out.

    put_back: whether random states and the like are to be as before; False is for a process that does nothing else.
    """
    asked = Request(**codec.decode(message))
    seen = nothing_seen()
    shapes = set() if asked.watch else None
    if asked.cotangents is not None:
        first_gradient()
    if asked.script in scripts.WITH_OPTIMISER:
        first_optimiser()
    with (
        limits.captured(seen),
        limits.global_state(getattr(torch, asked.default_dtype or asked.dtype), asked.seed, seen, put_back),
        forbid.bans(asked.bans, asked.name if asked.own_twin else None, shapes, all_along=asked.watch) as rules,
    ):
        run = _Run(obj, asked, seen, contextlib.nullcontext if asked.watch else rules.nets)
        try:
            run.go()
        except _ANYTHING as error:  # a learner's object may fail at any touch: its state, its parameters, its name
            seen["problem"] = {"kind": "raised", **run.raised(error)}
    seen["caught"] = rules.caught
    seen["shapes"] = sorted(shapes or ())
    try:
        return codec.encode(seen)
    except codec.CodecError as error:
        seen.update(calls=[], problem={"kind": "too much", "message": f"the answer cannot be read: {error}"})
        return codec.encode(seen)


def nothing_seen(problem=None):
    """An observation in which nothing was called."""
    return {
        "calls": [],
        "problem": problem,
        "parameters": None,
        "printed": "",
        "disturbed": [],
        "caught": None,
        "shapes": [],
    }


# what learner code may raise; KeyboardInterrupt is the learner's own wish to stop
_ANYTHING = (Exception, limits.TookTooLong, SystemExit, GeneratorExit)


@cache
def first_gradient():
    """torch imports parts of itself at the first gradient, seconds on a busy machine: not in the learner's time."""
    x = torch.ones((), requires_grad=True)
    torch.autograd.grad(x, x)


@cache
def first_optimiser():
    """The same with the first optimiser, of whatever kind."""
    torch.optim.SGD([nn.Parameter(torch.ones(()))])


class _Run:
    """One request. `nets` makes the context for what a learner wrote; our own copying and comparing need none."""

    def __init__(self, obj, asked, seen, nets):
        self.obj, self.asked, self.seen, self.nets = obj, asked, seen, nets
        self.dtype = getattr(torch, asked.dtype)
        self.handed = {}  # {argument: (value, snapshot)} of an object's constructor: not to be changed later, either
        self.built = {}  # generators and fixtures of this request: equal ones are one object
        self.lent = {}  # {"w_o.weight": parameter} of the modules handed to a function
        self.answers = []  # (snapshot, part) of what earlier calls gave, where it has to stay as it was

    def go(self):
        target, module = self.obj, None
        if self.asked.kind == "module":
            module = target = self._module()
            if module is None:
                return
        elif not callable(target):
            self._problem("type", f"a {self.asked.kind} is expected here, this is {_a(target)}")
            return
        elif self.asked.script:
            target = scripts.SCRIPTS[self.asked.script](target)
        elif self.asked.kind == "object":
            target = self._object()
            if target is None:
                return
        self.thing = target
        for index, call in enumerate(self.asked.calls):
            self.seen["calls"].append(self._call(target, module, call, index))
            raised = self.seen["calls"][-1]["raised"]
            if raised and not (self.asked.kind == "object" and "ValueError" in raised["is"]):
                break  # of an object, a refusal ends nothing: it is to work as before

    def _module(self):
        """The learner's module, moved to the run's dtype and filled, or None with `problem` set."""
        if not isinstance(self.obj, type) or not issubclass(self.obj, nn.Module):
            self._problem("type", f"a class that inherits from nn.Module is expected here, this is {_a(self.obj)}")
            return None
        args, options = self._materialise(self.asked.init)
        before = {key: (value, snapshot(value)) for key, value in {**args, **options}.items() if _is_module(value)}
        try:
            state, seed = torch.get_rng_state(), torch.initial_seed()
            with limits.time_limit(self.asked.seconds), self.nets():
                module = self.obj(*args.values(), **options).to(self.dtype)
                self._fill(module)
            if torch.initial_seed() == seed:
                torch.set_rng_state(state)  # drawing initial weights is a module's right, seeding is not
        except _WrongLayout as error:
            torch.set_rng_state(state)
            self._problem("weights", str(error))
            return None
        except _ANYTHING as error:
            if torch.initial_seed() == seed:
                torch.set_rng_state(state)  # it may refuse after its layers were made
            self.seen["problem"] = {"kind": "raised", **self.raised(error)}
            return None
        self.seen["parameters"] = sum(parameter.numel() for parameter in module.parameters())
        module.train(self.asked.train)
        parts = set(module.modules())  # what became a part of it may change with it
        self.handed = {key: pair for key, pair in before.items() if pair[0] not in parts}
        return module

    def _object(self):
        """The learner's object, made by its class, or None with `problem` set."""
        args, options = self._materialise(self.asked.init)
        self.handed = {key: (value, snapshot(value)) for key, value in {**args, **options}.items()}
        try:
            with limits.time_limit(self.asked.seconds), self.nets():
                return self.obj(*args.values(), **options)
        except _ANYTHING as error:
            self.seen["problem"] = {"kind": "raised", **self.raised(error)}
            return None

    def _fill(self, module):
        if self.asked.weights is None:
            return
        weights = {name: weight.clone() for name, weight in self.asked.weights.items()}
        if hasattr(module, "load_weights"):
            with torch.no_grad():
                module.load_weights(weights)
            return
        own, loaders = layout.addresses(module), layout.loaders(module)
        for prefix, loader in loaders.items():
            with torch.no_grad():
                loader.load_weights({name[len(prefix) :]: weights[name] for name in weights if name.startswith(prefix)})
        for name, weight in weights.items():
            if name.startswith(tuple(loaders)):
                continue
            if name not in own:
                raise _WrongLayout(
                    f"there is no parameter {name}: name the layers as the text asks, or write load_weights"
                )
            if own[name].shape != weight.shape:
                raise _WrongLayout(f"{name} has shape {tuple(own[name].shape)}, {tuple(weight.shape)} is expected")
            with torch.no_grad():
                own[name].copy_(weight)

    def _call(self, target, module, call, index):
        notes = dict.fromkeys(("raised", "value", "grads", "weight_grads"))
        notes |= {"changed": [], "shares": []}
        args, options = self._materialise(call)
        named = {**args, **options}
        leaves = {}
        if self.asked.cotangents is not None:
            leaves = {key: value.requires_grad_() for key, value in named.items() if _floating(value)}
            # not leaves: a learner who writes into an argument is told so, instead of torch's RuntimeError
            named |= {key: leaf.clone() for key, leaf in leaves.items()}
        self.lent = _parameters_of(named) if module is None else {}
        before = {key: snapshot(value) for key, value in named.items()}
        state = snapshot(module) if module is not None else None
        positional = [part for key in args for part in (named[key] if key.startswith("*") else [named[key]])]
        try:
            with limits.time_limit(self.asked.seconds):
                with self.nets():
                    if "method" in call:
                        target = _part(target, call)
                    result = target(*positional, **{key: named[key] for key in options})
                    changed = {**named, "self": module}.get(self.asked.mutates)
                    shown = result if changed is None else dict(changed.state_dict())
                    shown = HELD[self.asked.mutates](self.thing) if self.asked.mutates in HELD else shown
                    value = codec.encode(shown)  # a result may bring code of its own
                notes["value"] = codec.decode(value)
                if self.asked.cotangents is not None:
                    self._gradients(result, leaves, module, self.asked.cotangents[index], notes)
        except _ANYTHING as error:
            notes["raised"] = self.raised(error)
            result = None
        kept = {key: value for key, value in named.items() if key != self.asked.mutates}
        notes["changed"] = [key.lstrip("*") for key, value in kept.items() if not same(before[key], value)]
        notes["changed"] += [key for key, (value, was) in self.handed.items() if not same(was, value)]
        if module is not None and not same(state, module):
            notes["changed"].append("the module's own state or train/eval flag")
        notes["shares"] = [key for key, value in named.items() if shares(result, value)]
        self._afterwards(result, named.values(), notes)
        return notes

    def _afterwards(self, result, handed, notes):
        """What `after` asks for between two calls."""
        if self.asked.after == "spoil":
            for value in filter(_floating, handed):
                value.fill_(math.nan)
        elif self.asked.after == "keep":
            if not all(same(was, part) for was, part in self.answers):
                notes["changed"].append("an earlier answer")
            self.answers += [(snapshot(part), part) for part in parts_of(result)]

    def _gradients(self, result, leaves, module, cotangents, notes):
        outputs = [part for part in parts_of(result) if _floating(part)]
        weights = layout.addresses(module) if module is not None else self.lent
        wanted = [*leaves.values(), *weights.values()]
        fits = [tuple(part.shape) for part in outputs] == [tuple(part.shape) for part in cotangents]
        if not fits:
            return
        pairs = [(part, up.to(part.dtype)) for part, up in zip(outputs, cotangents, strict=True) if part.requires_grad]
        found = [None] * len(wanted)
        if pairs:
            with forbid.free():
                ends, ups = zip(*pairs, strict=True)
                found = torch.autograd.grad(ends, wanted, ups, allow_unused=True)
        notes["grads"] = dict(zip(leaves, found, strict=False))
        if hasattr(module, "load_weights"):
            reached = [grad is not None for grad in found[len(leaves) :]]
            notes["weight_grads"] = {"every parameter": all(reached)}
        elif module is not None:
            own, loaders = dict(zip(weights, found[len(leaves) :], strict=True)), tuple(layout.loaders(module))
            if loaders:  # the names below a part that loads itself are the learner's own
                own = {name: grad for name, grad in own.items() if not name.startswith(loaders)}
                own["every parameter"] = all(grad is not None for grad in found[len(leaves) :])
            notes["weight_grads"] = own
        elif self.lent:
            notes["weight_grads"] = dict(zip(weights, found[len(leaves) :], strict=True))

    def _materialise(self, call):
        """(args, options) with generators and fixtures in place of what stands for them."""

        def real(value):
            if isinstance(value, (codec.Generator, codec.Fixture)):
                key = repr(value)
                if key not in self.built:
                    self.built[key] = self._build(value)
                getattr(self.built[key], "handed_over", int)()  # a fixture that changes from call to call
                return self.built[key]
            return value

        return tuple({key: real(value) for key, value in call[part].items()} for part in ("args", "options"))

    def _build(self, value):
        if isinstance(value, codec.Generator):
            return torch.Generator().manual_seed(value.seed)
        with forbid.free():
            built = fixtures.build(value.name, value.options)
        return built.to(self.dtype) if isinstance(built, nn.Module) else built

    def _problem(self, kind, message):
        self.seen["problem"] = {"kind": kind, "message": message}

    def raised(self, error):
        """An exception as plain data."""
        if isinstance(error, limits.TookTooLong):
            return {"type": "TookTooLong", "is": [], "message": f"stopped after {self.asked.seconds:g} s", "where": ""}
        return {
            "type": type(error).__name__,
            "is": [cls.__name__ for cls in type(error).__mro__],
            "message": _text_of(error),
            "where": _where(error),
        }


def _parameters_of(named):
    modules = {key: value for key, value in named.items() if isinstance(value, nn.Module)}
    return {f"{key}.{name}": part for key, value in modules.items() for name, part in value.named_parameters()}


class _WrongLayout(Exception):
    """The module's parameters cannot be filled by name."""


def _part(target, call):
    """What a call asks of an object: its method; where nothing is handed over, a function that gives the attribute."""
    part = getattr(target, call["method"])
    return part if call["args"] or call["options"] else lambda: part


def _text_of(error):
    try:
        return str(error)
    except Exception:
        return "(it cannot say what it is)"


def _where(error):
    """The learner's own line that failed, as "cell or file, line n: code"; "" if none of the frames is theirs."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        if path.startswith(_OURS) or f"{os.sep}site-packages{os.sep}" in path:
            continue
        linecache.checkcache(path)
        code = linecache.getline(path, line, frame.f_globals).strip()
        return f"line {line} of {name}: {code}" if code else f"line {line} of {name}"
    return ""


def _a(value):
    return f"an object of type {type(value).__name__}" if not isinstance(value, type) else f"the class {value.__name__}"


def _is_module(value):
    return isinstance(value, nn.Module)


def _floating(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()
