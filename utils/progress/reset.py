"""`workbook reset sdpa`: the blank cell of one exercise again, with a copy of the notebook as it was."""

import difflib

import nbformat

from utils.drills.schedule import now
from utils.drills.store import Event, Store, StoreError
from utils.syllabus import syllabus
from utils.workspace import WorkspaceError, back_up, read_notebook, write_atomically


def reset(root, name):
    """Put the blank cell of an exercise back into my_work/. Returns the folder of the copy, or None if it was blank.

    Outputs of that cell go, too; everything else stays. Raises WorkspaceError, in a sentence, where it cannot be done.
    """
    task = _task(root, name)
    work, inside = root / "my_work", f"{task.phase}/{task.phase}.ipynb"
    if not (work / inside).is_file():
        raise WorkspaceError(f"my_work/{inside} is not there yet: workbook learn")
    notebook = read_notebook(work / inside)
    cells = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == f"{name}-build"]
    if not cells:
        raise WorkspaceError(f"my_work/{inside} has no cell for {name} any more. To get it back: workbook update")
    cell = cells[0]
    if cell.source.strip() == task.stub.strip():
        return None
    cell.source = task.stub
    cell.outputs, cell.execution_count = [], None
    folder = back_up(work, [inside])
    write_atomically(work / inside, (nbformat.writes(notebook).rstrip("\n") + "\n").encode())
    _note(name)
    return folder


def _task(root, name):
    tasks = syllabus(root)
    if name not in tasks:
        near = difflib.get_close_matches(name, tasks, n=3, cutoff=0.5)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise WorkspaceError(f"No exercise is called {name}.{hint}")
    return tasks[name]


def _note(name):
    """From here on the exercise counts as open again; without a file for it the cell is blank all the same."""
    try:
        with Store() as store:
            store.append(Event(now().timestamp(), "reset", name))
    except StoreError:
        return
