"""`workbook export`: the learner's own parts as one file, my_transformer.py, that runs without the course.

Each part is taken as text out of the notebook it was written in, with the helpers and imports it needs. A part that
does not pass its check is the course's own; the file says which is whose.
"""

import ast
import io
import re
import textwrap
import tokenize
from dataclasses import dataclass, field
from pathlib import Path

from utils import config, oracle
from utils.definitions import definitions_of, parsed, read_cells, required
from utils.mycode import notebook_of, own
from utils.syllabus import syllabus

ROOTS = (  # what the file offers; all else comes along because one of these needs it
    *("Tokenizer", "Transformer", "GPT", "init_weights", "count_parameters"),
    *("shift_targets", "cross_entropy", "perplexity", "AdamW", "learning_rate", "clip_grad_norm_", "train_step"),
    *("KVCache", "forward_cached", "filter_logits", "sample", "greedy_decode", "generate"),
)
RULE = "# " + "-" * 98
LEFT_OUT = re.compile(r"\s*(# YOUR CODE HERE|### (BEGIN|END) SOLUTION)\s*")


class CannotExport(Exception):
    """A part cannot stand alone; the text says which and why."""


@dataclass
class Part:
    """One exercise: whose version, the text of its definition and helpers, the exercises and imports it leans on."""

    name: str
    origin: str
    pieces: list = field(default_factory=list)  # (names bound, source)
    imports: list = field(default_factory=list)  # lines
    needs: set = field(default_factory=set)


@dataclass(frozen=True)
class Exported:
    """The text of the file, and which parts in it are the learner's."""

    text: str
    mine: tuple
    courses: tuple


def export(roots=ROOTS):
    """Put the file together, in memory. Raises CannotExport."""
    tasks, parts, order = syllabus(), {}, []
    for name in roots:
        if name in tasks:
            _collect(name, tasks, parts, order)
    taken, body = {}, []
    for part in order:
        body.append(_written(part, taken))
    imports = {line for part in order for line in part.imports} | {"import torch", "from torch import nn"}
    imports = sorted(imports, key=lambda line: (line.startswith("from"), line))
    mine = tuple(part.name for part in order if part.origin.startswith("yours"))
    courses = tuple(part.name for part in order if part.name not in mine)
    future = [line for line in imports if "__future__" in line]
    head = [*future, *(line for line in imports if line not in future), "from dataclasses import dataclass"]
    text = "\n\n\n".join([_title(mine, courses), "\n".join(head), _config(), *body, DEMO]) + "\n"
    return Exported(text, mine, courses)


def _collect(name, tasks, parts, order):
    """Add an exercise to the order, after all that it needs."""
    if name in parts:
        return
    part = parts[name] = _part(name, tasks)
    for other in sorted(part.needs, key=list(tasks).index):
        _collect(other, tasks, parts, order)
    order.append(part)


def _part(name, tasks):
    """The learner's version, where it passes its check; else the course's."""
    obj, reason = own(name)
    if obj is not None:
        path = notebook_of(tasks[name].phase)
        return _extracted(name, read_cells(path), tasks, f"yours, from {path.name}")
    twin = getattr(oracle, name, None)
    if twin is None:
        raise CannotExport(f"{name}: {reason}, and the course's own is not part of this copy.")
    module = Path(oracle.__file__).with_name(f"{twin.__module__.rpartition('.')[2]}.py")
    source = parsed(1, module.read_text(encoding="utf8"))
    return _extracted(name, [source], tasks, f"the course's own, because {reason}")


def _extracted(name, cells, tasks, origin):
    part = Part(name, origin)
    others = tasks.keys() - {name}
    definitions = [one for one in definitions_of(cells, name) if not one.binds & others]
    for one in required(name, definitions):
        part.needs |= (one.now | one.later) & others
        if isinstance(one.node, ast.Import | ast.ImportFrom):
            part.imports += _imports(one.node, name)
        else:
            part.pieces.append((one.binds, _text(one)))
    return part


def _imports(node, name):
    """An import, a line for each name; those of the course must not be needed, but for the sizes of a model."""
    module = getattr(node, "module", None) or ""
    if module.partition(".")[0] == "utils" or any(alias.name.partition(".")[0] == "utils" for alias in node.names):
        spared = {"ModelConfig", "twin", "mine"}
        if needed := [alias.name for alias in node.names if alias.name not in spared]:
            raise CannotExport(f"{name} uses {', '.join(needed)} of the course and cannot stand alone.")
        return []
    start = f"from {module} import " if isinstance(node, ast.ImportFrom) else "import "
    return [start + alias.name + (f" as {alias.asname}" if alias.asname else "") for alias in node.names]


