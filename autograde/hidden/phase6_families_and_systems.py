"""Hidden cases of phase 6."""

from dataclasses import replace

import torch

from utils.checks.draw import normal
from utils.checks.exercise import case, refusal
from utils.checks.phase6 import classifier, gpt, rules_systems
from utils.checks.phase6.classifier import lengths, tokens
from utils.checks.phase6.compression import causal, kept, lesson, stack
from utils.checks.phase6.design import design
from utils.checks.phase6.drafts import BAD, EQUAL, GOOD, Law, speak
from utils.checks.phase6.exits import counted, run
from utils.checks.phase6.experts import crowded
from utils.checks.phase6.masking import asked
from utils.checks.phase6.nibbles import nibbles, raw_bytes
from utils.checks.phase6.patches import numbered
from utils.checks.phase6.quantization import back, integers, reduce, scales, small, special
from utils.checks.phase6.serving import TOY, ask, plan
from utils.checks.phase6.spans import lengths as prefixes
from utils.checks.phase6.speculation import fixed, judged
from utils.checks.phase6.windows import rolling

SMALL = dict(vocab_size=7, d_model=8, n_heads=2, n_layers=1, d_ff=5, max_len=11)
TEXT = [5, 5, 9, 2, 7, 1, 1, 8, 3, 6]

_HIDDEN = {
    "mask_tokens": (asked("h1", 9, 0.4, vocab_size=37, special_ids=(1, 2, 36), mask_id=20, shape=(75, 70)),),
    "mean_pool": (
        case("h1", dict(x=(4, 3, 6), pad_mask=lengths(3, 2, 1, 3, 2))),
        case("h2", dict(x=normal(2, 9, 3, shift=2.0), pad_mask=lengths(9, 8, 0)), kind="edge"),
    ),
    "EncoderClassifier": (
        case(
            "h1",
            dict(tokens=tokens(7, 3, 6), pad_mask=lengths(6, 6, 1, 4)),
            init=classifier.config(**SMALL) | dict(n_classes=3),
        ),
    ),
    "GPT": (
        case(
            "h1",
            dict(tokens=tokens(7, 3, 6), pad_mask=lengths(6, 6, 1, 4)),
            init=gpt.config(**SMALL | dict(n_kv_heads=1, tied=False)),
        ),
        case("h2", dict(method="embed", tokens=tokens(7, 3, 4), offset=7), init=gpt.config(**SMALL), grad=False),
        case("h3", dict(tokens=tokens(7, 2, 5)), init=gpt.config(**SMALL | dict(norm_first=False, n_layers=2))),
    ),
    "span_corrupt": (
        case("h1", dict(tokens=TEXT, spans=[(8, 10), (0, 3), (3, 4)], sentinel_ids=[40, 30, 50, 20, 60])),
        refusal("h2", dict(tokens=TEXT, spans=[(8, 11)], sentinel_ids=[40, 30])),
        refusal("h3", dict(tokens=TEXT, spans=[(4, 6), (5, 7)], sentinel_ids=[40, 30, 20])),
    ),
    "prefix_lm_mask": (
        case("h1", dict(prefix_len=prefixes(5, 0, 7), seq_len=7)),
        refusal("h2", dict(prefix_len=prefixes(1, 4), seq_len=3)),
    ),
    "patchify": (
        case("h1", dict(images=(3, 4, 6, 15), patch_size=3)),
        case("h2", dict(images=numbered(1, 4, 10, 5), patch_size=5), grad=False),
        refusal("h3", dict(images=(3, 4, 6, 15), patch_size=2)),
    ),
    "moe_route": (
        case("h1", dict(logits=crowded(11, 6, 0), k=3, capacity=4)),
        case("h2", dict(logits=(6, 3), k=2, capacity=2)),
    ),
    "tiled_attention": (
        case("h1", dict(q=(2, 9, 5), k=(2, 13, 5), v=(2, 13, 7), q_block=4, kv_block=6, causal=True)),
        case("h2", dict(q=(3, 6, 4), k=(3, 4, 4), v=(3, 4, 5), q_block=4, kv_block=3)),
        case(
            "h3",
            dict(q=(9, 4), k=(6, 4), v=(6, 5), q_block=2, kv_block=4, causal=True),
            kind="edge",
            grad=False,
        ),
    ),
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
            [[0.1, 0.4, 0.5], [0.4, 0.4, 0.2]],
            [[0.7, 0.1, 0.2]],
            [0],
            [0.7],
            times=60,
            kind="chance",
            judge=rules_systems.follows((0.0, 0.5, 0.5), [1]),
        ),
    ),
    "speculative_generate": (
        speak("h1", BAD, new=8, n_draft=3, prompt=torch.tensor([[5, 2]])),
        speak("h2", GOOD, new=10, n_draft=2, eos_id=2, prompt=torch.tensor([[2, 5]])),
        speak("h3", EQUAL, 11, "target", n_draft=2, judge=rules_systems.asked(4, 4)),
        Law([0.29, 0.07, 0.46, 0.18], [0.63, 0.06, 0.08, 0.23], 1.0, 3, 200).case("h4"),
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
