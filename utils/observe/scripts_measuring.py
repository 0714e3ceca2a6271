"""Plays for functions that answer with numbers: floats of any kind, whole numbers, tensors without axes all count."""

import numbers

import torch


def plain(value):
    """Numbers as floats, also inside dicts, lists and tuples (which become lists); everything else as it is."""
    if isinstance(value, torch.Tensor) and value.dim() == 0 and value.dtype != torch.bool:
        return float(value)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return float(value)
    if type(value) is dict:
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if type(value) in (list, tuple) else value


def flops_per_token(obj):
    def play(config, seq_len):
        return plain(obj(config, seq_len))

    return play


def training_memory(obj):
    def play(config, batch, seq_len, bytes_per_element, **options):
        return plain(obj(config, batch, seq_len, bytes_per_element, **options))

    return play


def mfu(obj):
    def play(tokens_per_second, flops, peak):
        return plain(obj(tokens_per_second, flops, peak))

    return play


def bits_per_byte(obj):
    def play(loss_sum, n_bytes):
        return plain(obj(loss_sum, n_bytes))

    return play


def bleu(obj):
    def play(hypotheses, references):
        return plain(obj(hypotheses, references))

    return play


def alignment_from_attention(obj):
    def play(weights, pad_mask):
        """Pairs may be tuples, lists or rows of a table."""
        pairs = obj(weights, pad_mask)
        if hasattr(pairs, "tolist"):
            pairs = pairs.tolist()
        if not isinstance(pairs, (list, tuple)):
            return pairs
        return [tuple(map(_whole, pair)) if isinstance(pair, (list, tuple)) else pair for pair in pairs]

    return play


def _whole(number):
    """A whole number of any kind as an int."""
    whole = isinstance(number, numbers.Integral) or (isinstance(number, torch.Tensor) and number.dim() == 0)
    return int(number) if whole and not isinstance(number, bool) and number == int(number) else number


_PLAYS = (flops_per_token, training_memory, mfu, bits_per_byte, bleu, alignment_from_attention)
SCRIPTS = {play.__name__: play for play in _PLAYS}
