"""How long something takes on a device, and what to say where it cannot be measured."""

import time

import torch


class MeasureError(Exception):
    """Something cannot be measured; the text says why, in words for the reader."""

    def _render_traceback_(self):
        return [f"✗ {self}"]


def wait_for(device):
    """Until the device has done what it was told: a clock that does not wait measures how fast one can ask."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds(run, device, runs=5, inside=1):
    """The shortest time of one call, of `runs` tries with `inside` calls each; a first call is not counted."""
    run()
    found = []
    for _ in range(runs):
        wait_for(device)
        began = time.perf_counter()
        for _ in range(inside):
            run()
        wait_for(device)
        found.append((time.perf_counter() - began) / inside)
    return min(found)


def alternating(runs, device, rounds=5):
    """{name: median seconds} of several rivals, {name: run}, taken in turn, so that a slow spell hits all of them."""
    found = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            wait_for(device)
            began = time.perf_counter()
            run()
            wait_for(device)
            found[name].append(time.perf_counter() - began)
    return {name: sorted(times)[len(times) // 2] for name, times in found.items()}
