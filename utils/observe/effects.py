"""What a call left behind: are the things it was handed as they were, and does its answer share memory with them?"""

import collections
import types

import numpy as np
import torch
from torch import nn

from utils.observe import codec


def parts_of(result):
    """The parts of a returned value, in one order whoever made it: those of a dict by their keys."""
    if isinstance(result, dict):
        return [result[key] for key in sorted(result, key=str)]
    return result if isinstance(result, (tuple, list)) else (result,)


def snapshot(value):
    """A copy to compare with later; modules by their state, generators by seed, everything else by its encoding."""
    if isinstance(value, nn.Module):
        return {key: snapshot(part) for key, part in value.state_dict().items()}, _flags(value), _grads(value)
    if type(value) is list and any(isinstance(part, nn.Module) for part in value):
        return [snapshot(part) for part in value]
    if isinstance(value, torch.Generator):
        return value.initial_seed()
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) is np.ndarray:
        return value.copy()
    return value if type(value) in _UNCHANGING else codec.encode(value)


_UNCHANGING = {type(None), bool, int, float, str}


def _flags(module):
    flags = [(part.training, len(part._forward_hooks), len(part._forward_pre_hooks)) for part in module.modules()]
    return flags, [part.requires_grad for part in module.parameters()]


def _grads(module):
    return {name: None if part.grad is None else part.grad.clone() for name, part in module.named_parameters()}


def same(before, now):
    """Is an object still what its snapshot says?"""
    if isinstance(now, nn.Module) and type(before) is tuple:
        state, flags, grads = before
        new, slopes = now.state_dict(), _grads(now)
        if grads.keys() != slopes.keys() or not all(same(grads[key], slopes[key]) for key in grads):
            return False
        return flags == _flags(now) and state.keys() == new.keys() and all(same(state[key], new[key]) for key in new)
    if type(now) is type(before) is list and any(isinstance(part, nn.Module) for part in now):
        return len(before) == len(now) and all(map(same, before, now))
    if isinstance(now, torch.Tensor) and isinstance(before, torch.Tensor):
        if before.shape != now.shape or before.dtype != now.dtype:
            return False
        return torch.equal(before, now) or torch.equal(before.nan_to_num(), now.detach().nan_to_num())
    if type(now) is type(before) is np.ndarray:
        return before.dtype == now.dtype and before.shape == now.shape and before.tobytes() == now.tobytes()
    return before is now or before == snapshot(now)


def bytes_held(thing):
    """Bytes of every tensor that a module or another object keeps; what lies in one storage is counted once."""
    found = {}
    for _, part in _held(thing):
        if isinstance(part, torch.Tensor):
            storage = part.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
        else:
            found[id(part)] = part.nbytes
    return sum(found.values())


def learning_held(thing):
    """Names of the kept tensors that a gradient may still reach: each keeps alive what it was made from."""
    return sorted({name for name, part in _held(thing) if isinstance(part, torch.Tensor) and part.requires_grad})


def _held(thing):
    """(name, tensor or array) of all that an object keeps: as parameter, buffer or attribute, also in containers."""
    seen, left = set(), [("", thing)]
    while left:
        name, part = left.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, (torch.Tensor, np.ndarray)):
            yield name, part
        elif isinstance(part, dict):
            left += [(str(key), one) for key, one in part.items()]
        elif isinstance(part, (list, tuple, set, collections.deque)):
            left += [(name, one) for one in part]
        elif hasattr(part, "__dict__") and not isinstance(part, (type, types.FunctionType, types.ModuleType)):
            left += vars(part).items()


def shares(result, argument):
    try:
        return _shares_storage(result, argument)
    except (RuntimeError, NotImplementedError, TypeError):  # a kind of tensor without storage shares none
        return False


def _shares_storage(result, argument):
    parts = parts_of(result)
    if isinstance(argument, nn.Module):
        return any(_shares_storage(result, part) for part in argument.parameters())
    if isinstance(argument, torch.Tensor):
        where = argument.untyped_storage().data_ptr()
        tensors = [part for part in parts if isinstance(part, torch.Tensor) and part.layout is torch.strided]
        return any(part.untyped_storage().data_ptr() == where for part in tensors)
    if isinstance(argument, np.ndarray):
        return any(isinstance(part, np.ndarray) and np.may_share_memory(part, argument) for part in parts)
    return False
