"""A tokenised text in a folder, so that the same text is not cut twice. Arrays and JSON only: reading runs no code."""

import json
import os
import tempfile
from pathlib import Path

import numpy as np

VERSION = 1  # raise it when the same text and vocab_size would give other tokens


def load(folder, key):
    """(merges, train, val, made_by, note) as they were saved under `key`, or None."""
    if folder is None:
        return None
    try:
        with np.load(_path(folder, key), allow_pickle=False) as kept:
            about = json.loads(bytes(kept["about"]))
            train, val = kept["train"], kept["val"]
        merges = [(bytes.fromhex(left), bytes.fromhex(right)) for left, right in about["merges"]]
        for part in (train, val):
            if part.dtype != np.int32 or part.ndim != 1 or part.min() < 0 or part.max() > 256 + len(merges):
                return None
        return merges, train, val, about["made_by"], about["note"]
    except Exception:  # missing, cut off, of another kind: the text is cut again, which is always right
        return None


def save(folder, key, merges, train, val, made_by, note):
    """Save, never in part. Returns "" or a sentence on why it could not be."""
    if folder is None:
        return ""
    about = {"merges": [(left.hex(), right.hex()) for left, right in merges], "made_by": made_by, "note": note}
    place, name = _path(folder, key), None
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=place.parent, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            np.savez(file, train=train, val=val, about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8))
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, place)
    except OSError as error:
        if name and os.path.exists(name):
            os.unlink(name)
        return f"The tokens could not be kept in {folder} ({error.strerror}): next time they are made anew."
    return ""


def _path(folder, key):
    return Path(folder) / f"tokens-{key}.npz"
