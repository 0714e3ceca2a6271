"""Checkpoints that a crash cannot spoil: tensors as safetensors, the rest as JSON, no pickle.

First the tensors are written under a new name, then checkpoint.json, which names them, replaces the old one in a single
step. Until then the old pair is whole; from then on the new one is.
"""

import contextlib
import hashlib
import json
import os
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save

from utils.train.errors import TrainError
from utils.train.nested import flatten, unflatten

FORMAT = "transformer-workbook-training-1"
INDEX = "checkpoint.json"


def write(folder, state, identity):
    """Store `state` (nested, with a "step") in the folder; `identity` says whose it is. Raises TrainError."""
    folder = Path(folder)
    skeleton, tensors = flatten(state)
    data = save(tensors)
    name = f"step-{state['step']:08d}.safetensors"
    index = {"format": FORMAT, "step": state["step"], "file": name, "sha256": hashlib.sha256(data).hexdigest()}
    index |= {"identity": identity, "state": skeleton}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        replace(folder / name, data)
        replace(folder / INDEX, json.dumps(index).encode())
    except OSError as error:
        raise TrainError(
            f"the checkpoint of step {state['step']} could not be written to {folder}: {error.strerror or error}. "
            "An earlier one, if there is one, is unharmed"
        ) from error
    for old in folder.glob("step-*.safetensors"):
        if old.name != name:
            with contextlib.suppress(OSError):
                old.unlink()


def replace(path, data):
    """Put bytes into a file in one step: a crash leaves the old file or the new one, never half of one."""
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    _settle(path.parent)


def _settle(folder):
    """The folder's own entry, too, where the system knows how."""
    with contextlib.suppress(OSError, AttributeError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read(folder, identity, device="cpu"):
    """The stored state, or None where there is none. Raises TrainError if it is damaged or foreign; changes nothing."""
    index = _index(Path(folder) / INDEX)
    if index is None:
        return None
    _require_same(index["identity"], identity, folder)
    path = Path(folder) / index["file"]
    try:
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != index["sha256"]:
            raise ValueError("its contents are not what was written")
        return unflatten(index["state"], load(data), device)
    except (OSError, ValueError, SafetensorError, KeyError, TypeError) as error:
        raise _damaged(path, error) from error


def _index(path):
    try:
        index = json.loads(path.read_bytes())
        if index["format"] != FORMAT:
            raise ValueError("it was made by another program or another version")
        if not {"file", "sha256", "identity", "state"} <= index.keys() or "/" in index["file"]:
            raise ValueError("parts of it are missing")
        return index
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from error


def _damaged(path, error):
    reason = getattr(error, "strerror", None) or (str(error) if type(error) is ValueError else "it cannot be read")
    return TrainError(
        f"the checkpoint {path} is damaged or not ours: {reason}. Nothing was changed. "
        "To start anew, choose another folder (--out), or move this one away"
    )


def _require_same(theirs, ours, folder):
    if not isinstance(theirs, dict):
        raise _damaged(folder, ValueError("it does not say whose it is"))
    different = [name for name in ours if theirs.get(name) != ours[name]]
    if not different:
        return
    name = different[0]
    pairs = ", ".join(
        f"{name} {_short(theirs.get(name))} there and {_short(ours[name])} here" for name in different[:3]
    )
    kind = "another vocabulary" if name == "vocabulary" else "other text" if name == "text" else "another run"
    raise TrainError(
        f"the checkpoint in {folder} belongs to {kind}: {pairs}. Nothing was changed. "
        "Use the settings it was made with, or choose another folder (--out)"
    )


def _short(value):
    return f"{value[:12]}…" if isinstance(value, str) and len(value) > 16 else value
