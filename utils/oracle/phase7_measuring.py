"""Twins of phase 7, measuring: operations, memory, shares of a ceiling, bits, words in common, who was looked at."""

import math

import torch
from torch import nn

from utils.observe.forbid import twin
from utils.oracle.phase4_counts import count_parameters

__all__ = ["alignment_from_attention", "bits_per_byte", "bleu", "flops_per_token", "mfu", "training_memory"]


def _refuse_two_stacks(config):
    if config.src_vocab_size is not None:
        raise ValueError("src_vocab_size is given: an encoder-decoder has two lengths, this counts decoders")


def _matrices(config):
    """The layers of one block that multiply, without memory."""
    width, narrow = config.d_model, config.d_model // config.n_heads * (config.n_kv_heads or config.n_heads)
    sizes = [(width, width), (width, narrow), (width, narrow), (width, width), (width, config.d_ff)]
    with torch.device("meta"):
        return [nn.Linear(*size, bias=False) for size in (*sizes, (config.d_ff, width))]


@twin
def flops_per_token(config, seq_len):
    """A forward pass row by row on the meta device, thrice; all numbers are floats."""
    _refuse_two_stacks(config)
    with torch.device("meta"):
        head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        looked_at = 2 * torch.empty(config.n_layers, seq_len, config.d_model).numel()
    entries = head.weight.numel() + config.n_layers * sum(part.weight.numel() for part in _matrices(config))
    forward = {"causal": 2 * entries + looked_at, "palm": 2 * entries + 2 * looked_at}
    return {name: 3.0 * count for name, count in forward.items()}


@twin
def training_memory(config, batch, seq_len, bytes_per_element, fused=True):
    """By the tensors themselves, on the meta device: what goes into each layer is kept, and what attention mixes."""
    _refuse_two_stacks(config)
    parameters = float(count_parameters(config)["total"])
    w_q, w_k, w_v, w_o, w_1, w_2 = _matrices(config)
    kept = [w_q.in_features] * 2 + [part.out_features for part in (w_q, w_k, w_v)] + [w_o.in_features]
    kept += [w_1.in_features] * 2 + [w_1.out_features, w_2.in_features]
    with torch.device("meta"):
        tokens = torch.empty(config.n_layers, batch, seq_len, 1)
        tables = torch.empty(config.n_layers, batch, config.n_heads, seq_len, seq_len, dtype=torch.int8)
        logits = torch.empty(2, batch, seq_len, config.vocab_size, dtype=torch.float32)
    activations = tokens.numel() * sum(kept) + (0 if fused else tables.numel())
    held = {
        "weights": 4 * parameters,
        "gradients": 4 * parameters,
        "optimizer": 8 * parameters,
        "activations": float(activations * bytes_per_element),
        "logits": float(logits.nbytes),
    }
    return held | {"total": sum(held.values())}


@twin
def mfu(tokens_per_second, flops, peak):
    """The speed over the fastest speed there can be."""
    if not 0 < peak < math.inf:
        raise ValueError(f"peak must be positive and finite, got {peak}")
    limit = peak / flops
    if tokens_per_second > limit * (1 + 1e-12):
        raise ValueError(f"more than the peak ({tokens_per_second / limit:.1%}): the peak was measured wrong")
    return float(min(tokens_per_second / limit, 1.0))


@twin
def bits_per_byte(loss_sum, n_bytes):
    """The logarithm to base 2 of how unlikely the text was, spread over its bytes."""
    if n_bytes < 1:
        raise ValueError(f"n_bytes must be at least 1, got {n_bytes}")
    return float(loss_sum) * math.log2(math.e) / n_bytes


@twin
def bleu(hypotheses, references):
    """sacrebleu's own."""
    from sacrebleu.metrics import BLEU  # on use: half a second that no other exercise needs

    if len(hypotheses) != len(references) or not hypotheses:
        raise ValueError(f"{len(hypotheses)} and {len(references)} sentences: give equally many, at least one")
    scorer = BLEU(tokenize="none", smooth_method="none", force=True)
    score = scorer.corpus_score(list(hypotheses), [list(references)])
    return {
        "precisions": list(map(float, score.precisions)),
        "brevity_penalty": float(score.bp),
        "bleu": float(score.score),
    }


@twin
def alignment_from_attention(weights, pad_mask):
    """Row by row over the places that are words."""
    words = [place for place, is_word in enumerate(pad_mask.tolist()) if is_word]
    if not words:
        return []
    rows = weights.double().sum(0).tolist()
    return [(max(range(len(words)), key=lambda n: row[words[n]]), target) for target, row in enumerate(rows)]
