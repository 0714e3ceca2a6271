"""Unseen answers to leaks_future: tests that miss a leak, cry wolf or leave traces, and odd ones that are right."""

import numpy as np
import torch
from torch import nn

from tests.bank import right, wrong

LONGEST = 16


def _sentences(batch=2, seq_len=LONGEST, dtype=torch.float64):
    draws = torch.Generator().manual_seed(5)
    return torch.randn(batch, seq_len, 8, generator=draws, dtype=dtype)


@torch.no_grad()
def _leaks(attention, x, atol=1e-6, change=None, last=LONGEST):
    """The sound version: change everything from a cut on and look at everything before it."""
    before = attention(x)
    for cut in range(1, min(last, x.shape[1])):
        other = x.clone()
        other[:, cut:] = -2 * other[:, cut:] + 1 if change is None else change(other[:, cut:])
        if not torch.allclose(attention(other)[:, :cut], before[:, :cut], rtol=0, atol=atol):
            return True
    return False


# leaks_future, wrong ------------------------------------------------------------------------------------------------


@wrong("leaks_future", says=None)
def looks_with_coarse_eyes(attention):
    """Breaks "none missed": differences below 0.1 count as rounding, a leaked weight of e^−8 with them."""
    return _leaks(attention, _sentences(), atol=0.1)


@wrong("leaks_future", says=None)
def nudges_too_gently(attention):
    """Breaks "none missed": a nudge of 1e-4 through a weight of e^−8 stays below the tolerance."""
    return _leaks(attention, _sentences(dtype=torch.float32), atol=3e-5, change=lambda later: later + 1e-4)


@wrong("leaks_future", says=None)
def short_sentences(attention):
    """Breaks "none missed": no sentence of more than five tokens, so a leak in late rows is never met."""
    return any(_leaks(attention, _sentences(seq_len=length)) for length in (2, 3, 4, 5))


@wrong("leaks_future", says=None)
def changes_the_last_token_alone(attention):
    """Breaks "none missed": rows that see one step ahead or only the first rows' future need other tokens."""
    x = _sentences()
    other = torch.cat([x[:, :-1], x[:, -1:] + 1], 1)
    return not torch.allclose(attention(other)[:, :8], attention(x)[:, :8])


@wrong("leaks_future", says=None)
def watches_the_nearest_row(attention):
    """Breaks "only a far token leaks": changes one token, looks at the row before it."""
    x = _sentences()
    before = attention(x)
    for place in range(1, LONGEST):
        other = x.clone()
        other[:, place] += 1
        if not torch.allclose(attention(other)[:, place - 1], before[:, place - 1]):
            return True
    return False


@wrong("leaks_future", says=None)
def watches_the_first_half(attention):
    """Breaks "only late rows leak": no row of the second half is looked at."""
    return _leaks(attention, _sentences(), last=LONGEST // 2)


@wrong("leaks_future", says=None)
def shuffles_what_is_later(attention):
    """Breaks "statistics over the whole sentence": turning the later tokens round leaves them as they were."""
    return _leaks(attention, _sentences(), change=lambda later: later.flip(1))


@wrong("leaks_future", says=None)
def poisons_with_nan(attention):
    """Breaks "No false alarm": a weight of exactly 0 times NaN is NaN, so a right attention is accused."""
    return _leaks(attention, _sentences(), change=lambda later: later * float("nan"))


@wrong("leaks_future", says=None)
def wants_the_prefix_bit_for_bit(attention):
    """Breaks "No false alarm": sums of other lengths round otherwise, and torch.equal calls that a leak."""
    with torch.no_grad():
        for dtype in (torch.float32, torch.float64):
            for batch in (1, 2, 3, 7, 32):
                x = _sentences(batch, dtype=dtype)
                whole = attention(x)
                if any(not torch.equal(attention(x[:, :cut]), whole[:, :cut]) for cut in range(1, LONGEST)):
                    return True
    return False


@wrong("leaks_future", says=None)
def answers_with_a_numpy_bool(attention):
    """Breaks "Returns a Python bool": np.bool_ prints the same."""
    return np.bool_(_leaks(attention, _sentences()))


@wrong("leaks_future", says=None)
def answers_with_a_tensor(attention):
    """Breaks "Returns a Python bool": a 0-d tensor."""
    return torch.tensor(_leaks(attention, _sentences()))


@wrong("leaks_future", says=None)
def seeds_the_world(attention):
    """Breaks rule 6: sets the global random state to draw its sentences."""
    torch.manual_seed(5)
    return _leaks(attention, torch.randn(2, LONGEST, 8, dtype=torch.float64))


@wrong("leaks_future", says=None)
def draws_from_the_world(attention):
    """Breaks rule 6: moves the global random state on."""
    return _leaks(attention, torch.randn(2, LONGEST, 8, dtype=torch.float64))


@wrong("leaks_future", says=None)
def leaves_it_in_eval(attention):
    """Breaks "the attention is unchanged": a module comes back with its train/eval flag turned over."""
    if isinstance(attention, nn.Module):
        attention.train(not attention.training)
    return _leaks(attention, _sentences())


# leaks_future, right ------------------------------------------------------------------------------------------------


@right("leaks_future", why="gradients of random mixtures of one row, for every length")
def by_gradients(attention):
    draws = torch.Generator().manual_seed(9)
    for length in range(2, LONGEST + 1):
        x = _sentences(1, length).requires_grad_()
        out = attention(x)
        for row in range(length - 1):
            mixture = torch.randn(out.shape[-1], generator=draws, dtype=out.dtype)
            if not out.requires_grad:
                return False
            slope = torch.autograd.grad(out[0, row] @ mixture, x, retain_graph=True, allow_unused=True)[0]
            if slope is not None and slope[0, row + 1 :].abs().max() > 1e-7:
                return True
    return False


@right("leaks_future", why="a prefix alone must give what it gives inside the sentence, within rounding")
def prefix_by_prefix(function):
    x = 2 * _sentences(3)
    with torch.no_grad():
        whole = function(x)
        gaps = [(function(x[:, :cut]) - whole[:, :cut]).abs().max().item() for cut in range(1, LONGEST)]
    return max(gaps) > 1e-6


@right("leaks_future", why="all cuts stand in one batch; only the row just before its cut is looked at")
def all_cuts_at_once(attention):
    cuts = torch.arange(1, LONGEST)
    later = torch.arange(LONGEST) >= cuts[:, None]
    x = _sentences(1).expand(LONGEST - 1, -1, -1)
    with torch.no_grad():
        gap = attention(torch.where(later[..., None], x.cos() * 3, x)) - attention(x.clone())
    return bool(gap[torch.arange(LONGEST - 1), cuts - 1].abs().amax() > 1e-6)
