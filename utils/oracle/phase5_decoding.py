"""Twins of phase 5, decoding."""

import torch

from utils.observe.forbid import twin

__all__ = ["beam_search", "filter_logits", "greedy_decode", "sample"]


@twin
def greedy_decode(next_logits, prompt, max_new_tokens, eos_id, pad_id):
    """Rows as lists, each with its own end."""
    rows, ended = prompt.tolist(), [False] * len(prompt)
    while len(rows[0]) < prompt.shape[1] + max_new_tokens and not all(ended):
        scores = next_logits(torch.tensor(rows, dtype=prompt.dtype)).tolist()
        for place, row in enumerate(rows):
            best = scores[place].index(max(scores[place]))
            row.append(pad_id if ended[place] else best)
            ended[place] = ended[place] or best == eos_id
    return torch.tensor(rows, dtype=prompt.dtype)


@twin
def filter_logits(logits, temperature=1.0, top_k=None, top_p=None):
    """Token by token: kept if few enough stand before it, and if what stands before it weighs too little."""
    if temperature < 0:
        raise ValueError("temperature must not be negative")
    if top_k is not None and top_k < 1:
        raise ValueError("top_k must be at least 1")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError("top_p must be above 0 and at most 1")
    if temperature == 0:
        temperature, top_k = 1.0, 1
    scaled = logits / temperature
    larger = scaled[..., None, :] > scaled[..., :, None]  # (…, token, other)
    kept = larger.sum(-1) < (top_k or scaled.shape[-1])
    probs = scaled.masked_fill(~kept, float("-inf")).softmax(-1)
    before = (larger * probs[..., None, :]).sum(-1)
    if top_p is not None and top_p < 1:
        kept = kept & (before < top_p)
    return scaled.masked_fill(~kept, float("-inf"))


@twin
def sample(logits, generator):
    """The largest of logits + Gumbel noise is a draw from their softmax."""
    noise = -torch.empty(logits.shape, dtype=torch.float64).exponential_(generator=generator).log()
    return (logits.double() + noise).argmax(-1)


@twin
def beam_search(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty):
    """A table of all continuations per step, and topk over it."""
    alive, sums = torch.tensor([[bos_id]]), torch.zeros(1, dtype=torch.float64)
    done = []
    for _ in range(max_len):
        if not len(alive):
            break
        table = sums[:, None] + next_log_probs(alive).double()  # (n, vocab)
        best, places = table.flatten().topk(min(n_beams, int(table.isfinite().sum())))
        rows, tokens = places // table.shape[1], places % table.shape[1]
        grown = torch.cat([alive[rows], tokens[:, None]], -1)
        done += [(row, total) for row, total in zip(grown[tokens == eos_id], best[tokens == eos_id], strict=True)]
        alive, sums = grown[tokens != eos_id], best[tokens != eos_id]
    done += list(zip(alive, sums, strict=True))
    scored = [(row.tolist(), total.item() / (len(row) - 1) ** length_penalty) for row, total in done]
    return sorted(scored, key=lambda pair: -pair[1])[:n_beams]
