"""Where a run computes, and in which precision. Nothing is asked of a GPU that its age cannot do."""

import contextlib
import platform

import torch

from utils.train.errors import TrainError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose(name="auto"):
    """A torch.device. "auto": the GPU of this process if there is one, else the CPU.

    "mps", a Mac's GPU, is taken where it is named and computes what the CPU does. Raises TrainError.
    """
    if name == "auto":
        name = f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise TrainError(f"there is no device called {name!r}; use auto, cpu, cuda or mps") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise TrainError("torch sees no GPU here; leave --device out, or install a CUDA build of torch")
    if device.type == "mps":
        if not torch.backends.mps.is_available():
            raise TrainError("torch sees no GPU of a Mac here; leave --device out")
        if off := disagreement(device):
            raise TrainError(f"this Mac's GPU and its CPU differ in the {off} of a small block: use --device cpu")
    return device


def disagreement(device, tolerance=1e-3):
    """What a small attention block computes otherwise on a device than on the CPU ("output", a gradient), or None."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        block = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", batch_first=True)
        x, hidden = torch.randn(2, 5, 16), torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    found = []
    for place in (torch.device("cpu"), device):
        block.to(place).zero_grad(set_to_none=True)
        out = block(x.to(place), src_mask=hidden.to(place))
        out.square().sum().backward()
        gradients = {f"gradient of {name}": part.grad for name, part in block.named_parameters()}
        found.append({name: value.detach().cpu().clone() for name, value in ({"output": out} | gradients).items()})
    wanted, got = found
    return next(
        (name for name in wanted if not torch.allclose(wanted[name], got[name], rtol=tolerance, atol=tolerance)), None
    )


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
    """The tier that fits: no GPU, smoke (laptop takes minutes, for those who ask for it); a large new one, h100."""
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
    elif device.type == "mps":
        torch.mps.synchronize()
