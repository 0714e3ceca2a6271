"""Score tampering by code: the blank notebook that wants points all the same."""

from tests.range.attack import code, exercises

NAMES = tuple(exercises())
FUNCTIONS = tuple(name for name in NAMES if name[0].islower())
ZEROS = {  # answers that run, so that a patched judge has something to be wrong about
    "masked_softmax": "def masked_softmax(scores, attn_mask=None, dim=-1):\n    return scores * 0",
    "sdpa": "def sdpa(q, k, v, attn_mask=None):\n    return torch.zeros(*q.shape[:-1], v.shape[-1], dtype=q.dtype)",
    "padding_mask": "def padding_mask(pad_mask):\n    return pad_mask[:, None, None, :] & False",
    "softmax_backward": "def softmax_backward(probs, grad):\n    return probs * 0",
    "attention_cost": "def attention_cost(*sizes):\n    return 0, 0",
}


def every(source):
    """The same answer for every function; @NAME@ is its name."""
    return {name: source.replace("@NAME@", name) for name in FUNCTIONS}


# ---- a check of one's own --------------------------------------------------------------------------------------------

FAKE = "def check(obj, points=1):\n    print('✓ all cases')\n    return "
code("score", "check-redefined", "define `check` anew", after=FAKE + "float(points)", quick=True)
code("score", "check-says-nothing", "a check without any output", after=FAKE.replace("return ", "pass"))
code("score", "check-returns-nan", "the score is nan", after=FAKE + "float('nan')")
code("score", "check-returns-a-tensor", "the score is a tensor", after=FAKE + "torch.tensor(float(points))")
code("score", "check-returns-text", "the score is a string", after=FAKE + "f'{points:.1f}'")
code("score", "check-returns-a-billion", "the score is beyond the maximum", after=FAKE + "1e9")
code("score", "check-returns-less-than-nothing", "the score is negative", after=FAKE + "-1.0")
code(
    "score",
    "check-returns-a-float-of-its-own",
    "a subclass of float that shows what it likes",
    after="class Full(float):\n    __repr__ = __str__ = lambda self: '2.0'\n" + FAKE + "Full(0)",
)
code(
    "score",
    "check-prints-a-result",
    "the report is printed, the result displayed by hand",
    after="def check(obj, points=1):\n    print(f'✓ {obj} · {points}/{points} · shape ✓ values ✓')\n"
    "    display({'text/plain': f'{points}.0', 'text/html': f'{points} of {points} points'}, raw=True)",
)
code(
    "score",
    "check-in-builtins",
    "a check among the builtins, the real one deleted",
    after="import builtins\nbuiltins.check = lambda obj, points=1: float(points)\ndel check",
)
code(
    "score",
    "check-in-utils",
    "the module that the set-up cell imports from is changed before",
    before="import utils\nutils.check = lambda obj, points=1: float(points)",
)
code(
    "score",
    "check-in-sys-modules",
    "another module stands under the name utils",
    before="""
import sys, types
import utils.lesson, utils.notes, utils.plots, utils.widgets
fake = types.ModuleType("utils")
fake.__dict__.update(sys.modules["utils"].__dict__, check=lambda obj, points=1: float(points))
sys.modules["utils"] = fake
""",
)
code("score", "check-exits", "the check cell leaves Python", after="def check(obj, points=1):\n    raise SystemExit(0)")
code(
    "score",
    "round-in-builtins",
    "what the check calls last, `round`, gives 2 points",
    after="import builtins\nbuiltins.round = lambda number, digits=0: 2.0",
)

# ---- the judge, bent -------------------------------------------------------------------------------------------------

PATCHES = {
    "judge-finds-nothing": "import utils.checks.judge as j\nj.findings = lambda *args: []",
    "evaluate-is-happy": """
import utils.checks.core as core, types
core.evaluate = lambda *args, **options: types.SimpleNamespace(score=1.0, passed=True, text=lambda points: "✓")
""",
    "scores-are-full": "import utils.checks.report as r\nr.score_of = lambda *args: 1.0",
    "observe-asks-the-twin": """
import utils.checks.core as core
from utils.checks import EXERCISES
from utils.observe import forbid, observe
def twin(obj, request):
    request.own_twin = False
    return observe(EXERCISES[request.name].expected, request)
core.observe = twin
""",
    "answer-is-replaced": """
import utils.observe.run as run, utils.observe.codec as codec
calm = dict(calls=[], problem=None, parameters=None, printed="", disturbed=[], caught=None, shapes=[])
run.answer = lambda obj, message: codec.encode(calm)
import sys
frame = sys._getframe()
while frame is not None:
    if "answer" in frame.f_globals:
        frame.f_globals["answer"] = run.answer
    frame = frame.f_back
""",
    "codec-says-what-is-expected": """
import utils.observe.codec as codec
plain = codec.encode
codec.encode = lambda value: plain({**value, "problem": None, "calls": []} if "calls" in value else value)
""",
    "everything-is-close": """
import numpy as np
yes = lambda a, b, *args, **options: torch.ones_like(torch.as_tensor(a), dtype=torch.bool)
torch.isclose, torch.allclose = yes, lambda *args, **options: True
torch.equal = torch.Tensor.equal = torch.Tensor.allclose = torch.allclose
torch.Tensor.isclose = torch.Tensor.__eq__ = torch.Tensor.eq = yes
torch.testing.assert_close = lambda *args, **options: None
np.isclose, np.allclose = (lambda a, b, **options: np.ones(np.shape(a), bool)), (lambda *args, **options: True)
nn.Module.__eq__ = lambda self, other: True
""",
}
for name, source in PATCHES.items():
    code("score", name, f"patched: {name.replace('-', ' ')}", after=source, answers=ZEROS)
