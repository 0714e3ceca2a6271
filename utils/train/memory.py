"""How much memory a run will need, said before it starts; and what it took, said after."""

import os

import torch

MIB = 2**20


def estimate(model, config, vocabulary, lengths):
    """What the model adds, in bytes by purpose with a total; rules of thumb, meant to be right within a factor of two.

    Not in it: what torch keeps for itself from a process's first steps on. On a CPU that is hundreds of MiB.
    weights, gradients, optimiser: 16 bytes per parameter in float32 (4 + 4 + 8)
    activations: 34 numbers' worth of bytes per layer, token and width in half precision; attention's tables as well
    where they are kept; logits: what one needs to come back from the loss
    """
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    wide = 2 if config.precision == "fp32" else 1  # in units of two bytes
    rows = -(-config.batch_size // (config.accumulation * world()))
    layers = config.n_layers * (2 if len(lengths) == 2 else 1)
    tokens = rows * max(lengths)
    activations = 34 * wide * layers * tokens * config.d_model
    if config.kernels == "own":
        activations += 5 * wide * layers * rows * config.n_heads * max(lengths) ** 2
    parts = {
        "weights": 4 * n_parameters,
        "gradients": 4 * n_parameters,
        "optimiser": 8 * n_parameters,
        "activations": activations,
        "logits": 8 * tokens * vocabulary[-1],
    }
    return parts | {"total": sum(parts.values())}


def world():
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1


def free(device):
    """Bytes that are free on the device now, or None where nobody tells."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            table = dict(line.split(":") for line in file)
        return int(table["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def peak(device):
    """The most bytes held: on a GPU since `forget`, on a CPU by this process; None where nobody tells."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
        import sys

        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else used * 1024
    except ImportError:
        return None


def forget(device):
    """Begin to measure. Returns what is held already and is not the run's: on a CPU Python, torch and the text."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return 0
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def warning(needed, available):
    """A line where the estimate comes near what is free, else None."""
    if available is None or needed <= 0.8 * available:
        return None
    return (
        f"this run may need {needed / MIB:,.0f} MiB, and {available / MIB:,.0f} MiB are free. If memory runs out, the "
        "batch is halved and goes on in parts; --batch_size or --seq_len make it smaller for good"
    )
