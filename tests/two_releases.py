"""Two releases of one small lesson, and what a learner made of the first."""

import copy

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

NAME = "phase2_attention/phase2_attention.ipynb"


def text(name, source):
    return new_markdown_cell(source, id=name)


def code(name, source, **metadata):
    return new_code_cell(source, id=name, metadata=metadata)


def graded(name, source, points=None, **flags):
    meta = {"grade_id": name, "schema_version": 3, "grade": False, "solution": False, "locked": False, "task": False}
    meta |= flags | ({"points": points} if points else {})
    cell = new_markdown_cell(source, id=name) if name.startswith("why") else new_code_cell(source, id=name)
    cell.metadata["nbgrader"] = meta
    return cell


def solution(name, source="raise NotImplementedError()"):
    return graded(f"{name}-build", f"def {name}(x):\n    {source}", solution=True)


def check(name, points=4):
    return graded(name, f"check({name}, points={points})", points, grade=True, locked=True)


def first_release():
    return new_notebook(
        cells=[
            text("title", "# Attention"),
            text("sdpa-idea", "## Mixing values"),
            solution("sdpa"),
            check("sdpa"),
            code("look", "plots.show(sdpa)", tags=["demo"]),
            graded("why-scale", "YOUR ANSWER HERE", 3, grade=True, solution=True),
            text("reflect-sdpa", "Was your prediction right?"),
            solution("old_mask"),
            check("old_mask"),
            text("recap", "Recap."),
        ]
    )


def second_release():
    """Another text, another check, one exercise gone, one new."""
    release = first_release()
    cells = {cell.id: cell for cell in release.cells}
    cells["sdpa-idea"].source = "## Mixing values, better told"
    cells["sdpa"] = check("sdpa", 5)
    new = [solution("causal_mask"), check("causal_mask")]
    order = ["title", "sdpa-idea", "sdpa-build", "sdpa", "look", "why-scale", "reflect-sdpa", *new, "recap"]
    release.cells = [cells[item] if isinstance(item, str) else item for item in order]
    return release


def solved(release):
    """What a learner made of the first release: half of it solved, with an added cell and run outputs."""
    mine = copy.deepcopy(release)
    cells = {cell.id: cell for cell in mine.cells}
    cells["sdpa-build"].source = "def sdpa(x):\n    return x  # mine"
    cells["sdpa-build"].execution_count = 7
    cells["look"].outputs = [new_output("stream", text="a picture")]
    cells["why-scale"].source = "Because of the variance."
    cells["reflect-sdpa"].source = "It was sharper, as I said."
    cells["old_mask-build"].source = "def old_mask(x):\n    return None  # mine as well"
    mine.cells.insert(4, code("my-try", "sdpa(3)"))
    return mine


def put(path, notebook):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf8")


def sources(notebook):
    return {cell.id: cell.source for cell in notebook.cells}


def ids(notebook):
    return [cell.id for cell in notebook.cells]
