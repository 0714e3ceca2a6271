"""Signs of known mistakes in the exercises on measuring: what should have been refused.

A sign is rule(got, request) -> bool.
"""

import math

from utils.checks.phase5.rules_training import argument, failed, said


def above_the_ceiling(got, request):
    """Was a ratio above 1 told, or cut off at 1?"""
    speed, flops, peak = (argument(request, name) for name in ("tokens_per_second", "flops", "peak"))
    return 0 < peak < math.inf and speed * flops > peak and failed(got) != "ValueError"


def small_share_refused(got, request):
    """Was a share near 0 refused?"""
    speed, flops, peak = (argument(request, name) for name in ("tokens_per_second", "flops", "peak"))
    return 0 < speed * flops < 0.01 * peak < math.inf and failed(got) == "ValueError"


def peak_unknown(got, request):
    """Was there an answer, or a crash, for a peak that is none?"""
    return not 0 < argument(request, "peak") < math.inf and failed(got) != "ValueError"


def peak_itself_refused(got, request):
    """Was a ratio of 1 refused?"""
    speed, flops, peak = (argument(request, name) for name in ("tokens_per_second", "flops", "peak"))
    return speed * flops == peak and failed(got) != ""


def no_plain_number(got, request):
    """Was a method of tensors asked of a number?"""
    return failed(got) == "AttributeError" and isinstance(argument(request, "loss_sum"), (int, float))


def no_bytes(got, request):
    return argument(request, "n_bytes") < 1 and failed(got) != "ValueError"


def two_stacks(got, request):
    """Was an encoder-decoder counted as if it were a decoder?"""
    return argument(request, "config").options.get("src_vocab_size") is not None and failed(got) != "ValueError"


def sentences_uneven(got, request):
    hypotheses, references = argument(request, "hypotheses"), argument(request, "references")
    return (len(hypotheses) != len(references) or not hypotheses) and failed(got) != "ValueError"


def log_of_zero(got, request):
    """Did a logarithm of 0 end it, or spoil the result?"""
    if failed(got):
        return failed(got) == "ValueError" and "math domain" in got["calls"][0]["raised"]["message"]
    score = said(got)["bleu"]
    return isinstance(score, float) and not math.isfinite(score)


def no_word_to_choose(got, request):
    """Did it crash where the source has no word?"""
    return not bool(argument(request, "pad_mask").any()) and failed(got) != ""


def divided_by_zero(got, request):
    """Words there were, but no n-gram of some length."""
    return failed(got) == "ZeroDivisionError" and any(text.split() for text in argument(request, "hypotheses"))


def divided_by_no_words(got, request):
    return failed(got) == "ZeroDivisionError" and not any(text.split() for text in argument(request, "hypotheses"))
