"""leaks_future: wrong detectors and unusual right ones."""

import math

import torch

from tests.bank import right, wrong


def _sentence(seed=0, seq_len=16, batch=2, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, seq_len, 8, dtype=dtype, generator=generator)


@torch.no_grad()
def _moved(attention, x, changed, tolerance=1e-9):
    """Per row: did the output move when the tokens `changed` got new contents?"""
    other = x.clone()
    other[:, changed] = _sentence(seed=1, seq_len=x.shape[1], dtype=x.dtype)[: len(x), changed]
    return ((attention(other) - attention(x)).abs() > tolerance).any(-1).any(0)  # (T,)


# ---------------------------------------------------------------- wrong


@wrong("leaks_future", says="says False for an attention without a mask")
def length_only(attention):
    x = _sentence()
    return attention(x).shape[1] != x.shape[1]


@wrong("leaks_future", says="says False for an attention without a mask")
def shape_of_every_prefix(attention):
    x = _sentence()
    return any(attention(x[:, :t]).shape[:2] != (2, t) for t in range(1, 17))


@wrong("leaks_future")
def always_false(attention):
    attention(_sentence())
    return False


@wrong("leaks_future")
def always_true(attention):
    attention(_sentence())
    return True


@wrong("leaks_future")
def row_0_alone(attention):
    return bool(_moved(attention, _sentence(), slice(1, 16))[0])


@wrong("leaks_future")
def row_0_gradient(attention):
    x = _sentence().requires_grad_()
    (gradient,) = torch.autograd.grad(attention(x)[:, 0].sum(), x)
    return bool((gradient[:, 1:] != 0).any())


@wrong("leaks_future", says="says True for a causal one")
def first_token_changed(attention):
    return bool(_moved(attention, _sentence(), slice(0, 1))[1:].any())


@wrong("leaks_future", says="says True for a causal one")
def past_changed_at_every_cut(attention):
    return any(bool(_moved(attention, _sentence(), slice(0, cut))[cut:].any()) for cut in range(1, 16))


@wrong("leaks_future")
def all_rows_compared(attention):
    return bool(_moved(attention, _sentence(), slice(15, 16)).any())


@wrong("leaks_future")
def own_row_compared_too(attention):
    return any(bool(_moved(attention, _sentence(), slice(cut, 16))[: cut + 1].any()) for cut in range(1, 16))


@wrong("leaks_future", says="misses a leak that needs a longer sentence")
def two_tokens_only(attention):
    return bool(_moved(attention, _sentence(seq_len=2), slice(1, 2))[0])


@wrong("leaks_future", says="misses a leak that needs a longer sentence")
def two_tokens_prefix(attention):
    x = _sentence(seq_len=2)
    return not torch.allclose(attention(x)[:, :1], attention(x[:, :1]))


@wrong("leaks_future")
def three_tokens_only(attention):
    x = _sentence(seq_len=3)
    return any(bool(_moved(attention, x, slice(cut, 3))[:cut].any()) for cut in (1, 2))


@wrong("leaks_future")
def last_token_only(attention):
    return bool(_moved(attention, _sentence(), slice(15, 16))[14])


@wrong("leaks_future")
def first_three_rows_only(attention):
    x = _sentence()
    return any(bool(_moved(attention, x, slice(t + 1, 16))[t]) for t in range(3))


@wrong("leaks_future")
def next_token_only(attention):
    x = _sentence()
    return any(bool(_moved(attention, x, slice(t + 1, t + 2))[t]) for t in range(15))


@wrong("leaks_future")
def middle_cut_only(attention):
    return bool(_moved(attention, _sentence(), slice(8, 16))[7])


@wrong("leaks_future")
def coarse_tolerance(attention):
    x = _sentence()
    return any(bool(_moved(attention, x, slice(cut, 16), tolerance=0.5)[:cut].any()) for cut in range(1, 16))


@wrong("leaks_future")
def tolerance_of_a_hundredth(attention):
    x = _sentence()
    return any(bool(_moved(attention, x, slice(cut, 16), tolerance=0.01)[:cut].any()) for cut in range(1, 16))


