"""Hidden cases of phase 6."""

from dataclasses import replace

import torch

from utils.checks.draw import normal
from utils.checks.exercise import case
from utils.checks.phase6 import rules_systems
from utils.checks.phase6.compression import causal, kept, lesson, stack
from utils.checks.phase6.design import design
from utils.checks.phase6.exits import counted, run
from utils.checks.phase6.quantization import back, integers, nibbles, raw_bytes, reduce, scales, small, special
from utils.checks.phase6.serving import TOY, ask, plan
from utils.checks.phase6.speculation import BAD, EQUAL, GOOD, fixed, judged, law, speak
from utils.checks.phase6.windows import rolling

_HIDDEN = {
    "distillation_loss": (lesson("h1", 1.7, 0.45, kept(2, 6, 4, seq_len=6), shape=(3, 6, 9)),),
    "SharedStack": (case("h1", dict(x=(3, 4, 12), attn_mask=causal(4, 4)), init=stack(n_layers=3, seed=9)),),
    "quantize": (
        reduce("h1", 6, axis=-2, w=(4, 2, 3)),
        reduce("h2", 7, axis=1, w=special((4, 3), zero=(slice(None), 1), negative=(slice(None), 0))),
        reduce("h3", 3, w=normal(6, std=30.0)),
    ),
    "dequantize": (back("h1", integers(4, 2, 3), scales(4, 1, 1)),),
    "QuantLinear": (small("h1", d_in=9, d_out=5, bits=6, x=(3, 2, 9), seed=9),),
    "pack_int4": (case("h1", dict(q=nibbles(4, 9))), case("h2", dict(q=nibbles(2, 2, 4)))),
    "unpack_int4": (case("h1", dict(packed=raw_bytes(4, 5), n=9)),),
    "sliding_window_mask": (
        case("h1", dict(q_len=4, kv_len=9, window=5)),
        case("h2", dict(q_len=8, kv_len=5, window=3)),
    ),
    "RollingKVCache": (rolling("h1", 5, 2, 1, 3, 2, 4, 1), rolling("h2", 2, 0, 3, 1, 1)),
    "early_exit_forward": (run("h1", 0.7, rows=5, seq_len=3, seed=9), counted("h2", 0.7, rows=5, seed=10)),
    "speculative_accept": (
        judged("h1", 5, fails=3, vocab_size=7, seed=9),
        judged("h2", 2, vocab_size=4),
        fixed(
            "h3",
            [[0.2, 0.2, 0.6], [0.4, 0.4, 0.2]],
            [[0.6, 0.1, 0.3]],
            [0],
            [0.7],
            times=150,
            kind="chance",
            judge=rules_systems.follows((0.0, 0.25, 0.75), [1]),
        ),
    ),
    "speculative_generate": (
        speak("h1", BAD, new=8, n_draft=3, prompt=torch.tensor([[5, 2]])),
        speak("h2", GOOD, new=10, n_draft=2, eos_id=2, prompt=torch.tensor([[2, 5]])),
        speak("h3", EQUAL, 11, "target", n_draft=2, judge=rules_systems.asked(4, 4)),
        speak(
            "h4",
            dict(wander=2.0, name="draft"),
            2,
            n_draft=1,
            temperature=1.2,
            times=80,
            kind="chance",
            judge=rules_systems.follows(law(1, 1.2), [0, 4]),
        ),
    ),
    "serving_plan": (
        plan(
            "h1", TOY, config=dict(n_kv_heads=3), memory_bytes=3e6, weight_bits=4, kv_bits=16, seq_len=77, prompt_len=9
        ),
        plan("h2", flops_per_s=5e10, weight_bits=16, memory_bytes=40e9),
        plan("h3", memory_bytes=2e9, seq_len=4000, kv_bits=4),
    ),
    "route_request": (
        ask("h1", new_tokens=77, budget_s=1.3),
        ask("h2", prompt_tokens=1200, new_tokens=60, private=True, then=(dict(private=False), dict(budget_s=0.4))),
        ask("h3", device=dict(max_tokens=100), server=dict(online=False), prompt_tokens=90, new_tokens=20),
    ),
    "design_numbers": (
        design("h1", TOY, config=dict(n_kv_heads=1), sequences=7, prompt_tokens=33, new_tokens=5, memory_bytes=1e5),
        design("h2", flops_per_s=1e10, sequences=17, kv_bits=4, prompt_tokens=9000),
    ),
}

HIDDEN = {name: tuple(replace(one, hidden=True) for one in cases) for name, cases in _HIDDEN.items()}
