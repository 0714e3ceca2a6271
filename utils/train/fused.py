"""torch's fused kernels inside the learner's own modules: same parameters, same numbers, less time.

A module with w_q, w_k, w_v, w_o and n_heads gets a forward that calls scaled_dot_product_attention; a norm with gamma,
beta and eps gets torch's layer norm. A GPT is told once that only the past is seen, so that no mask is made.
Nothing is kept before the whole model has given the same logits, and the same gradients, as it did before.
"""

import inspect
from types import MethodType

import torch
import torch.nn.functional as F
from torch import nn

PROJECTIONS = ("w_q", "w_k", "w_v", "w_o")


def fuse(model, config, vocabulary):
    """Swap the kernels in place if the model then says the same. Returns a line that says what runs now."""
    attentions = [part for part in model.modules() if _is_attention(part)]
    if not attentions:
        return "as the model has it: no module with w_q, w_k, w_v, w_o and n_heads was found to swap"
    batch = _tried(config, vocabulary)
    before = _logits_and_gradients(model, batch)
    swapped = list(_swap(model, config.track))
    after = _logits_and_gradients(model, batch)
    worst = max(_difference(one, other) for one, other in zip(before, after, strict=True))
    if worst > 1e-4:
        for module in swapped:
            for name in list(vars(module)):
                if name in ("forward", "embed", "head"):
                    delattr(module, name)
        return f"as the model has it: torch's kernels differ by {worst:.1g} in this model, so they were taken out again"
    return f"torch's scaled_dot_product_attention, equal to the model's own up to {worst:.0e}"


def _is_attention(module):
    return all(isinstance(getattr(module, name, None), nn.Linear) for name in PROJECTIONS) and isinstance(
        getattr(module, "n_heads", None), int
    )


def _is_norm(module):
    return all(isinstance(getattr(module, name, None), nn.Parameter) for name in ("gamma", "beta")) and hasattr(
        module, "eps"
    )


def _swap(model, track):
    """Give modules their fused forward; yields each module that was touched.

    Bound methods, not closures: a copy of the model then computes with the copy's weights.
    """
    for module in model.modules():
        if _is_attention(module):
            module.forward = MethodType(_causal_attention if track == "b" else _attention, module)
        elif _is_norm(module):
            module.forward = MethodType(_norm, module)
        elif module is model and track == "b" and all(hasattr(model, name) for name in ("embed", "blocks", "head")):
            for name in ("embed", "head"):
                setattr(model, name, _bare(model, name))
            model.forward = MethodType(_language_model, model)
        else:
            module.forward = _bare(module, "forward")
        yield module


def _bare(module, name):
    """A method without the guards that the course's own parts carry: a compiler cannot look through them."""
    return MethodType(inspect.unwrap(getattr(type(module), name)), module)


def _attention(module, x, memory=None, attn_mask=None, **options):
    source = x if memory is None else memory
    width = module.w_q.out_features // module.n_heads
    q, k, v = (
        project(given).view(*given.shape[:2], -1, width).transpose(1, 2)  # (B, H, T, D)
        for project, given in ((module.w_q, x), (module.w_k, source), (module.w_v, source))
    )
    options = dict(attn_mask=attn_mask) | options
    if module.w_k.out_features != module.w_q.out_features:
        options["enable_gqa"] = True
    mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=_rate(module) if module.training else 0.0, **options)
    return module.w_o(mixed.transpose(1, 2).flatten(2))


def _causal_attention(module, x, memory=None, attn_mask=None):
    return _attention(module, x, is_causal=True)


def _rate(module):
    dropout = getattr(module, "dropout", 0.0)
    return dropout.p if isinstance(dropout, nn.Dropout) else float(dropout)


def _norm(module, x):
    return F.layer_norm(x, module.gamma.shape, module.gamma, module.beta, module.eps)


def _language_model(model, tokens, pad_mask=None):
    if pad_mask is not None:
        raise ValueError("with kernels='fused' every token is real: pads are not looked for")
    x = model.embed(tokens)
    for block in model.blocks:
        x = block(x)  # its attention sees the past only
    return model.head(x)


# ---- is it the same? -----------------------------------------------------------------------------


def _tried(config, vocabulary):
    """A small batch with sentences of several lengths. Sentences, not pads, are compared."""
    generator = torch.Generator().manual_seed(1)

    def words(size, length):
        return torch.randint(size, (3, length), generator=generator)

    if config.track == "b":
        length = min(config.seq_len, 33)
        return (words(vocabulary[0], length),), torch.ones(3, length, dtype=torch.bool)
    src_real, tgt_real = (
        torch.arange(n) < torch.tensor(lengths)[:, None] for n, lengths in ((7, (7, 4, 1)), (5, (3, 5, 2)))
    )
    return (words(vocabulary[0], 7), words(vocabulary[1], 5), src_real, tgt_real), tgt_real


def _logits_and_gradients(model, batch):
    """Logits of the real places, then every parameter's gradient of their mean square. Leaves no trace in the model."""
    inputs, real = batch
    training = model.training
    model.eval()
    try:
        parameters = list(model.parameters())
        logits = model(*inputs)[real]
        gradients = torch.autograd.grad(logits.square().mean(), parameters, allow_unused=True)
    finally:
        model.train(training)
    return [logits.detach(), *(torch.zeros(1) if one is None else one for one in gradients)]


def _difference(one, other):
    """The largest difference, in units of the largest number."""
    if one.shape != other.shape:
        return float("inf")
    scale = one.abs().max().clamp(min=1e-3)
    difference = ((one - other).abs().max() / scale).item()
    return difference if difference == difference else float("inf")
