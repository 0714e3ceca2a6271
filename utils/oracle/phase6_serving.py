"""Twins of phase 6, fewer steps and fewer machines: early exit, speculation, plans for serving."""

import math

import torch

from utils.observe.forbid import twin
from utils.oracle.phase4_counts import count_parameters

__all__ = [
    "design_numbers",
    "early_exit_forward",
    "route_request",
    "serving_plan",
    "speculative_accept",
    "speculative_generate",
]


@twin
@torch.no_grad()
def early_exit_forward(model, tokens, threshold):
    """Row by row: a row stops where it is sure."""
    places = torch.arange(tokens.shape[1], device=tokens.device)
    seen, found, used = places[:, None] >= places, [], []
    for row in tokens.split(1):
        x, depth = model.embed(row), 0
        for block in model.blocks:
            x, depth = block(x, attn_mask=seen), depth + 1
            logits = model.head(x[:, -1:])[:, 0]
            if logits.softmax(-1).max() >= threshold:
                break
        found.append(logits)
        used.append(depth)
    return torch.cat(found), torch.tensor(used)


@twin
def speculative_accept(target_probs, draft_probs, draft_tokens, uniforms, generator):
    """How long all pass, as a cumulative product; then one draw from what the draft left uncovered."""
    wanted = target_probs[:-1].gather(-1, draft_tokens[:, None])[:, 0]
    offered = draft_probs.gather(-1, draft_tokens[:, None])[:, 0]
    n_accepted = int((uniforms * offered < wanted).int().cumprod(0).sum())
    left = target_probs[n_accepted]
    if n_accepted < len(draft_tokens):
        left = (left - draft_probs[n_accepted]).relu()
    return n_accepted, torch.multinomial(left / left.sum(), 1, generator=generator).item()


def _probabilities(logits, temperature):
    if temperature < 0:
        raise ValueError("temperature must not be negative")
    if temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)
    return (logits / temperature).softmax(-1)


@twin
@torch.no_grad()
def speculative_generate(
    target, draft, prompt, max_new_tokens, n_draft=4, temperature=1.0, eos_id=None, generator=None
):
    if prompt.shape[0] != 1:
        raise ValueError("one prompt at a time: batch must be 1")
    tokens, end = prompt, prompt.shape[1] + max_new_tokens
    while tokens.shape[1] < end:
        length, guess, offered = tokens.shape[1], tokens, []
        for _ in range(min(n_draft, end - length - 1)):
            offered.append(_probabilities(draft(guess)[0, -1], temperature))
            guess = torch.cat([guess, torch.multinomial(offered[-1], 1, generator=generator)[None]], 1)
        wanted = _probabilities(target(guess)[0, length - 1 :], temperature)
        offered = torch.stack(offered) if offered else wanted[:0]
        uniforms = torch.rand(len(offered), generator=generator, dtype=wanted.dtype)
        n_accepted, last = speculative_accept(wanted, offered, guess[0, length:], uniforms, generator)
        new = [*guess[0, length : length + n_accepted].tolist(), last]
        if eos_id in new:
            new = new[: new.index(eos_id) + 1]
            end = length + len(new)
        tokens = torch.cat([tokens, torch.tensor([new])], 1)
    return tokens


def _bytes_per_token(config, bits):
    """Of keys and values, in all layers."""
    return 2 * config.n_layers * (config.n_kv_heads or config.n_heads) * config.d_model / config.n_heads * bits / 8


@twin
def serving_plan(config, hardware):
    """By rates: how many tokens a second each resource allows; all numbers are floats."""
    parameters = float(count_parameters(config)["total"])
    memory, speed, prompt = hardware["memory_bytes"], hardware["bandwidth_bytes_per_s"], hardware["prompt_len"]
    weights, per_token = parameters * hardware["weight_bits"] / 8, _bytes_per_token(config, hardware["kv_bits"])
    per_sequence, flops = per_token * hardware["seq_len"], 2 * parameters
    batch = float(max(0, math.floor((memory - weights) / per_sequence)))
    work, read = flops * prompt / hardware["flops_per_s"], weights / speed
    plan = {
        "parameters": parameters,
        "weight_bytes": weights,
        "kv_bytes_per_token": per_token,
        "kv_bytes_per_sequence": per_sequence,
        "max_batch": batch,
        "flops_per_token": flops,
        "prefill_seconds": max(work, read),
        "prefill_bound": "compute" if work > read else "memory",
        "decode_step_seconds": None,
        "decode_bound": None,
        "tokens_per_second": 0.0,
    }
    if batch:
        fastest = hardware["flops_per_s"] / flops, batch * speed / (weights + batch * per_sequence)
        plan["tokens_per_second"] = min(fastest)
        plan["decode_step_seconds"] = batch / min(fastest)
        plan["decode_bound"] = "compute" if fastest[0] < fastest[1] else "memory"
    return plan


@twin
def route_request(request, device, server):
    """The table of the text, read from top to bottom."""
    tokens = request["prompt_tokens"] + request["new_tokens"]

    def time(place):
        return (
            place.get("round_trip_s", 0.0)
            + request["prompt_tokens"] / place["prefill_tokens_per_s"]
            + request["new_tokens"] / place["decode_tokens_per_s"]
        )

    here, there = (tokens <= place["max_tokens"] for place in (device, server))
    near, far = (time(place) for place in (device, server))
    good = there and far <= request["budget_s"]
    rules = [
        (here and near <= request["budget_s"], "device", near, "fits_device"),
        (good and request["private"], "refuse", None, "privacy"),
        (good and not server["online"], "refuse", None, "offline"),
        (good, "server", far, "device_latency" if here else "device_context"),
        (not here and not there, "refuse", None, "context"),
        (True, "refuse", None, "latency"),
    ]
    target, seconds, reason = next(answer for holds, *answer in rules if holds)
    return {"target": target, "seconds": seconds, "reason": reason}


@twin
def design_numbers(case):
    """All numbers are floats; a token meets one of so many stacks."""
    config, prompt, sequences = case["config"], case["prompt_tokens"], case["sequences"]
    parameters, stacks = float(count_parameters(config)["total"]), 1 if config.src_vocab_size is None else 2
    weights, flops = parameters * case["weight_bits"] / 8, 2 * parameters / stacks
    cache = _bytes_per_token(config, case["kv_bits"]) * (prompt + case["new_tokens"])
    work = prompt * (flops + 2 * stacks * config.n_layers * config.d_model * prompt)
    read, speed = weights / stacks, case["bandwidth_bytes_per_s"]
    slowest = max((read + sequences * cache) / speed, flops * sequences / case["flops_per_s"])
    return {
        "parameters": parameters,
        "weight_bytes": weights,
        "kv_bytes": sequences * cache,
        "prefill_flops": work,
        "prefill_seconds": max(work / case["flops_per_s"], read / speed),
        "tokens_per_second": sequences / slowest,
        "machines": float(math.ceil((weights + sequences * cache) / case["memory_bytes"])),
    }