@wrong("leaks_future")
def poisoned_with_nan(attention):
    x = _sentence()
    x[:, 8:] = float("nan")
    return bool(attention(x)[:, :8].isnan().any())


@wrong("leaks_future")
def prefix_of_one(attention):
    x = _sentence()
    return not torch.allclose(attention(x)[:, :1], attention(x[:, :1]))


@wrong("leaks_future")
def opposite_answer(attention):
    x = _sentence()
    return not any(bool(_moved(attention, x, slice(cut, 16))[:cut].any()) for cut in range(1, 16))


@wrong("leaks_future")
def tensor_instead_of_bool(attention):
    x = _sentence()
    return torch.stack([_moved(attention, x, slice(cut, 16))[:cut].any() for cut in range(1, 16)]).any()


@wrong("leaks_future")
def mode_left_switched(attention):
    if isinstance(attention, torch.nn.Module):
        attention.train(not attention.training)
    x = _sentence()
    return any(bool(_moved(attention, x, slice(cut, 16))[:cut].any()) for cut in range(1, 16))


# ---------------------------------------------------------------- right


@right("leaks_future", why="perturbation at every cut")
def every_cut(attention):
    x = _sentence()
    return any(bool(_moved(attention, x, slice(cut, 16))[:cut].any()) for cut in range(1, 16))


@right("leaks_future", why="gradients of every row under a random cotangent")
def gradients_of_rows(attention):
    x = _sentence().requires_grad_()
    out = attention(x)
    generator = torch.Generator().manual_seed(3)
    for t in range(15):
        cotangent = torch.randn(out[:, t].shape, dtype=out.dtype, generator=generator)
        (gradient,) = torch.autograd.grad(out[:, t], x, cotangent, retain_graph=True, allow_unused=True)
        if gradient is not None and gradient[:, t + 1 :].abs().max() > 1e-10:
            return True
    return False


@right("leaks_future", why="the whole Jacobian, its part above the diagonal")
def jacobian_above_diagonal(attention):
    x = _sentence(batch=1)
    jacobian = torch.autograd.functional.jacobian(attention, x).abs().amax((0, 2, 3, 5))  # (T_out, T_in)
    return bool((jacobian.triu(1) > 1e-10).any().item())


@right("leaks_future", why="every prefix alone against the same rows inside the whole sentence, both lengths varied")
def prefixes(attention):
    x = _sentence(batch=1)
    with torch.inference_mode():
        whole = attention(x)
        return not all(
            torch.allclose(attention(x[:, :t]), whole[:, :t], rtol=1e-7, atol=1e-10) for t in range(1, x.size(1))
        )


@right("leaks_future", why="one batch holds every cut, each with other new tokens, at three lengths")
def one_batch_of_cuts(attention):
    for seq_len in (2, 5, 16):
        x = _sentence(batch=1, seq_len=seq_len).expand(seq_len, -1, -1)
        fresh = _sentence(seed=7, batch=seq_len, seq_len=seq_len)
        future = torch.ones(seq_len, seq_len, dtype=torch.bool).triu()  # row c: tokens from c on are new
        old, new = attention(x).detach(), attention(torch.where(future[..., None], fresh, x)).detach()
        moved = (old - new).abs().amax(-1) > 1e-9 * old.abs().max().clamp(min=1)
        if (moved & ~future).any():
            return True
    return False


class Detector:
    """Keeps its settings; pulls one number made of the early rows back to the late tokens."""

    def __init__(self, trials, tolerance):
        self.trials, self.tolerance = trials, tolerance

    def __call__(self, attention):
        return any(self.trial(attention, seed) for seed in range(self.trials))

    def trial(self, attention, seed):
        x = _sentence(seed=seed, batch=1, seq_len=16 - seed)
        for cut in range(1, x.shape[1]):
            _, gradient = torch.autograd.functional.vjp(
                lambda inputs, rows=cut: attention(inputs)[:, :rows].sin().mean() * math.pi, x
            )
            if gradient[:, cut:].norm() > self.tolerance:
                return True
        return False


right("leaks_future", why="an object that runs vector-Jacobian products at three lengths")(Detector(3, 1e-9))
