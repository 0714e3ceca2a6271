"""Signs of known mistakes in the exercises on training. A sign is rule(got, request) -> bool."""

import torch


def said(got):
    """What the first call returned; None if it failed."""
    return got["calls"][0]["value"] if got["calls"] else None


def argument(request, name):
    call = request.calls[0]
    return {**call["args"], **call["options"]}.get(name)


def failed(got):
    """The name of what was raised; "" if nothing."""
    raised = got["problem"] or (got["calls"][0]["raised"] if got["calls"] else None)
    return (raised or {}).get("type") or ""


def raises_something(got, request):
    return bool(failed(got))


def not_refused(got, request):
    """Where the twin refuses (the judge has seen to that), was there an answer, or another error?"""
    return failed(got) != "ValueError"


# ---- losses --------------------------------------------------------------------------------------


def is_its_own_target(got, request):
    """Is each kept target the very token that stands at the same place of the inputs?"""
    inputs, targets = said(got)
    kept = targets >= 0
    return inputs.shape == targets.shape and bool(kept.any()) and torch.equal(inputs[kept], targets[kept])


def underflowed(got, request):
    """Is the loss of very large logits infinite, or no number?"""
    logits = argument(request, "logits")
    return bool(logits.abs().max() > 1e3) and not bool(said(got).isfinite())


def cut_off(got, request, asked=None):
    """Where nothing is kept: is there an answer, and does it not hang on the logits? A rule and a sign."""
    request = asked or request
    if (
        not got["calls"]
        or got["calls"][0]["raised"]
        or (argument(request, "targets") != argument(request, "ignore_index")).any()
    ):
        return None
    grads = got["calls"][0]["grads"] or {}
    return ("0 that backward() can start from", "0 cut off from the logits") if grads.get("logits") is None else None


def target_accepted(got, request):
    """Was a target outside the vocabulary taken, or did it crash with another error?"""
    logits, targets = argument(request, "logits"), argument(request, "targets")
    if logits.shape[:-1] != targets.shape:
        return False
    kept = targets[targets != argument(request, "ignore_index")]
    return bool(((kept < 0) | (kept >= logits.shape[-1])).any()) and failed(got) != "ValueError"


def shape_accepted(got, request):
    logits, targets = argument(request, "logits"), argument(request, "targets")
    return logits.shape[:-1] != targets.shape and failed(got) != "ValueError"


def counts_accepted(got, request):
    losses, counts = argument(request, "losses"), argument(request, "counts")
    return (len(losses) != len(counts) or not sum(counts)) and failed(got) != "ValueError"


# ---- optimiser -----------------------------------------------------------------------------------


def gradients_touched(got, request):
    return said(got)["gradients as they were"] is False


def never_zeroed(got, request):
    return said(got)["zeroed"] is False


def used_up(got, request):
    """Did no weight ever move?"""
    values = argument(request, "values")
    return all(torch.equal(said(got)[f"after step 1, parameter {n}"], value) for n, value in enumerate(values))


def cannot_take_over(got, request):
    return argument(request, "resume") is not None and bool(failed(got))


def needs_every_gradient(got, request):
    """Does it fail where a parameter has no gradient?"""
    grads = argument(request, "grads")
    rows = grads if grads and isinstance(grads[0], list) else [grads]
    return any(grad is None for row in rows for grad in row) and failed(got) in ("TypeError", "AttributeError")


def schedule_accepted(got, request):
    bad = argument(request, "step") < 0 or argument(request, "total") <= argument(request, "warmup")
    return bad and failed(got) != "ValueError"


def division_by_warmup(got, request):
    return argument(request, "warmup") == 0 and failed(got) == "ZeroDivisionError"


def no_norm(got, request):
    return said(got)["norm"] is None


# ---- a training step -----------------------------------------------------------------------------


def flags_moved(got, request):
    return said(got)["flags as before"] is False


def one_large_batch(got, request):
    return said(got)["one micro-batch at a time"] is False


def graphs_piled_up(got, request):
    return said(got)["backward before the next micro-batch"] is False


def steps_without_targets(got, request):
    """Nothing to learn from: was a step made, or a number returned that is none?"""
    kept = sum(int((targets != -100).sum()) for _, targets in argument(request, "micro_batches"))
    return not kept and (bool(failed(got)) or said(got)["steps"] > 0 or said(got)["loss"] != 0)


# ---- exposure ------------------------------------------------------------------------------------


def ran_in_training_mode(got, request):
    return said(got)[1]["in eval mode"] is False


def kept_gradients(got, request):
    return said(got)[1]["without gradients"] is False
