"""Authored lessons -> solution notebooks -> the release, through nbgrader's own generate_assignment.

Building happens in memory and in a temporary course, without a gradebook; only then are files written, and never
over a notebook that somebody has changed.
"""

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbgrader.converters import GenerateAssignment

from autograde import colab, pictures
from autograde.course import load_config, pages, phases, run_step
from autograde.seal import is_sealed, put_seal
from autograde.source import LessonError, solution_notebook


class BuildError(Exception):
    """The build stops; the message tells the author why."""


@dataclass
class Built:
    """What a build would write: relative path -> content."""

    files: dict[Path, bytes] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def render(root, names=()):
    """Build phases and pages in memory; nothing is written. No names means all of them."""
    root, built = Path(root), Built()
    known = [*phases(root), *pages(root)]
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise BuildError(f"no source for {', '.join(unknown)}; there is {', '.join(known) or 'none at all'}")
    for name in names or known:
        is_phase = name in phases(root)
        source = Path("solutions", name if is_phase else "pages", f"{name}.py")
        try:
            notebook, warnings = solution_notebook(root / source, graded=is_phase)
            if not is_phase:
                pictures.add(notebook, root)
            colab.add_cell(notebook, colab.address(root))
        except (LessonError, colab.AddressError) as error:
            raise BuildError(str(error)) from None
        content = notebook_bytes(put_seal(notebook))
        built.warnings += warnings
        if is_phase:
            built.files[source.with_suffix(".ipynb")] = content
            built.files |= release(root, name, content)
        else:
            built.files[Path("notebooks", f"{name}.ipynb")] = content
    return built


def notebook_bytes(notebook):
    """A notebook as it stands on disk, the way nbgrader writes it."""
    return (nbformat.writes(notebook, version=4) + "\n").encode("utf-8")


def release(root, phase, solution, db_url=None):
    """Run nbgrader's generate_assignment elsewhere. Returns relative path -> content of notebooks/<phase>.

    With a db_url the assignment is also registered in that gradebook.
    """
    with TemporaryDirectory() as work:
        work = Path(work).resolve()
        shutil.copytree(Path(root, "solutions", phase), work / "solutions" / phase)
        (work / "solutions" / phase / f"{phase}.ipynb").write_bytes(solution)
        config = load_config(root, root=work, source_directory="solutions", release_directory="notebooks")
        if db_url:
            config.CourseDirectory.db_url = db_url
        else:
            config.GenerateAssignment.no_database, config.SaveCells.enabled = True, False
        worked, log = run_step(GenerateAssignment, config, phase, student=".")
        if not worked:
            raise BuildError(f"nbgrader could not build {phase}:\n{log}")
        made = sorted(path for path in (work / "notebooks").rglob("*") if path.is_file())
        return {path.relative_to(work): path.read_bytes() for path in made}


def differences(root, names=()):
    """Plain sentences on how the files on disk differ from what a build would write."""
    root, found = Path(root), []
    files = render(root, names).files
    for path, content in files.items():
        if not (root / path).exists():
            found.append(f"{path} is missing: run autograde build")
        elif (root / path).read_bytes() != content:
            found.append(f"{path} differs from its source: run autograde build")
    if not names:
        found += [f"{path} has no source: delete it" for path in released_files(root) if path not in files]
    return found


def released_files(root):
    """What lies in notebooks/, relative to the root; Lab's hidden checkpoints do not count."""
    found = [path.relative_to(root) for path in Path(root, "notebooks").rglob("*") if path.is_file()]
    return sorted(path for path in found if not any(part.startswith(".") for part in path.parts))


def write(root, built, force=False):
    """Write what changed. A notebook that is not our own last output stops the build (or is kept aside by force).

    Returns the relative paths written and, for a forced build, the folder with the old files.
    """
    root = Path(root)
    changed = {path: content for path, content in built.files.items() if _content(root / path) != content}
    foreign = [path for path in changed if path.suffix == ".ipynb" and not _is_ours(root / path)]
    if foreign and not force:
        raise BuildError(
            f"changed since we built it, so it is left alone: {', '.join(map(str, foreign))}\n"
            "Move what you need into the .py source, then delete the notebook or build with --force, "
            "which keeps a copy of it."
        )
    kept = _keep(root, foreign) if foreign else None
    for path, content in changed.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        unfinished = (root / path).with_name(path.name + ".part")
        unfinished.write_bytes(content)
        unfinished.replace(root / path)
    return list(changed), kept


def _content(path):
    return path.read_bytes() if path.exists() else None


def _is_ours(path):
    if not path.exists():
        return True
    try:
        return is_sealed(nbformat.reads(path.read_text(encoding="utf-8"), as_version=4))
    except (ValueError, AttributeError, nbformat.reader.NotJSONError):
        return False


def _keep(root, paths):
    """Copy notebooks into autograde/kept/<time> before they are overwritten."""
    folder = root / "autograde" / "kept" / time.strftime("%Y-%m-%d-%H%M%S")
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / path, folder / path)
    return folder
