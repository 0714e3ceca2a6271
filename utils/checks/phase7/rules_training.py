"""Signs of known mistakes in the exercises on training a whole model. A sign is rule(got, request) -> bool."""


def said(got):
    """What the first call returned; None if it failed."""
    return got["calls"][0]["value"] if got["calls"] else None


def failed(got):
    """The name of what was raised; "" if nothing."""
    raised = got["problem"] or (got["calls"][0]["raised"] if got["calls"] else None)
    return (raised or {}).get("type") or ""


def asked(request, name, default=None):
    call = request.calls[0]
    return {**call["args"], **call["options"]}.get(name, default)


def share_accepted(got, request):
    """Was a share outside 0 to 1 taken, or did it crash with another error?"""
    return not 0 <= asked(request, "val_share") <= 1 and failed(got) != "ValueError"


def one_itself_drawn(got, request):
    """Is a document left for training where all are for testing, and nothing else wrong?"""
    facts = said(got)
    wrong = [name for name, holds in facts.items() if holds is False]
    return asked(request, "val_share") == 1 and wrong == ["about val_share of them"]


def whole_share_refused(got, request):
    """Was 0 or 1 refused, or did it crash there?"""
    return asked(request, "val_share") in (0, 1) and failed(got) != ""


def read_as_text(got, request):
    return failed(got) == "UnicodeDecodeError"


# ---- the test loss -------------------------------------------------------------------------------


def nothing_accepted(got, request):
    """The same with a text or a window in which there is nothing to predict."""
    return (len(asked(request, "tokens")) < 2 or asked(request, "seq_len") < 1) and failed(got) != "ValueError"


def asleep_where_it_raised(got, request):
    """Was it refused, and the model left in another mode?"""
    return failed(got) == "ValueError" and "model" in got["calls"][0]["changed"]


def complaint(got):
    """What the error of the first call says."""
    return ((got["calls"] and got["calls"][0]["raised"]) or {}).get("message") or ""


def one_row_alone(got, request):
    return "(batch, seq_len)" in complaint(got)


def window_of_nothing(got, request):
    return "a window without a token" in complaint(got)


def ran_in_training_mode(got, request):
    return said(got)[1]["in eval mode"] is False


def kept_gradients(got, request):
    return said(got)[1]["without gradients"] is False


def drew_numbers(got, request):
    """Did it draw, though dropout was off?"""
    return said(got)[1]["in eval mode"] is True and any("random" in name or "seed" in name for name in got["disturbed"])


# ---- one batch -----------------------------------------------------------------------------------


def noise_was_on(got, request):
    return said(got)["in eval mode"] is False


def went_on(got, request):
    """Was a loss that is no number taken for one?"""
    return asked(request, "bad_at", -1) >= 0 and said(got)["refused"] is False


def stepped_with_nothing(got, request):
    """Was it refused, but after a step that was made with it?"""
    return said(got)["refused"] is True and said(got)["steps"] > asked(request, "bad_at", -1) >= 0


def missing_a_second_time(got, request):
    """Did the second run find no entry in the state?"""
    return failed(got) == "KeyError" and complaint(got).strip("'\"") in asked(request, "state")


def generator_kept(got, request):
    return "Generator" in getattr(said(got)["generator"], "type", "")


def token_beyond(got, request):
    """Was the model asked about a token that it does not know?"""
    return failed(got) == "IndexError"


# ---- sees_targets --------------------------------------------------------------------------------


def tokens_were_changed(got, request):
    return bool(got["calls"]) and "tokens" in got["calls"][0]["changed"]


# ---- several ranks -------------------------------------------------------------------------------


def spoilt_by_nothing(got, request):
    """Is a mean no number where a rank without tokens had gradients that were none?"""
    means = [mean for mean in said(got).values() if mean is not None]
    return 0 in asked(request, "counts") and any(bool(mean.isnan().any()) for mean in means)


def overflowed(got, request):
    return any(bool(mean.isinf().any()) for mean in said(got).values() if mean is not None)


def handed_gradients_changed(got, request):
    return bool(got["calls"]) and "gradients" in got["calls"][0]["changed"]


def misfit_accepted(got, request):
    """Were no tokens, or lists of different lengths, taken, or was there another error?"""
    gradients, counts = asked(request, "gradients"), asked(request, "counts")
    fits = len(gradients) == len(counts) and sum(counts) and len({len(row) for row in gradients}) == 1
    return not fits and failed(got) != "ValueError"


# ---- sees_targets: a verdict ---------------------------------------------------------------------


def _guesser(request):
    return asked(request, "model").options


def false_for_the_whole_row(got, request):
    return said(got) is False and _guesser(request)["seen"] == "everything"


def true_for_a_causal_one(got, request):
    """Was a plain causal model accused: no dropout, no rounding, nothing learned?"""
    plain = {"vocab_size", "seen", "seed"}.issuperset(_guesser(request))
    return said(got) is True and plain and _guesser(request)["seen"] == "causal"
