"""weights.safetensors: a trained model in one file, under the names of the course's own model.

The file is float32 and says in its header which sizes the model has, so that `twin(path)` needs nothing else. Whoever
reads one trusts nothing in it: sizes are taken from the tensors, and nothing is built before all names and shapes fit.
"""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from utils import oracle
from utils.config import ModelConfig
from utils.observe.layout import addresses
from utils.train.checkpoint import replace
from utils.train.errors import TrainError


class WeightsError(TrainError):
    """The file cannot be used; the text says why, in words for the one who made it."""


def named(model, track):
    """({the twin's name: float32 tensor on the CPU}, None), or (None, why it has other names or shapes)."""
    found = {name: tensor.detach() for name, tensor in addresses(model).items()}
    try:
        wanted = _shapes(_built(track, _sizes_of(model, found, track)))
    except (KeyError, AttributeError, WeightsError) as error:
        return None, f"its parts have other names than the course's ({str(error).strip(chr(39))} was looked for)"
    for name, shape in wanted.items():
        if name not in found:
            return None, f"it has no {name}"
        if tuple(found[name].shape) != shape:
            return None, f"its {name} is {tuple(found[name].shape)}, the course's {shape}"
    known = {id(parameter) for name, parameter in addresses(model).items() if name in wanted}
    if more := [name for name, parameter in model.named_parameters() if id(parameter) not in known]:
        return None, f"it has a parameter more, {more[0]}"
    return {name: found[name].float().cpu().contiguous() for name in wanted}, None


def write(path, model, track):
    """Store the model's weights atomically. Returns None, or why they cannot be stored under the twin's names."""
    tensors, reason = named(model, track)
    if tensors is None:
        return reason
    sizes = _sizes_of(model, tensors, track)
    header = {"track": track, "sizes": json.dumps(sizes)}
    replace(Path(path), save({name: tensor.clone() for name, tensor in tensors.items()}, metadata=header))
    return None


def load(path, model):
    """Copy a file's weights into the twin's `model`, all or nothing.

    Raises WeightsError for a file that is missing, not safetensors, or holds other names, shapes or kinds of
    numbers, or numbers that are not finite. Then the model is as it was.
    """
    tensors, _ = _read(path)
    _require_fit(tensors, _shapes(model))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])
    return model


def twin(path):
    """The course's own model with the file's sizes and weights, in eval mode, on the CPU. Raises WeightsError."""
    tensors, header = _read(path)
    track = header.get("track")
    if track not in ("a", "b"):
        raise WeightsError(f"{path} does not say of which track it is; use the file that fit wrote")
    try:
        sizes = json.loads(header["sizes"])
        meta = _built(track, _sizes_from(tensors, track, sizes["n_heads"], sizes["norm_first"]))
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise WeightsError(f"{path} does not say which sizes the model has; use the file that fit wrote") from error
    _require_fit(tensors, _shapes(meta))
    model = meta.to_empty(device="cpu")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])
    return model.eval()


# ---- sizes ---------------------------------------------------------------------------------------


def _sizes_of(model, tensors, track):
    """The sizes of a live model: what its shapes say, and what only its modules know."""
    if track == "b":
        return _sizes_from(tensors, track, model.config.n_heads, model.config.norm_first)
    attention = model.encoder.blocks[0].attention
    return _sizes_from(tensors, track, attention.n_heads, "encoder.norm.gamma" in tensors)


def _sizes_from(tensors, track, n_heads, norm_first):
    """Every size that shapes tell. Raises KeyError for a name that is missing, WeightsError for what cannot be."""
    blocks = "blocks." if track == "b" else "encoder.blocks."
    n_layers = len({name[len(blocks) :].split(".")[0] for name in tensors if name.startswith(blocks)})
    if type(n_heads) is not int or type(norm_first) is not bool or n_heads < 1:
        raise WeightsError("n_heads must be a number and norm_first true or false")
    d_ff, d_model = _matrix(tensors, f"{blocks}0.ffn.w_1.weight")
    if d_model % n_heads:
        raise WeightsError(f"n_heads must divide d_model, and {n_heads} does not divide {d_model}")
    sizes = dict(d_model=d_model, n_heads=n_heads, d_ff=d_ff, n_layers=n_layers, norm_first=norm_first)
    if track == "a":
        vocabularies = [_matrix(tensors, f"{side}_embedding.weight")[0] for side in ("src", "tgt")]
        return dict(zip(("src_vocab", "tgt_vocab"), vocabularies, strict=True)) | sizes
    narrow = _matrix(tensors, "blocks.0.attention.w_k.weight")[0]
    if narrow % (d_model // n_heads):
        raise WeightsError("keys have no whole number of heads")
    sizes |= dict(vocab_size=_matrix(tensors, "token_embedding.weight")[0], tied="output.weight" not in tensors)
    if not sizes["tied"] and tensors["output.weight"].data_ptr() == tensors["token_embedding.weight"].data_ptr():
        sizes["tied"] = True
    return sizes | dict(max_len=_matrix(tensors, "positions.table")[0], n_kv_heads=narrow // (d_model // n_heads))


def _matrix(tensors, name):
    if tensors[name].dim() != 2 or 0 in tensors[name].shape:
        raise WeightsError(f"{name} is not a matrix")
    return tuple(tensors[name].shape)


def _built(track, sizes):
    """The twin on the meta device: shapes without memory."""
    with torch.device("meta"):
        return oracle.Transformer(**sizes) if track == "a" else oracle.GPT(ModelConfig(**sizes))


def _shapes(model):
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


# ---- reading what others wrote -------------------------------------------------------------------


def _read(path):
    path = Path(path)
    if not path.is_file():
        raise WeightsError(f"there is no file {path}")
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise WeightsError(f"{path.name} is not a whole safetensors file") from error


def _require_fit(tensors, shapes):
    if missing := sorted(shapes.keys() - tensors.keys()):
        raise WeightsError(f"the weights lack {missing[0]}" + (f" and {len(missing) - 1} more" if missing[1:] else ""))
    if extra := sorted(tensors.keys() - shapes.keys()):
        raise WeightsError(f"the weights hold {extra[0]}, which the model does not have")
    for name, shape in shapes.items():
        if tuple(tensors[name].shape) != shape:
            raise WeightsError(f"{name} has the shape {tuple(tensors[name].shape)}, and the model wants {shape}")
        if not tensors[name].is_floating_point():
            raise WeightsError(f"{name} holds {tensors[name].dtype}, not floating-point numbers")
        if not bool(tensors[name].isfinite().all()):
            raise WeightsError(f"{name} holds numbers that are not finite")
