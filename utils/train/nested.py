"""Nested dicts, lists, tuples, numbers and tensors as JSON beside named tensors, and back; no pickle anywhere.

The state of a learner's own AdamW may look like anything; what is made of these kinds is stored as it is.
"""

import torch

PLAIN = (bool, int, float, str, type(None))


class CannotStore(TypeError):
    """The value holds something that is neither plain nor a tensor."""


def flatten(value, tensors=None):
    """(skeleton for JSON, {name: tensor on the CPU}). Promises: the tensors are copies. Raises CannotStore."""
    tensors = {} if tensors is None else tensors
    return _pack(value, tensors), tensors


def _pack(value, tensors):
    if type(value) in PLAIN:
        return value
    if isinstance(value, torch.Tensor):
        name = f"t{len(tensors)}"
        tensors[name] = value.detach().to("cpu", copy=True).contiguous()
        return {"tensor": name, "home": value.device.type}
    if isinstance(value, dict):
        return {"dict": [[_pack(key, tensors), _pack(item, tensors)] for key, item in value.items()]}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_pack(item, tensors) for item in value]}
    raise CannotStore(f"a {type(value).__name__} cannot be stored")


def unflatten(skeleton, tensors, device="cpu"):
    """The value again; tensors that lived on a GPU go to `device`."""
    if not isinstance(skeleton, dict):
        return skeleton
    if "tensor" in skeleton:
        return tensors[skeleton["tensor"]].to("cpu" if skeleton["home"] == "cpu" else device)
    (kind, items), *_ = skeleton.items()
    if kind == "dict":
        pairs = ([unflatten(part, tensors, device) for part in pair] for pair in items)
        return {tuple(key) if isinstance(key, list) else key: item for key, item in pairs}
    found = [unflatten(item, tensors, device) for item in items]
    return tuple(found) if kind == "tuple" else found
