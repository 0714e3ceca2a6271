"""Independent solutions of phase 2, as many as a test needs, and disguises for copies of them.

Half of all draws take the common way, since a lesson with hints leads most people to the same lines.
"""

import ast
import random
import re
from pathlib import Path

COMMON = 0.5
NAMES = {
    "s": ["scores", "s", "logits", "raw", "sim", "att_scores", "z", "dots"],
    "w": ["weights", "w", "attn", "probs", "a", "att", "attn_weights", "soft"],
    "m": ["mask", "m", "visible", "allowed", "keep", "vis", "ok"],
    "o": ["out", "result", "res", "output", "ret", "y", "mixed"],
    "d": ["d_head", "d", "dim", "width", "d_k", "dk_size", "size"],
    "t": ["total", "tot", "combined", "both", "acc", "final", "merged"],
    "i": ["i", "cut", "t", "pos", "n", "idx", "step"],
    "g": ["average", "avg", "dot", "inner", "row_sum", "mean_grad", "c"],
    "x": ["x", "inp", "data", "sample", "rand", "toks", "probe"],
}
WORDS = [
    [
        "must be bool",
        "needs a bool mask",
        "mask is not boolean",
        "expected torch.bool",
        "wrong dtype of mask",
        "bool only",
    ],
    ["d_head differs", "widths do not match", "q and k have different sizes", "bad d_head", "shape mismatch of q, k"],
    ["kv_len differs", "k and v have different lengths", "lengths do not match", "need as many values as keys"],
]


def _read():
    """exercise -> (its first line, the ways to go on)"""
    text = Path(__file__).with_name("independent_phase2.txt").read_text(encoding="utf-8")
    parts = [part.partition("\n") for part in text.split("\n=== ")[1:]]
    return {re.search(r"(?:def|class) (\w+)", head)[1]: (head, rest) for head, _, rest in parts}


SOLUTIONS = _read()


def student(seed):
    """{exercise: code} of one student who works alone."""
    draw = random.Random(seed)
    names = {key: draw.choice(options) for key, options in NAMES.items()}
    words = [draw.choice(options) for options in WORDS]
    return {name: f"{head}\n{_written(text, draw, names, words)}" for name, (head, text) in SOLUTIONS.items()}


def disguised(code, seed):
    """The same code after an evening of hiding it: new names and messages, other layout, comments."""
    draw, tree = random.Random(seed), ast.parse(code)
    mine = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    new = {
        name: f"{draw.choice('my your our the his her'.split())}_{name[0]}{draw.randint(1, 99)}"
        for name in sorted(mine)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = new.get(node.id, node.id)
        elif isinstance(node, ast.Raise):
            node.exc.args = [ast.Constant(f"no good: {draw.random():.3f}")]
    lines = ast.unparse(tree).splitlines()
    return "\n".join(
        line + (f"  # {draw.choice('now then see here note'.split())}" * (draw.random() < 0.3)) for line in lines
    )


def _written(text, draw, names, words):
    inner = re.compile(r"⟦([^⟦⟧]*)⟧")
    while inner.search(text):
        text = inner.sub(lambda found: _choice(found[1].split("¦"), draw), text)
    text = re.sub("¶([0-2])", lambda found: words[int(found[1])], text)
    return re.sub("§([a-z])", lambda found: names[found[1]], text)


def _choice(ways, draw):
    return ways[0] if draw.random() < COMMON else draw.choice(ways)
