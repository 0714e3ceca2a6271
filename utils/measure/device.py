"""What this machine can do at best: measured here, with random numbers, never looked up in a table.

Products of zeros are faster, since hardly any transistor switches, and would give a ceiling that nothing reaches.
"""

import functools
import os
import platform

import torch

from utils.measure.clock import MeasureError, seconds
from utils.train import device as devices

SIZE_ON_GPU = 8192  # rows and columns: large enough to fill any GPU of today
SIZES_ON_CPU = (512, 1024, 2048)  # the first that takes SLOW_ENOUGH
SLOW_ENOUGH = 0.05  # s: the clock and the start of threads no longer count
COPIED_ON_CPU, COPIED_ON_GPU = 2**28, 2**30  # bytes at least: beyond every cache
CACHES = 16  # times the cache that a GPU tells of


def device_of(name="auto"):
    """A torch.device; "auto": the GPU if there is one. Raises TrainError in plain words."""
    return devices.choose(str(name))


def peak_matmul(dtype=torch.float32, device="cpu"):
    """Operations per second of the fastest large matrix product in this dtype; best of five.

    float32 on a GPU is measured as the trainer uses it, with TF32 where there is such a thing.
    """
    device, precision = torch.device(device), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        return _fastest(dtype, device)
    except RuntimeError as error:
        raise MeasureError(f"no matrix product of {dtype} on {device}: {str(error).splitlines()[0]}") from error
    finally:
        torch.set_float32_matmul_precision(precision)


def _fastest(dtype, device):
    generator = torch.Generator(device).manual_seed(0)
    sizes, inside = ((SIZE_ON_GPU,), 10) if device.type == "cuda" else (SIZES_ON_CPU, 1)
    for size in sizes:
        left, right = (torch.randn(size, size, generator=generator, device=device).to(dtype) for _ in range(2))
        out = torch.empty_like(left)
        time = seconds(functools.partial(torch.mm, left, right, out=out), device, inside=inside)
        if time >= SLOW_ENOUGH:
            break
    return 2 * size**3 / time


def bandwidth(device="cpu"):
    """Bytes per second that memory moves while a large buffer is copied: each byte is read and written."""
    device = torch.device(device)
    n_bytes = COPIED_ON_CPU
    if device.type == "cuda":
        n_bytes = max(COPIED_ON_GPU, CACHES * torch.cuda.get_device_properties(device).L2_cache_size)
    source = torch.rand(n_bytes // 4, device=device)
    target = torch.empty_like(source)
    return 2 * n_bytes / seconds(lambda: target.copy_(source), device, inside=5 if device.type == "cuda" else 1)


def described(device="cpu"):
    """What must stand beside every measured number: {"device", "torch", "cuda", "threads", "cores", "machine"}."""
    device = torch.device(device)
    return {
        "device": devices.name_of(device),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "machine": platform.platform(),
    }