def _text(definition):
    """The lines of a definition as they were written, without the mark of a twin."""
    node = definition.node
    marks = [one for one in getattr(node, "decorator_list", []) if ast.unparse(one) == "twin"]
    first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
    lines = definition.cell.source.splitlines()
    kept = [
        line
        for number, line in enumerate(lines[first - 1 : node.end_lineno], first)
        if number not in {mark.lineno for mark in marks} and not LEFT_OUT.fullmatch(line)
    ]
    return "\n".join(kept)


def _written(part, taken):
    """The text of a part. A helper that is there already is left out; one of the same name but another text is renamed.

    taken: {name: text} of what the file binds so far
    """
    renamed, texts = {}, []
    for binds, text in part.pieces:
        for name in binds - {part.name}:
            if taken.get(name, text) != text:
                renamed[name] = f"{name}_of_{part.name}"
    for binds, text in part.pieces:
        if part.name not in binds and all(taken.get(name) == text for name in binds):
            continue
        taken |= {name: text for name in binds if name not in renamed}
        texts.append(_rename(text, renamed) if renamed else text)
    return "\n\n\n".join([f"{RULE}\n# {part.name} · {part.origin}", *texts])


def _rename(text, names):
    """The text with these names replaced: not attributes, not keywords of a call, not inside strings or comments."""
    tokens, result, depth = list(tokenize.generate_tokens(io.StringIO(text).readline)), [], 0
    for place, token in enumerate(tokens):
        depth += (token.string in "([{") - (token.string in ")]}") if token.type == tokenize.OP else 0
        keyword = depth and tokens[place + 1].string == "=" if place + 1 < len(tokens) else False
        attribute = place and tokens[place - 1].string == "."
        if token.type == tokenize.NAME and token.string in names and not keyword and not attribute:
            result.append((token.start, token.end, names[token.string]))
    lines = text.splitlines()
    for (row, begin), (_, end), new in reversed(result):
        lines[row - 1] = lines[row - 1][:begin] + new + lines[row - 1][end:]
    return "\n".join(lines)


def _config():
    """ModelConfig, as the course has it."""
    source = Path(config.__file__).read_text(encoding="utf8")
    node = next(one for one in ast.parse(source).body if getattr(one, "name", "") == "ModelConfig")
    first = min(one.lineno for one in node.decorator_list)
    return "\n".join(source.splitlines()[first - 1 : node.end_lineno])


def _title(mine, courses):
    lines = [
        '"""My Transformer, built part by part in the Transformer Workbook. It needs torch and NumPy, nothing else.',
        "",
    ]
    lines.append(f"Mine ({len(mine)}): {', '.join(mine) or 'none yet'}.")
    if courses:
        lines.append(f"The course's own ({len(courses)}), until mine pass: {', '.join(courses)}.")
    lines += ["", "python my_transformer.py trains a small GPT on rows that follow a rule, and lets it write.", '"""']
    return "\n".join(_wrapped(line) for line in lines)


def _wrapped(line):
    return textwrap.fill(line, 118) if line else line


DEMO = '''
def rows(batch, length, generator):
    """Rows that follow one rule: three times the last number plus one, modulo 17."""
    row = [torch.randint(0, 17, (batch,), generator=generator)]
    while len(row) < length:
        row.append((3 * row[-1] + 1) % 17)
    return torch.stack(row, 1)


def main(steps=100):
    """Train, print the loss, continue three rows. Returns the losses."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = GPT(ModelConfig(vocab_size=17, d_model=48, n_heads=4, n_layers=2, d_ff=96, max_len=24))
    init_weights(model, std=0.02, n_layers=2)
    optimizer, losses = AdamW(model.parameters(), lr=1e-3), []
    for step in range(steps):
        optimizer.lr = learning_rate(step + 1, peak=5e-3, warmup=10, total=max(steps, 20), floor=1e-4)
        tokens = rows(32, 16, generator)
        losses.append(train_step(model, optimizer, [(tokens[:, :-1], tokens[:, 1:])], max_norm=1.0))
        if step % 20 == 0 or step == steps - 1:
            print(f"step {step:4}  loss {losses[-1]:.3f}")
    prompt = rows(3, 6, generator)
    for row in generate(model, prompt, 8, top_k=1, generator=generator).tolist():
        print(*row[:6], "→", *row[6:])
    return losses


if __name__ == "__main__":
    import sys

    main(*map(int, sys.argv[1:2]))
'''.strip()
