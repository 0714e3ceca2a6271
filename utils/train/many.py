"""Several processes, one run: copies of the weights (DDP) or shards of them (FSDP2), started by torchrun.

With copies, each process computes the gradients of its own rows; in the backward pass of the last part they are summed
over all processes, bucket by bucket, while earlier layers are still being computed. Nothing else is sent. With shards,
each layer's weights are gathered just before they are used and thrown away after; gradients go back in shards.
"""

import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn

from utils.train.errors import TrainError


def join():
    """Meet the other processes if torchrun started this one. Returns True in the first process (or the only one)."""
    if "RANK" not in os.environ or dist.is_initialized():
        return not dist.is_initialized() or dist.get_rank() == 0
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    dist.init_process_group("nccl" if gpu else "gloo")
    return dist.get_rank() == 0


def alone():
    return not dist.is_initialized() or dist.get_world_size() == 1


def leave():
    if dist.is_initialized():
        dist.destroy_process_group()


def in_turn(make):
    """Run `make()` in the first process, then in all others: what the first leaves in a cache is there for them."""
    if not dist.is_initialized():
        return make()
    made = make() if dist.get_rank() == 0 else None
    dist.barrier()
    return make() if made is None else made


def team(config):
    """How this process works with others; alone, every method does next to nothing."""
    if not dist.is_initialized():
        if config.fsdp:
            raise TrainError(
                "--fsdp shards weights over several processes: start with torchrun --nproc-per-node=2 -m utils.train …"
            )
        return Alone()
    if config.batch_size < dist.get_world_size() * config.accumulation:
        raise TrainError(
            f"a batch of {config.batch_size} has too few rows for {dist.get_world_size()} processes "
            f"with {config.accumulation} parts each"
        )
    if not config.fsdp:
        return Copies()
    if config.precision == "fp16":
        raise TrainError("--fsdp does not go with fp16 here; use --precision bf16 or fp32")
    return Shards()


class Alone:
    rank, world, sharded = 0, 1, False
    name = "one process"

    def wrap(self, model):
        return model

    def part(self, model, last):
        """A context around the forward and the backward pass of a part; only the last one of a step sends anything."""
        return contextlib.nullcontext()

    def total(self, tensor):
        """The sum over all processes."""
        return tensor

    def any(self, flag):
        """True in all processes if it is in one."""
        return flag

    def same(self, value, what):
        """Refuse to go on if the processes do not agree."""

    def weights(self, model):
        """{name: whole tensor}: for the first process; the others get {}."""
        return model.state_dict()

    def optimiser_state(self, model, optimiser):
        return optimiser.state_dict()

    def restore(self, model, optimiser, state):
        for part, name in ((model, "model"), (optimiser, "optimiser")):
            part.load_state_dict(state[name])


class Copies(Alone):
    """DDP: a copy of the weights in each process."""

    name = "DDP"

    def __init__(self):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"

    def wrap(self, model):
        return nn.parallel.DistributedDataParallel(model)

    def part(self, model, last):
        return contextlib.nullcontext() if last else model.no_sync()

    def total(self, tensor):
        tensor = tensor.clone()
        dist.all_reduce(tensor)
        return tensor

    def any(self, flag):
        found = torch.tensor(float(flag), device=self.device)
        dist.all_reduce(found)
        return found.item() > 0

    def same(self, value, what):
        values = [None] * self.world
        dist.all_gather_object(values, value)
        if any(other != values[0] for other in values):
            raise TrainError(f"the processes do not have the same {what}: {values}. Nothing was trained")


class Shards(Copies):
    """FSDP2: each process keeps a share of every weight, of its gradient and of AdamW's memory."""

    name, sharded = "FSDP2", True

    def wrap(self, model):
        from torch.distributed.fsdp import fully_shard

        for module in model.modules():
            if isinstance(module, nn.ModuleList):
                for block in module:
                    fully_shard(block)
        return fully_shard(model)

    def part(self, model, last):
        model.set_requires_gradient_sync(last)
        return contextlib.nullcontext()

    def weights(self, model):
        """A collective: every process must call it."""
        whole = {name: _put_together(tensor).cpu() for name, tensor in model.state_dict().items()}
        return whole if self.rank == 0 else {}

    def optimiser_state(self, model, optimiser):
        """A collective: the shards of AdamW's memory put together."""
        return _mapped(optimiser.state_dict(), _put_together)

    def restore(self, model, optimiser, state):
        from torch.distributed.tensor import distribute_tensor

        own = model.state_dict()

        def cut(tensor, like):
            return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements)

        model.load_state_dict({name: cut(state["model"][name], like) for name, like in own.items()})
        optimiser.load_state_dict(_shared_out(state["optimiser"], optimiser, cut))


def _put_together(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def _mapped(value, change):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    return [_mapped(item, change) for item in value] if isinstance(value, list) else value


def _shared_out(states, optimiser, cut):
    """torch's AdamW numbers its parameters in order; each memory is cut as its parameter is."""
    for state, part in zip(states, optimiser.parts, strict=True):
        parameters = [p for group in part.param_groups for p in group["params"]]
        for number, memory in state["state"].items():
            like = parameters[number]
            for name, tensor in memory.items():
                if isinstance(tensor, torch.Tensor) and tensor.shape == like.shape and tensor.dim():
                    memory[name] = cut(tensor, like)
    return states
