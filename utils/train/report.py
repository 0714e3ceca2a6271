"""report.json: what was run, on what, whose parts, and what came out. Measured numbers only, else None."""

import datetime
import json
import platform
from dataclasses import asdict

import torch

from utils import handed_in
from utils.train import device as devices
from utils.train import memory, weights


def write_weights(out, model, track):
    """Store weights.safetensors. What the report says of it: is it there, may it be handed in, and if not, why."""
    reason = weights.write(out / handed_in.FILE, model, track)
    stored = reason is None
    if track != "a":
        reason = reason or "only a translator is handed in (track A)"
    elif stored and (size := (out / handed_in.FILE).stat().st_size) > handed_in.MOST:
        reason = f"the file has {size / 1e6:.1f} MB, and at most {handed_in.MOST / 1e6:.0f} MB may be handed in"
    return {"weights_stored": stored, "can_be_handed_in": reason is None, "why_not": reason}


def made(session, found, stopped, file, evaluation_seconds):
    """The dict of report.json. file: what write_weights says."""
    config, task = session.config, session.task
    text = {"fingerprint": task.fingerprint, "units": task.n_units, "vocabulary": list(task.vocabulary)}
    speed = session.tokens / session.seconds if session.seconds else None
    measures = {"exact_match": None, "bits_per_byte": None} | found
    measures["tokens_per_second"] = speed and round(speed, 1)
    run = {
        "track": config.track,
        "tier": config.tier,
        "kernels": config.kernels,
        "parts": session.parts,
        "steps_done": session.step,
        "stopped": stopped,
        "parameters": session.n_parameters,
        "tokens": session.tokens,
        "skipped_steps": session.updater.skipped,
        "accumulation": session.updater.accumulation,
        "loss": next((row["loss"] for row in reversed(session.watcher.rows) if "loss" in row), None),
        **file,
        "text": text | {"note": task.note},
    }
    costs = _costs(session) | {"evaluation_seconds": round(evaluation_seconds, 2)}
    return measures | run | costs | _machine(session) | {"settings": asdict(config)}


def _costs(session):
    peak = memory.peak(session.device)
    return {
        "train_seconds": round(session.seconds, 2),
        "train_cpu_seconds": round(session.cpu_seconds, 2),
        "compile_seconds": round(session.compile_seconds, 2),
        "memory_expected_mib": round(session.needed / memory.MIB, 1),
        "memory_peak_mib": peak and round((peak - session.held) / memory.MIB, 1),
        "memory_peak_is": "on the GPU" if session.device.type == "cuda" else "more than the process held before",
    }


def _machine(session):
    return {
        "device": devices.name_of(session.device),
        "precision": session.config.precision,
        "processes": f"{session.team.name} × {session.team.world}",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "machine": platform.platform(),
        "date": str(datetime.date.today()),
    }


def read(out, steps):
    """The report of a run that is over, if it lies there whole with its weights; else None."""
    try:
        found = json.loads((out / "report.json").read_text(encoding="utf8"))
    except (OSError, ValueError):
        return None
    whole = (out / handed_in.FILE).is_file() or not found.get("weights_stored")
    return found if whole and found.get("steps_done") == steps and found.get("stopped") is None else None


def lines(papers):
    """What a reader wants to know first."""
    speed, peak = papers["tokens_per_second"] or 0, papers["memory_peak_mib"]
    if papers["stopped"]:
        yield f"■ {papers['stopped']} after step {papers['steps_done']}; saved. The same command goes on from there"
    if papers["exact_match"] is not None:
        yield f"Exact match on unseen sentences: {papers['exact_match']:.1%}"
    if papers["bits_per_byte"] is not None:
        yield f"Held-out text: {papers['bits_per_byte']:.3f} bits per byte"
    yield (
        f"{speed:,.0f} tokens/s over {papers['train_seconds']:,.0f} s of training "
        f"({papers['train_cpu_seconds']:,.0f} s of CPU)"
    )
    if peak:
        expected = papers["memory_expected_mib"]
        rest = "" if "GPU" in papers["memory_peak_is"] else " for the model, without what torch keeps for itself"
        yield f"Memory: at most {peak:,.0f} MiB {papers['memory_peak_is']}; {expected:,.0f} were expected{rest}"
    if not papers["weights_stored"]:
        rest = ", and cannot be handed in" if papers["track"] == "a" else ""
        yield f"! The course cannot read this model ({papers['why_not']}): its weights lie in the checkpoint only{rest}"
    elif papers["track"] == "a" and not papers["can_be_handed_in"]:
        yield f"! These weights cannot be handed in: {papers['why_not']}"
