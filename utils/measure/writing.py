"""What a cache, speculation and INT8 weights do for a trained language model: measured, with the learner's parts."""

import contextlib
import copy
from dataclasses import dataclass

import torch
from torch import nn

from utils.measure import costs, ratios
from utils.measure.clock import alternating
from utils.measure.parts import part
from utils.train.tasks import evaluating

SMALL = 1_000_000  # parameters; the matrices of a step are then too small to be shared out
SAID = {True: "the same tokens", False: "OTHER TOKENS"}


@dataclass(frozen=True)
class Finding:
    """One line: what was measured, whether nothing was lost by it, and the numbers."""

    name: str
    text: str
    numbers: dict

    def __str__(self):
        return f"{self.name:12} {self.text}"


@torch.no_grad()
def generation(model, prompt, stream=None, n_tokens=None, bandwidth=None):
    """Findings on a GPT with a prompt (1, n): cached against uncached, speculative, INT8. The model is not changed.

    stream: held-out text, for what INT8 costs in loss; n_tokens: how many are written, by default as many as fit
    bandwidth: bytes per second of this CPU's memory, for the share of a step that reading must take
    """
    model = copy.deepcopy(model).cpu().eval()
    prompt, room = prompt.cpu(), model.config.max_len - prompt.shape[1]
    n_tokens = min(room, n_tokens or room)
    with _threads_for(model):
        return [
            _tried(measure, model, prompt, n_tokens, stream, bandwidth) for measure in (_cached, _speculative, _int8)
        ]


@contextlib.contextmanager
def _threads_for(model):
    """One thread for a small model: on a busy machine, threads that wait for each other cost more than they bring."""
    before = torch.get_num_threads()
    try:
        if sum(parameter.numel() for parameter in model.parameters()) < SMALL:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)


def _tried(measure, *given):
    """A learner's part may not fit a learner's model: then the line says so, and the others still come."""
    name = measure.__name__.strip("_")
    try:
        return measure(*given)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return Finding(name, f"not measured: {reason}", {})


def _cached(model, prompt, n_tokens, stream, bandwidth):
    generate, whose = part("generate")
    cpu = torch.device("cpu")

    def run(use_cache):
        return generate(model, prompt, n_tokens, temperature=0, use_cache=use_cache)

    same = torch.equal(run(True), run(False))
    times = alternating({use_cache: lambda use_cache=use_cache: run(use_cache) for use_cache in (True, False)}, cpu, 3)
    fast, slow = (1000 * times[use_cache] / n_tokens for use_cache in (True, False))
    text = (
        f"{fast:.2f} ms a token with a cache, {slow:.2f} without: {slow / fast:.1f} times as fast over {n_tokens} "
        f"tokens; {SAID[same]} ({whose})"
    )
    numbers = {"ms_cached": fast, "ms_uncached": slow, "same": same, "tokens": n_tokens}
    count, _ = part("flops_per_token")
    if bandwidth and count:
        entries, length = costs.matrix_entries(model.config, count), prompt.shape[1] + n_tokens / 2
        found = ratios.decode(costs.decode_traffic(model.config, entries, 1, int(length), 4, 4), bandwidth, fast / 1000)
        text, numbers["R_decode"] = f"{text}; {found}", found.told()
    return Finding("cached", text, numbers)


class Counted:
    """tokens -> logits, and how often it was asked."""

    def __init__(self, model):
        self.model, self.calls = model, 0

    def __call__(self, tokens):
        self.calls += 1
        return self.model(tokens)


def first_block(model):
    """The model's own first block as a draft: no other weights, a fraction of the work."""

    def draft(tokens):
        places = torch.arange(tokens.shape[1])
        return model.head(model.blocks[0](model.embed(tokens), attn_mask=places[:, None] >= places))

    return draft


def _speculative(model, prompt, n_tokens, stream, bandwidth, n_draft=3):
    speculate, whose = part("speculative_generate")
    generate, _ = part("generate")
    target, draft = Counted(model), Counted(first_block(model))
    options = dict(n_draft=n_draft, temperature=0)
    found = speculate(target, draft, prompt, n_tokens, **options)
    calls, drafted = target.calls, draft.calls
    same = torch.equal(found, generate(model, prompt, n_tokens, temperature=0, use_cache=False))
    accepted = max(0.0, (n_tokens - calls) / drafted) if drafted else 0.0
    times = alternating(
        {
            "drafted": lambda: speculate(model, first_block(model), prompt, n_tokens, **options),
            "alone": lambda: generate(model, prompt, n_tokens, temperature=0, use_cache=False),
        },
        torch.device("cpu"),
        3,
    )
    gain = times["alone"] / times["drafted"]
    text = (
        f"first block as draft: {accepted:.0%} of its guesses accepted, {n_tokens} tokens in {calls} runs of the "
        f"model; {gain:.2f} times as fast as without (both without a cache); {SAID[same]} ({whose})"
    )
    return Finding("speculative", text, {"accepted": accepted, "calls": calls, "gain": gain, "same": same})


def quantised(model, quant_linear):
    """A copy whose linear layers hold INT8 weights. A tied output layer shares the table and stays as it is."""
    made = copy.deepcopy(model)
    for parent in list(made.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is nn.Linear and not _tied(layer, made):
                setattr(parent, name, quant_linear(layer, bits=8))
    return made


def _tied(layer, model):
    return sum(other is layer.weight for other in dict(model.named_parameters(remove_duplicate=False)).values()) > 1


def _int8(model, prompt, n_tokens, stream, bandwidth, n_windows=60):
    quant_linear, whose = part("QuantLinear")
    small = quantised(model, quant_linear)
    before, after = (_bytes_of(one) for one in (model, small))
    text = f"{before / 1e6:.2f} MB become {after / 1e6:.2f}; "
    numbers = {"bytes": before, "bytes_int8": after}
    if stream is None:
        said, quietly = model(prompt), small(prompt)
        numbers["same_choice"] = (said.argmax(-1) == quietly.argmax(-1)).double().mean().item()
        text += f"{numbers['same_choice']:.0%} of the prompt's next tokens are the same"
    else:
        losses = [_loss(one, stream, n_windows) for one in (model, small)]
        numbers["loss_up"] = losses[1] / losses[0] - 1
        text += f"loss on held-out text {numbers['loss_up']:+.2%}"
    return Finding("int8", f"{text} ({whose})", numbers)


def _bytes_of(model):
    tensors = {tensor.data_ptr(): tensor.nbytes for tensor in (*model.parameters(), *model.buffers())}
    return sum(tensors.values())


def _loss(model, stream, n_windows):
    """Mean loss per token over the first windows of the held-out text."""
    total, count = 0.0, 0
    with evaluating(model), contextlib.closing(stream.windows(model.config.max_len, split="val", size=10)) as windows:
        for _, batch in zip(range(-(-n_windows // 10)), windows, strict=False):
            logits, targets = model(batch["tokens"].cpu()), batch["targets"].cpu()
            total += nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum").item()
            count += targets.numel()
    return total / count
