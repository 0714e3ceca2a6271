"""The folder of a run: can it be written, and does anything lie in the way?"""

from pathlib import Path

from utils import handed_in
from utils.train.errors import TrainError

LEFT = ("checkpoint", "log.jsonl", handed_in.FILE, "report.json", "tensorboard")  # what a run leaves


def prepare(out):
    """Make the folder and try to write in it. Raises TrainError before a single step has been paid for."""
    probe = Path(out) / ".probe"
    try:
        probe.parent.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"may I write here?")
        probe.unlink()
    except OSError as error:
        raise TrainError(
            f"nothing can be written to {out}: {error.strerror or error}. Choose another folder (--out)"
        ) from error


def set_aside(out):
    """Move what an earlier run left into a folder earlier-N: nothing is overwritten. Returns that folder, or None."""
    left = [path for name in LEFT if (path := Path(out) / name).exists()]
    if not left:
        return None
    number = 1
    while (aside := Path(out) / f"earlier-{number}").exists():
        number += 1
    try:
        aside.mkdir()
        for path in left:
            path.rename(aside / path.name)
    except OSError as error:
        raise TrainError(f"the earlier run in {out} could not be moved aside: {error.strerror or error}") from error
    return aside
