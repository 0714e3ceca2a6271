"""Delegation in disguise: right numbers by ways that only a report can flag, or that the author's `evaluate` accepts.

They are not registered as wrong: `utils.oracle` is refused by `check` alone, and a thread or a switched-off mode is
outside what a mode sees. A test of those bans can take them from DISGUISED, pairs of an exercise and its answer.
"""

import functools
import threading

import torch
from torch.nn import functional as F
from torch.nn.functional import scaled_dot_product_attention as bound_early
from torch.utils._python_dispatch import _disable_current_modes


def the_twin_itself(q, k, v, attn_mask=None):
    """The course's own answer."""
    from utils import oracle

    return oracle.sdpa(q, k, v, attn_mask)


def the_twin_as_mine(q, k, v, attn_mask=None):
    """The course's own answer, which `mine` hands out while grading."""
    from utils.mycode import mine

    return mine("sdpa")(q, k, v, attn_mask)


def _opened(q, k, v, attn_mask):
    """What torch asks for: a full mask without empty rows; and where those rows were."""
    if q.shape[-1] != k.shape[-1] or k.shape[-2] != v.shape[-2]:
        raise ValueError("d_head or kv_len differ")
    if attn_mask is not None and attn_mask.dtype is not torch.bool:
        raise ValueError("attn_mask must be bool")
    size = (*q.shape[:-1], k.shape[-2])
    seen = torch.ones(size, dtype=torch.bool) if attn_mask is None else attn_mask.expand(size)
    some = seen.any(-1, keepdim=True)
    return seen | ~some, some


def _in_a_thread(function, q, k, v, attn_mask):
    seen, some = _opened(q, k, v, attn_mask)
    found = []

    def work():
        try:
            found.append(function(q, k, v, attn_mask=seen))
        except Exception as error:  # told to the caller, not to stderr
            found.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0] * some


def from_another_thread(q, k, v, attn_mask=None):
    """Function and dispatch modes belong to a thread: the public function, called from another one."""
    return _in_a_thread(lambda *args, **options: F.scaled_dot_product_attention(*args, **options), q, k, v, attn_mask)


def bound_early_in_another_thread(q, k, v, attn_mask=None):
    """The same with a name that was bound before anything could be patched."""
    return _in_a_thread(bound_early, q, k, v, attn_mask)


def without_any_mode(q, k, v, attn_mask=None):
    """All modes are taken off for the length of one call."""
    seen, some = _opened(q, k, v, attn_mask)
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        return bound_early(q, k, v, attn_mask=seen) * some


@functools.cache
def _compiled():
    return torch.compile(bound_early, backend="eager", dynamic=True)


def compiled_on_demand(q, k, v, attn_mask=None):
    """torch.compile around an early import: seconds for the first call, and it may warn on stderr."""
    seen, some = _opened(q, k, v, attn_mask)
    return _compiled()(q, k, v, attn_mask=seen) * some


DISGUISED = (
    ("sdpa", the_twin_itself),
    ("sdpa", the_twin_as_mine),
    ("sdpa", from_another_thread),
    ("sdpa", bound_early_in_another_thread),
    ("sdpa", without_any_mode),
    ("sdpa", compiled_on_demand),
)
