"""my_work/: the learner's copy of the release. Made by `workbook learn`, brought up to date by `workbook update`.

A release is merged into what is there (utils/merge.py says how). Before anything is written, all that will change is
copied to my_work/backups/, and each file is replaced in one step: a crash leaves the old file or the new one.
"""

import hashlib
import json
import os
import shutil
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from utils import COURSE
from utils.merge import fingerprints, merge

PHASES = {  # the seven phases, in order: folder -> title
    "phase1_text_to_tensors": "From text to tensors",
    "phase2_attention": "Attention",
    "phase3_multi_head": "Multi-head attention",
    "phase4_blocks": "Encoder and decoder blocks",
    "phase5_training_and_inference": "Training and inference",
    "phase6_families_and_systems": "Model families and systems",
    "phase7_capstone": "Capstone: a whole model, trained",
}
SEEN = ".workbook.json"  # in my_work/: fingerprints of the release that was merged last
NOT_A_LESSON = {".ipynb_checkpoints", "__pycache__"}


class WorkspaceError(Exception):
    """Something the reader can put right; its text is the whole message."""


@dataclass(frozen=True)
class Row:
    """What happened to one file."""

    path: str
    what: str  # "new", "updated", "unchanged" or "left alone"
    changes: list = field(default_factory=list)  # (kind, cell id)
    problem: str = ""


def course_root():
    """The folder of the course: the one this package stands in, else the nearest above the working folder."""
    here = Path.cwd()
    for folder in [Path(__file__).resolve().parents[1], here, *here.parents]:
        pins = folder / "pyproject.toml"
        if pins.is_file() and f'name = "{COURSE}"' in pins.read_text(encoding="utf8"):
            return folder
    raise WorkspaceError("The course's folder was not found. Go into it (cd transformer-workbook) and try again.")


def update(root):
    """Bring my_work/ up to the release in notebooks/: copy what is missing, merge what is there. One Row per file."""
    release, work = root / "notebooks", root / "my_work"
    files = (path.relative_to(release) for path in release.rglob("*") if path.is_file())
    paths = sorted(path for path in files if not NOT_A_LESSON & set(path.parts))
    if not paths:
        raise WorkspaceError(f"There are no notebooks in {release}. Build them first: make build")
    work.mkdir(exist_ok=True)
    seen = _read_seen(work / SEEN)
    plans = [_plan(release / path, work / path, path.as_posix(), seen) for path in paths]
    back_up(work, [row.path for row, text in plans if row.what == "updated"])
    for row, text in plans:
        if text is not None:
            write_atomically(work / row.path, text)
        if row.what != "left alone":
            seen[row.path] = _seen_in(release / row.path)
    text = json.dumps(seen, indent=1, sort_keys=True).encode()
    if not (work / SEEN).is_file() or (work / SEEN).read_bytes() != text:
        write_atomically(work / SEEN, text)
    return [row for row, text in plans]


def read_notebook(path):
    """A notebook of any version as nbformat 4. Raises WorkspaceError in plain words if it is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nbformat warns of ids that are missing or double: the merge mends those
            notebook = nbformat.reads(path.read_bytes().decode("utf-8-sig"), as_version=4)
        if not all(isinstance(cell.source, str) for cell in notebook.cells):
            raise ValueError
        return notebook
    except OSError as error:
        raise WorkspaceError(f"{path.name} cannot be read ({error}).") from None
    except Exception:
        raise WorkspaceError(f"{path.name} is not a readable notebook: damaged, or saved halfway.") from None


def phase_map(folder=None):
    """The seven phases as a Markdown table, with a link to each that is in this folder."""
    folder = Path(folder or Path.cwd())
    lines = ["| phase | | |", "|---|---|---|"]
    for number, (name, title) in enumerate(PHASES.items(), 1):
        ready = (folder / name / f"{name}.ipynb").is_file()
        link = f"[{title}]({name}/{name}.ipynb)" if ready else title
        lines.append(f"| {number} | {link} | {'ready' if ready else 'not written yet'} |")
    return "\n".join(lines)


def write_atomically(path, content):
    """Write bytes beside the file and move them into place: a reader sees the old file or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, path.stat().st_mode if path.exists() else 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _plan(new, old, name, seen):
    """One Row, and the bytes to write or None."""
    if not old.exists():
        return Row(name, "new"), new.read_bytes()
    if new.suffix != ".ipynb":
        return _plan_file(new, old, name, seen.get(name))
    try:
        mine, release = read_notebook(old), read_notebook(new)
    except WorkspaceError as error:
        return Row(name, "left alone", problem=str(error)), None
    before = json.dumps(mine, sort_keys=True)
    base = seen.get(name)
    merged, changes = merge(mine, release, base if isinstance(base, dict) else {})
    if json.dumps(merged, sort_keys=True) == before:
        return Row(name, "unchanged"), None
    return Row(name, "updated", changes), (nbformat.writes(merged).rstrip("\n") + "\n").encode()


def _plan_file(new, old, name, base):
    """A picture or a data file: replaced as long as the learner has not changed it."""
    if old.read_bytes() == new.read_bytes():
        return Row(name, "unchanged"), None
    if base != _digest(old):
        return Row(name, "left alone", problem="You changed it, and this release has another one."), None
    return Row(name, "updated"), new.read_bytes()


def _seen_in(path):
    return fingerprints(read_notebook(path)) if path.suffix == ".ipynb" else _digest(path)


def _digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _read_seen(path):
    """The fingerprints of the last merge; without them (file missing or damaged) every answer counts as edited."""
    try:
        seen = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError):
        return {}
    return seen if isinstance(seen, dict) else {}


def back_up(work, names):
    """Copy these files of my_work/ to a new folder in my_work/backups/. Returns the folder, or None without files."""
    if not names:
        return None
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    folder, number = work / "backups" / stamp, 2
    while folder.exists():
        folder, number = work / "backups" / f"{stamp}_{number}", number + 1
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(work / name, folder / name)
    return folder
