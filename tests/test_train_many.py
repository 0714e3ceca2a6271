"""Two processes on one CPU: is it the same run as one process alone, copied (DDP) and sharded (FSDP2)?"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests import train_toys as toys
from tests.train_processes import OPTIONS
from utils import oracle
from utils.train import parts

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The folder in which two processes have trained."""
    out = tmp_path_factory.mktemp("together")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = dict(WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    command = [sys.executable, "-m", "tests.train_processes", str(out)]
    processes = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | where | dict(RANK=rank, LOCAL_RANK=rank),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    try:
        said = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(said)
    return out


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same runs in one process, each batch in as many parts."""
    out, mine = tmp_path_factory.mktemp("alone"), parts.mine
    parts.mine = lambda name: getattr(oracle, name)
    for name, options in OPTIONS.items():
        toys.train(out / name, **options | dict(accumulation=2 * options.get("accumulation", 1)))
    parts.mine = mine
    return out


def losses(out):
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row]


@pytest.mark.parametrize("name", "ab")
def test_copies_are_one_process_bit_for_bit(together, alone, name):
    """DDP, b stopped and resumed on the way: weights and losses of one process that takes the parts in turn?"""
    one, two = (load_file(out / "weights.safetensors") for out in (alone / name, together / f"ddp-{name}"))
    assert toys.equal(one, two)
    assert losses(alone / name) == losses(together / f"ddp-{name}")
    assert json.loads((together / f"ddp-{name}" / "report.json").read_text())["processes"] == "DDP × 2"


@pytest.mark.parametrize("name", ["fsdp-b", "ddp-parts", "fsdp-parts"])
def test_sums_in_another_order_differ_in_the_last_bits_only(together, alone, name):
    """FSDP2, and four parts as two pairs: equal losses, and weights that differ by rounding?"""
    one, two = (load_file(out / "weights.safetensors") for out in (alone / name.split("-")[1], together / name))
    assert losses(alone / name.split("-")[1]) == pytest.approx(losses(together / name), rel=1e-4)
    for key, tensor in one.items():
        if not key.endswith("w_k.bias"):  # softmax does not feel it: rounding, blown up by Adam
            assert torch.allclose(tensor, two[key], atol=1e-3), key


def test_what_many_processes_cannot_do_is_said_by_all(together):
    """Other settings in each, more parts than rows, shards with fp16: one plain error everywhere, and no hanging?"""
    for rank in (0, 1):
        other, few, fp16 = (together / f"refused-{rank}.txt").read_text(encoding="utf8").splitlines()
        assert other.startswith("the processes do not have the same settings or text")
        assert few == "a batch of 8 has too few rows for 2 processes with 5 parts each"
        assert fp16.startswith("--fsdp does not go with fp16")
    assert not (together / "other").exists()


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--fsdp"], ["--compile", "--kernels", "fused"]], ids=str)
def test_torchrun_runs_the_same_command(tmp_path, more):
    """The command of the README, under torchrun: exit 0, one report, said once?"""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone", "-m", "utils.train"]
    command += "--track a --tier smoke --steps 4 --n-pairs 200 --d-model 16 --n-heads 2".split() + more
    done = subprocess.run([*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("tokens/s") == 1
    assert json.loads((tmp_path / "report.json").read_text())["steps_done"] == 4
