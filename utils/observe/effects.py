"""What a call left behind: are the things it was handed as they were, and does its answer share memory with them?"""

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
    return [(part.training, len(part._forward_hooks), len(part._forward_pre_hooks)) for part in module.modules()]


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


def bytes_held(module):
    """Bytes of every tensor that a module keeps, as parameter, buffer or plain attribute, also inside containers."""
    found, seen, left = {}, set(), [module]
    while left:
        part = left.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, torch.Tensor):
            storage = part.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
        elif isinstance(part, np.ndarray):
            found[id(part)] = part.nbytes
        elif isinstance(part, dict):
            left += part.values()
        elif isinstance(part, (list, tuple, set)):
            left += part
        elif isinstance(part, nn.Module):
            left.append(vars(part))
    return sum(found.values())


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
