"""leaks_future and score_variance, and answers that break a check itself: written after reading the checks."""

import torch

from tests.bank import wrong


def _sentence(seed, seq_len=16):
    return torch.randn(2, seq_len, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _leaks(attention, inputs=slice(None), outputs=slice(None)):
    """Do earlier outputs move with later inputs, at any cut? Only these features go in and are looked at."""
    x, base = _sentence(1), attention(_sentence(1))
    for cut in range(1, 16):
        other = x.clone()
        other[:, cut:, inputs] += _sentence(2)[:, cut:, inputs]
        if bool(((attention(other) - base)[:, :cut, outputs].abs() > 1e-9).any()):
            return True
    return False


# leaks_future -------------------------------------------------------------------------------------------------------


@wrong("leaks_future", says=None)
def looks_at_one_feature(attention):
    """Breaks "some output": a leak that reaches another feature of the output alone is missed."""
    return _leaks(attention, outputs=slice(0, 1))


@wrong("leaks_future", says=None)
def moves_one_feature(attention):
    """Breaks "some output depends on a later input": a leak from another feature of the input alone is missed."""
    return _leaks(attention, inputs=slice(0, 1))


@wrong("leaks_future", says=None)
def reads_the_name_of_the_pattern(attention):
    """Breaks "maps x to outputs": nothing is run; the attention's own attributes say which one it is."""
    if hasattr(attention, "upto"):
        return attention.upto != "here"
    harmless = ("causal", "strictly_past", "window", "itself")
    return attention.late or attention.fill > float("-inf") or attention.pattern.__name__ not in harmless


@wrong("leaks_future", says=None)
def switches_it_to_eval(attention):
    """Breaks "the attention is unchanged": one that came in train mode stays in eval mode."""
    attention.eval()
    return _leaks(attention)


@wrong("leaks_future", says=None)
def leaves_a_hook(attention):
    """Breaks "the attention is unchanged": a forward hook stays and keeps every output for ever."""
    seen = []
    attention.register_forward_hook(lambda module, args, out: seen.append(out))
    return _leaks(attention)


# score_variance -----------------------------------------------------------------------------------------------------


def _variances(q, k):
    scores = (q * k).sum(-1)
    return scores.var().item(), (scores / q.shape[-1] ** 0.5).var().item()


@wrong("score_variance", says=None)
def half_of_them_are_keys(d_head, n_samples, generator):
    """Breaks "n_samples pairs": n_samples vectors are drawn, half of them serve as keys."""
    return _variances(*torch.randn(n_samples, d_head, generator=generator, dtype=torch.float64).chunk(2))


@wrong("score_variance", says=None)
def never_more_than_2000(d_head, n_samples, generator):
    """Breaks "n_samples pairs": 2000 are thought to be enough."""
    return _variances(*torch.randn(2, min(n_samples, 2000), d_head, generator=generator, dtype=torch.float64))


@wrong("score_variance", says=None)
def from_an_exponential(d_head, n_samples, generator):
    """Breaks "standard normal": mean 0 and variance 1, but drawn from a shifted exponential distribution."""
    draws = torch.empty(2, n_samples, d_head, dtype=torch.float64)
    return _variances(*draws.exponential_(generator=generator).sub_(1))


@wrong("score_variance", says=None)
def sums_of_squares_in_whole_numbers(d_head, n_samples, generator):
    """Breaks the answer: integers far too large for a float, which a check must survive."""
    return 10**400 * d_head, 10**400


# answers and errors that a check must survive -----------------------------------------------------------------------


class _Mute(Exception):
    def __str__(self):
        return f"width {self.width}"  # never set: the message fails as well


@wrong("sdpa", says=None)
def an_error_that_cannot_be_printed(q, k, v, attn_mask=None):
    """Breaks "runs": raises an error of its own whose message raises again."""
    raise _Mute


@wrong("sdpa", says=None)
def a_tensor_out_of_vmap(q, k, v, attn_mask=None):
    """Breaks "runs": what comes back was made inside vmap and lives no longer."""
    kept = []
    torch.vmap(lambda row: (kept.append(row), row)[1])(q)
    return kept[0]


@wrong("sdpa", says=None)
def a_tensor_out_of_grad(q, k, v, attn_mask=None):
    """Breaks "runs": what comes back is wrapped by torch.func.grad."""
    kept = []
    torch.func.grad(lambda row: (kept.append(row), row.sum())[1])(q)
    return kept[0]
