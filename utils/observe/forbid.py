"""Ban an operation while a learner's object is observed, whatever name it is reached by.

Four nets: a torch-function mode (`F.…`, early imports, methods, `torch.ops`), a dispatch mode (aten operations,
scripted functions), patched constructors and methods of banned classes, and patched autograd entry points.
The course's own twins run free of the nets, except the twin of the exercise that is being observed.
"""

import contextlib
import functools
import inspect
import sys
import threading
import types
from contextvars import ContextVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

_ATTENTION = (
    "scaled_dot_product",
    "multi_head_attention",
    "transformer_encoder_layer",
    "flex_attention",
    "_safe_softmax",
)

BANS = {  # what an exercise may name in `forbid`: parts of operation names, and classes
    "attention": (_ATTENTION, (nn.MultiheadAttention,)),
    "softmax": (("softmax", "softmin"), (nn.Softmax, nn.LogSoftmax, nn.Softmax2d, nn.Softmin)),
    "autograd": (("_backward", "backward", "autograd_grad"), ()),
    "norms": (
        ("layer_norm", "rms_norm", "batch_norm", "group_norm", "instance_norm"),
        (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm),
    ),
    "gelu": (("gelu",), (nn.GELU,)),
    "losses": (
        ("cross_entropy", "nll_loss", "kl_div"),
        (nn.CrossEntropyLoss, nn.NLLLoss, nn.KLDivLoss),
    ),
    "optimisers": (("_fused_adam",), (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam)),
    "clipping": ((), ()),
    "bleu": ((), ()),
    "blocks": ((), (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.Transformer)),
}

_active = ContextVar("bans in force", default=None)  # a _Bans while a learner's object is observed
_free = ContextVar("a twin is running", default=False)


class Forbidden(RuntimeError):
    """Raised inside learner code that calls a banned operation."""


class _Bans:
    def __init__(self, groups, own_twin, shapes):
        self.parts = tuple(part for group in groups for part in BANS[group][0])
        self.classes = tuple(cls for group in groups for cls in BANS[group][1])
        self.doors = [door for group in groups for door in DOORS.get(group, tuple)()]
        self.own_twin, self.shapes = own_twin, shapes
        self.caught = None  # the first banned name that was called, even if the learner's code swallowed the error
        self._known = _KNOWN.setdefault(self.parts, {})
        self._up = False

    def refuse(self, name):
        self.caught = self.caught or name
        raise Forbidden(f"build this one yourself: {name} is off while your code is checked")

    def look(self, func):
        if id(func) in self._known or type(func) is types.MethodWrapperType or _free.get():
            return  # a method wrapper is the getter of a property
        name = _name_of(func)
        if any(part in name for part in self.parts):
            self.refuse(name)
        if type(func) in _LASTING and len(self._known) < 10_000:
            self._known[id(func)] = func

    @contextlib.contextmanager
    def nets(self):
        """The two modes: nothing but what runs in here is caught by them."""
        if not self.parts and self.shapes is None:
            yield
            return
        with _FunctionNet(self), _DispatchNet(self):
            self._up = True
            try:
                yield
            finally:
                self._up = False

    @contextlib.contextmanager
    def lifted(self):
        """Take the two modes down where they would only look away: each operation costs five times as much in them."""
        if not self._up or self.shapes is not None or not _ours_on_top():
            yield
            return
        self._up = False
        try:
            with torch.overrides._pop_mode_temporarily(), torch.utils._python_dispatch._pop_mode_temporarily():
                yield
        finally:
            self._up = True


_KNOWN = {}  # for each tuple of banned parts: id -> the operation itself (so that no other gets its id), if allowed
_LASTING = (  # kinds of operations of which there is one for each name, for as long as the process lives
    type(torch.add),
    type(torch.Tensor.add),
    type(torch.Tensor.__getitem__),
    torch._ops.OpOverload,
)


def _name_of(func):
    name = getattr(func, "__name__", None) or str(func)
    return str(name() if callable(name) else name).removesuffix(".default")


class _FunctionNet(TorchFunctionMode):
    def __init__(self, bans):
        super().__init__()
        self.bans = bans

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.bans.look(func)
        return func(*args, **(kwargs or {}))


class _DispatchNet(TorchDispatchMode):
    def __init__(self, bans):
        super().__init__()
        self.bans = bans

    @classmethod
    def _should_skip_dynamo(cls):
        """No: torch's wrapper around the method below takes longer than the method."""
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.bans.look(func)
        result = func(*args, **(kwargs or {}))
        shapes = self.bans.shapes
        if shapes is not None:
            for part in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(part, torch.Tensor) and part.is_floating_point() and part.dim() >= 2:
                    shapes.add(tuple(part.shape[-2:]))
        return result


