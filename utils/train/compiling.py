"""torch.compile where it works, and one plain line where it does not."""

import time

import torch

from utils.train.update import ran_out_of_memory


def compiled(model, task, parts, say):
    """(compiled model, seconds it took), tried on one part of a batch; on any failure (the model as it is, seconds)."""
    began = time.perf_counter()
    model.train()
    try:
        fast = torch.compile(model)
        loss, count = task.loss(fast, task.batch(0, 0, parts))
        (loss / count).backward()
        loss.item()
    except Exception as error:  # compilers fail in many ways, and none of them should end a run
        if ran_out_of_memory(error):
            reason = "memory ran out while it was tried"
        else:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:120]
        torch._dynamo.reset()
        fast = model
        say(f"… running without torch.compile: {reason}")
    for parameter in model.parameters():
        parameter.grad = None
    seconds = time.perf_counter() - began
    if fast is not model:
        say(f"Compiled in {seconds:.0f} s (not part of the tokens per second)")
    return fast, seconds
