"""Twins of phase 4, how a model begins and how large it is."""

import torch
from torch import nn

from utils.observe.forbid import twin

__all__ = ["count_parameters", "gradient_norms", "init_weights", "residual_census"]


@twin
@torch.no_grad()
def init_weights(model, std, n_layers):
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        smaller = (2 * n_layers) ** -0.5 if last in ("w_o", "w_2", "w_down") else 1.0
        for kind, parameter in module.named_parameters(recurse=False):
            if kind == "gamma":
                nn.init.ones_(parameter)
            elif kind in ("bias", "beta"):
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=std * smaller)


@twin
def gradient_norms(blocks, x):
    with torch.enable_grad():
        out = x
        for block in blocks:
            out = block(out)
        groups = [list(block.parameters()) for block in blocks]
        found = iter(torch.autograd.grad(out[..., 0].sum(), [p for group in groups for p in group]))
    return [torch.cat([next(found).flatten() for _ in group]).norm().item() for group in groups]


@twin
def count_parameters(config):
    """By building the parts without memory, on the meta device."""

    def size(*parts):
        return sum(parameter.numel() for part in parts for parameter in part.parameters())

    def rows(count):  # from_pretrained: on the meta device the usual start would import torch's compiler, 1.5 s
        return size(nn.Embedding.from_pretrained(torch.empty(count, config.d_model), freeze=False))

    with torch.device("meta"):
        d_model = config.d_model
        narrow = d_model // config.n_heads * (config.n_kv_heads or config.n_heads)
        attention = size(
            *(nn.Linear(d_model, width) for width in (d_model, narrow, narrow)), nn.Linear(d_model, d_model)
        )
        ffn = size(nn.Linear(d_model, config.d_ff), nn.Linear(config.d_ff, d_model))
        norm, table = size(nn.LayerNorm(d_model)), rows(config.vocab_size)
        both = config.src_vocab_size is not None
        source = rows(config.src_vocab_size) if both else 0
    stacks = {"attention": 3, "ffn": 2, "norm": 5} if both else {"attention": 1, "ffn": 1, "norm": 2}
    last = (2 if both else 1) if config.norm_first else 0
    counts = {
        "embedding": table + source,
        "positions": 0 if both else config.max_len * d_model,
        "attention": config.n_layers * stacks["attention"] * attention,
        "ffn": config.n_layers * stacks["ffn"] * ffn,
        "norm": (config.n_layers * stacks["norm"] + last) * norm,
        "output": 0 if config.tied else table,
    }
    return counts | {"total": sum(counts.values())}


@twin
def residual_census(n_encoder, n_decoder):
    """A tally: one entry per sub-layer, since each sub-layer is added once."""
    encoder = len(["attention", "ffn"] * n_encoder)
    decoder = len(["self-attention", "cross-attention", "ffn"] * n_decoder)
    return {"encoder": encoder, "decoder": decoder, "total": encoder + decoder}