@contextlib.contextmanager
def bans(groups=(), own_twin=None, shapes=None, all_along=True):
    """Put the nets up. Yields an object whose `.caught` is the first banned name called, or None.

    groups: names in BANS; own_twin: the exercise whose twin is off, or None; shapes: a set that receives the last
    two axes of every floating tensor made, or None; all_along: False if the modes are to be up in `.nets()` only.
    """
    rules = _Bans(groups, own_twin, shapes)
    with contextlib.ExitStack() as nets:
        nets.enter_context(_set(_active, rules))
        if all_along:
            nets.enter_context(rules.nets())
        for cls in rules.classes:
            for method in ("__init__", "forward"):
                if hasattr(cls, method):  # an optimiser has no forward
                    nets.enter_context(_patched(cls, method, rules, f"{cls.__module__.split('.')[1]}.{cls.__name__}"))
        own = "a thread of your own"  # modes see one thread; a Jupyter kernel has others, which may start more
        nets.enter_context(_patched(threading.Thread, "start", rules, own, only_in=threading.get_ident()))
        if names := [name for group in groups for name in IMPORTS.get(group, ())]:
            nets.enter_context(_shut(names, rules))
        for module, name, says in rules.doors:
            nets.enter_context(_patched(module, name, rules, says))
        yield rules


def _autograd_doors():
    """Every way into automatic differentiation, whatever has been imported by now."""
    yield torch.autograd, "_engine_run_backward", "autograd"
    yield torch.autograd.graph, "_engine_run_backward", "autograd"
    yield torch.autograd.forward_ad, "make_dual", "autograd"
    yield torch.autograd.forward_ad, "enter_dual_level", "autograd"


def _optimiser_doors():
    """What torch's own Adam and AdamW, and their functional forms, all come to."""
    for name in ("_single_tensor_adam", "_multi_tensor_adam", "_fused_adam"):
        yield sys.modules[torch.optim.Adam.__module__], name, "torch's own Adam"


def _clipping_doors():
    """What torch's own clip_grad_norm_ ends in, by whatever name it was imported."""
    yield torch.nn.utils.clip_grad, "_clip_grads_with_norm_", "torch's own clip_grad_norm_"


def _bleu_doors():
    """sacrebleu, where it is imported already."""
    loaded = sys.modules.get("sacrebleu.metrics.bleu")
    if loaded is not None:
        for method in ("__init__", "corpus_score", "sentence_score"):
            yield loaded.BLEU, method, "sacrebleu"


DOORS = {
    "autograd": _autograd_doors,
    "optimisers": _optimiser_doors,
    "clipping": _clipping_doors,
    "bleu": _bleu_doors,
}
IMPORTS = {"bleu": ("sacrebleu",)}  # what may not be imported for the first time: it is slow, nobody else needs it


class _Shut:
    """A finder before all others, by which no banned package is found."""

    def __init__(self, names, rules):
        self.names, self.rules = names, rules

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names and not _free.get():
            self.rules.refuse(name.partition(".")[0])


@contextlib.contextmanager
def _shut(names, rules):
    finder = _Shut(names, rules)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@contextlib.contextmanager
def _patched(owner, name, rules, says, only_in=None):
    """Refuse to call `owner.name`, in every thread or in one."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def guarded(*args, **kwargs):
        if not _free.get() and only_in in (None, threading.get_ident()):
            rules.refuse(says)
        return original(*args, **kwargs)

    setattr(owner, name, guarded)
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextlib.contextmanager
def _set(variable, value):
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextlib.contextmanager
def free():
    """Context in which no ban holds: for twins and fixtures."""
    rules = _active.get()
    with _set(_free, True), rules.lifted() if rules else contextlib.nullcontext():
        yield


def _ours_on_top():
    """Are the innermost modes of this thread the nets? A learner may have put one of their own above them."""
    functions = torch.overrides._get_current_function_mode()
    return isinstance(functions, _FunctionNet) and isinstance(_get_current_dispatch_mode(), _DispatchNet)


def refuse_while_observed(what):
    """Tools of the course that know answers do not work inside a learner's object while it is checked."""
    rules = _active.get()
    if rules is not None and not _free.get():
        rules.refuse(what)


def twin(answer):
    """Mark a function or class as the trusted twin of the exercise of its name: free of all nets but its own."""
    return _marked(answer, answer.__name__)


def lent(part):
    """Mark a class of the course that is handed to learners' code: what it does inside is not theirs."""
    return _marked(part, None)


def _marked(answer, exercise):
    if not inspect.isclass(answer):
        return _guard(answer, exercise)
    for method, function in list(vars(answer).items()):
        if inspect.isfunction(function) and (method == "__init__" or not method.startswith("_")):
            setattr(answer, method, _guard(function, exercise))
    return answer


def _guard(function, exercise):
    @functools.wraps(function)
    def guarded(*args, **kwargs):
        rules = _active.get()
        if rules is None or _free.get():
            return function(*args, **kwargs)
        if rules.own_twin is not None and rules.own_twin == exercise:
            rules.refuse(f"the course's own answer for {exercise}")
        with free():
            return function(*args, **kwargs)

    return guarded
