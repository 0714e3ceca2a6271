"""What each of two processes does in tests/test_train_many.py: runs as DDP and FSDP2, stopped and resumed.

Started as `python -m tests.train_processes OUT` with torchrun's variables set.
"""

import sys
from pathlib import Path

import torch

from tests import train_toys as toys
from utils import oracle
from utils.train import TrainError, many, parts, update

OPTIONS = {
    "a": dict(track="a", dropout=0.2, steps=4),
    "b": dict(track="b", dropout=0.2, kernels="fused"),
    "parts": dict(track="b", dropout=0.2, accumulation=2, steps=4),
}


def stopped_at(step, rank):
    """As if one process alone had been told to stop after a step."""
    made = update.Updater.update

    def updated(self, number):
        row = made(self, number)
        if number == step and torch.distributed.get_rank() == rank:
            import os
            import signal

            os.kill(os.getpid(), signal.SIGTERM)
        return row

    update.Updater.update = updated
    return made


def refused(action):
    """The text of the TrainError."""
    try:
        action()
    except TrainError as error:
        return str(error)
    return "nothing"


def main(out):
    parts.mine = lambda name: getattr(oracle, name)
    torch.set_num_threads(1)
    many.join()
    made = stopped_at(2, rank=1)
    for kind in ("ddp", "fsdp"):
        run = toys.train(out / f"{kind}-b", fsdp=kind == "fsdp", **OPTIONS["b"])
        assert run.stopped and run.steps_done == 3, run
    update.Updater.update = made
    for kind in ("ddp", "fsdp"):
        for name in ("b", "parts"):  # b goes on from where it was stopped
            toys.train(out / f"{kind}-{name}", fsdp=kind == "fsdp", **OPTIONS[name])
    toys.train(out / "ddp-a", **OPTIONS["a"])
    rank = torch.distributed.get_rank()
    said = [
        refused(lambda: toys.train(out / "other", seed=rank)),
        refused(lambda: toys.train(out / "few", accumulation=5)),
        refused(lambda: toys.train(out / "fp16", fsdp=True, precision="fp16")),
    ]
    (out / f"refused-{rank}.txt").write_text("\n".join(said), encoding="utf8")
    many.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
