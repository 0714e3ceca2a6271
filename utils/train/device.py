"""Where a run computes, and in which precision. Nothing is asked of a GPU that its age cannot do."""

import contextlib
import platform

import torch

from utils.train.errors import TrainError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose(name="auto"):
    """A torch.device. "auto": the GPU of this process if there is one, else the CPU."""
    if name == "auto":
        name = f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise TrainError(f"there is no device called {name!r}; use auto, cpu or cuda") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TrainError("torch sees no GPU here; leave --device out, or install a CUDA build of torch")
    return device


def capability(device):
    """(major, minor) of a CUDA device, else None."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


def precision_of(device, wanted="auto"):
    """bf16 only where the capability is at least 8.0: torch's own question also says yes where it would be emulated."""
    able = capability(device)
    if wanted == "auto":
        return "fp32" if able is None else "bf16" if able >= (8, 0) else "fp16"
    if wanted == "bf16" and able is not None and able < (8, 0):
        raise TrainError(f"this GPU (capability {able[0]}.{able[1]}) has no bf16; use --precision fp16")
    return wanted


def tier_of(device):
    """The tier that fits: no GPU, smoke (laptop is ten minutes, for those who ask for it); a large new one, h100."""
    able = capability(device)
    if able is None:
        return "smoke"
    roomy = torch.cuda.get_device_properties(device).total_memory >= 35 * 2**30
    return "h100" if able >= (8, 0) and roomy else "t4"


def name_of(device):
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


@contextlib.contextmanager
def computing(device, precision):
    """Run a model here: half precision where it is safe, and new tensors on the model's own device.

    The second is for parts that were only ever tried on a CPU: a mask made by torch.ones inside them lands on the GPU.
    """
    with contextlib.ExitStack() as stack:
        if device.type != "cpu":
            stack.enter_context(device)
        if precision != "fp32":
            stack.enter_context(torch.autocast(device.type, dtype=DTYPES[precision]))
        yield


@contextlib.contextmanager
def as_found():
    """Give back torch's random state and its matmul setting as they were before a run."""
    matmul = torch.get_float32_matmul_precision()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        torch.set_float32_matmul_precision(matmul)


def synchronise(device):
    """Wait until the device has done what it was told, so that a clock tells the truth."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