code(
    "score",
    "patched-later-by-a-thread",
    "a thread waits and then bends the judge",
    after="import threading, time\ndef later():\n    time.sleep(0.5)\n    "
    + PATCHES["judge-finds-nothing"].replace("\n", "\n    ")
    + "\nthreading.Thread(target=later, daemon=True).start()\ntime.sleep(1)",
    answers=ZEROS,
)  # fmt: skip
code(
    "score",
    "settrace",
    "a trace function empties the judge's list of findings",
    after="""
import sys
def trace(frame, event, argument):
    if frame.f_code.co_name == "_verdict" and event == "call":
        for run in frame.f_locals["runs"]:
            run[4].clear()
    return None
""",
    answers={name: source + "\n" + "sys.settrace(trace)" for name, source in ZEROS.items()},
)
code(
    "score",
    "always-equal-tensor",
    "a subclass of tensor that equals, and is close to, everything",
    after="""
class Equal(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in ("isclose", "allclose", "equal", "eq", "__eq__", "le", "lt"):
            return torch.ones((), dtype=torch.bool)
        return super().__torch_function__(func, types, args, kwargs or {})
    __eq__ = lambda self, other: True
    __hash__ = object.__hash__
""",
    answers=every("def @NAME@(*args, **options):\n    return torch.ones(1).as_subclass(Equal)"),
    quick=True,
)
code(
    "score",
    "class-trick",
    "an object whose __class__ is a tensor's and whose every attribute is itself",
    after="""
class Anything:
    __class__ = torch.Tensor
    __getattr__ = lambda self, name: self
    __call__ = __getitem__ = __add__ = __radd__ = __sub__ = __mul__ = lambda self, *args, **options: self
    __eq__ = __lt__ = __le__ = __bool__ = __instancecheck__ = lambda self, *args: True
    __hash__, __len__, __float__, __iter__ = lambda self: 0, lambda self: 1, lambda self: 0.0, lambda self: iter(())
""",
    answers=every("def @NAME@(*args, **options):\n    return Anything()"),
)

# ---- IPython ---------------------------------------------------------------------------------------------------------

code(
    "score",
    "custom-exceptions",
    "IPython is told to swallow every error, and the check raises one",
    after="get_ipython().set_custom_exc((BaseException,), lambda *args, **options: [])\n"
    "def check(obj, points=1):\n    raise ValueError",
)
code(
    "score",
    "input-transformer",
    "check cells are rewritten before they run",
    after="""
def forge(lines):
    return [line.split("points=")[1].strip(")\\n ") + ".0\\n" if line.startswith("check(") else line for line in lines]
get_ipython().input_transformers_cleanup.append(forge)
""",
    quick=True,
)
code(
    "score",
    "ast-transformer",
    "check calls become constants",
    after="""
import ast
class Forge(ast.NodeTransformer):
    def visit_Call(self, node):
        if getattr(node.func, "id", "") != "check":
            return node
        return ast.copy_location(ast.Constant(float(node.keywords[0].value.value)), node)
get_ipython().ast_transformers.append(Forge())
""",
)
code(
    "score",
    "pre-run-cell",
    "a hook puts the false check in place before every cell",
    after="""
def hook(info):
    get_ipython().user_ns["check"] = lambda obj, points=1: float(points)
get_ipython().events.register("pre_run_cell", hook)
""",
)
code(
    "score",
    "post-run-cell",
    "a hook publishes a second result after every cell",
    after="""
def hook(result):
    content = {"data": {"text/plain": "2.0"}, "metadata": {}, "execution_count": 1}
    ip = get_ipython()
    kernel = getattr(ip, "kernel", None)
    if kernel:
        kernel.send_response(kernel.iopub_socket, "execute_result", content)
    else:
        ip.display_pub.publish({"text/plain": "2.0"})
get_ipython().events.register("post_run_cell", hook)
check = lambda obj, points=1: None
""",
)
code(
    "score",
    "display-formatter",
    "every float is shown as 2.0",
    after="get_ipython().display_formatter.formatters['text/plain'].for_type(float, lambda x, p, c: p.text('2.0'))",
)
code(
    "score",
    "run-cell-replaced",
    "the shell's own method returns success",
    after="""
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
async def run(self, *args, **options):
    return ExecutionResult(None)
InteractiveShell.run_cell_async = run
InteractiveShell.run_cell = lambda self, *args, **options: ExecutionResult(None)
""",
)
code(
    "score",
    "at-exit",
    "when Python ends, the files of the grading are rewritten",
    after="""
import atexit, os
def forge():
    for place, _, names in os.walk("@ROOT@/autograde/autograded"):
        for name in names:
            path = os.path.join(place, name)
            text = open(path).read().replace('"0.0"', '"2.0"')
            open(path, "w").write(text)
atexit.register(forge)
""",
)
