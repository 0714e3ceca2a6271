"""The oral exam: ten questions about the learner's own two runs, with their numbers in them."""

from utils.measure.costs import model_config
from utils.measure.parts import part


def oral_exam(run_a, run_b, rivals=None, peak=None):
    """Ten questions, as sentences.

    run_a, run_b: Run objects or report dicts; rivals: compressors' bits per byte; peak: operations per second
    """
    a, b = (getattr(run, "report", run) or {} for run in (run_a, run_b))
    return [make(a, b, rivals or {}, peak) for make in QUESTIONS]


def _number(report, key, form):
    value = report.get(key)
    return "(not measured)" if value is None else format(value, form)


def first_loss(a, b, rivals, peak):
    words = (b.get("text") or {}).get("vocabulary", [1024])[0]
    return (
        f"Your language model knows {words:,} tokens. What loss should it have before the first step, and what does it "
        "mean if it has three times that?"
    )


def batch(a, b, rivals, peak):
    size, steps = (a.get("settings") or {}).get("batch_size", 64), a.get("steps_done", 0)
    return (
        f"Translator A took batches of {size} sentences for {steps:,} steps. You get a GPU with room for eight times "
        "the batch. What else do you change, and why?"
    )


def splits(a, b, rivals, peak):
    iid, other = (_number(a, f"exact_match_{name}", ".1%") for name in ("iid", "compositional"))
    return (
        f"It got {iid} of unseen sentences right, and {other} of those with unseen pairs of words. What does the "
        "second number know that the first does not? And the test of long sentences?"
    )


def surely(a, b, rivals, peak):
    return (
        f"{_number(a, 'exact_match', '.1%')} of 1,000 sentences. How sure are you of the last digit? Of 100 sentences, "
        "how sure would you be?"
    )


def time_spent(a, b, rivals, peak):
    parameters, speed = _number(b, "parameters", ",d"), _number(b, "tokens_per_second", ",.0f")
    return (
        f"Model B has {parameters} parameters and ran at {speed} tokens a second. How many operations a second is "
        "that, by which convention, and what is it a share of?"
    )


def utilisation(a, b, rivals, peak):
    settings = b.get("settings") or {}
    found = _share(b, settings, peak)
    said = f"Your run used {found} of the peak you measured. " if found else "Suppose a run uses a tenth of the peak. "
    return (
        f"{said}Where does the rest of the time go in a model of width {settings.get('d_model', 64)}? What would you "
        "try first?"
    )


def _share(report, settings, peak):
    """The utilisation, as text, where all that it takes is at hand."""
    count, _ = part("flops_per_token")
    ratio, _ = part("mfu")
    speed, words = report.get("tokens_per_second"), (report.get("text") or {}).get("vocabulary")
    if not (count and ratio and peak and speed and words and settings):
        return None
    try:
        return f"{ratio(speed, count(model_config(report), settings['seq_len'])['causal'], peak):.0%}"
    except ValueError:  # above 1: then it is not told
        return None


def bits(a, b, rivals, peak):
    rival = f"bz2 needs {rivals['bz2']:.2f}" if "bz2" in rivals else "bz2 needs about 1.7"
    return (
        f"Your model needs {_number(b, 'bits_per_byte', '.2f')} bits per byte, {rival}. Is that a fair comparison? "
        "What does the one know that the other does not?"
    )


def tokenizer(a, b, rivals, peak):
    return (
        f"Its loss is {_number(b, 'val_loss', '.2f')} nats a token. A friend's model has half of that, with single "
        "bytes as tokens. Whose is better, and how do you find out?"
    )


def memory(a, b, rivals, peak):
    expected, used = (_number(b, f"memory_{name}_mib", ",.0f") for name in ("expected", "peak"))
    return (
        f"{expected} MiB were expected for the run, {used} MiB were held {b.get('memory_peak_is', '')}. What is in the "
        "one and not in the other? Which part grows if you double the context?"
    )


def restart(a, b, rivals, peak):
    steps = b.get("steps_done") or 400
    return (
        f"The machine dies at step {max(1, steps // 2):,} of {steps:,}. What must the checkpoint hold so that the end "
        "is the same bit for bit? And with two GPUs?"
    )


QUESTIONS = (first_loss, batch, splits, surely, time_spent, utilisation, bits, tokenizer, memory, restart)
