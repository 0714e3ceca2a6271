"""design_numbers: what a load asks of machines."""

import math

from utils import oracle
from utils.checks.exercise import Replays, case, register
from utils.checks.phase6 import PHASE
from utils.checks.phase6.serving import BOX, LARGE, TOY, first_of, last_of
from utils.config import ModelConfig
from utils.observe.codec import Fixture

LOAD = dict(sequences=3, prompt_tokens=700, new_tokens=90, weight_bits=8, kv_bits=16) | {
    name: BOX[name] for name in ("memory_bytes", "bandwidth_bytes_per_s", "flops_per_s")
}
PARTS = ("parameters", "weight_bytes", "kv_bytes", "prefill_flops", "prefill_seconds", "tokens_per_second", "machines")


def design(name, sizes=LARGE, config=None, **load):
    return case(name, dict(case=Fixture("load", LOAD | load | dict(config=sizes | (config or {})))))


def drawn(
    kept=lambda case: case["prompt_tokens"] + case["new_tokens"],
    heads=lambda config: config.n_kv_heads or config.n_heads,
    caches=lambda case: case["sequences"],
    attention=lambda config, n: 2 * config.n_layers * config.d_model * n * n,
    flops=2,
    read=lambda weights, cache, case: weights + cache,
    machines=lambda need, case: math.ceil(need / case["memory_bytes"]),
    rate=lambda seconds, case: case["sequences"] / seconds,
    bits=lambda case: (case["weight_bits"], case["kv_bits"]),
    slowest=max,
    met=lambda config: 0.5 if config.src_vocab_size else 1.0,
    pairs=lambda config: 2 if config.src_vocab_size else 1,
    prompts=lambda case: 1,
    prefill=None,
    told=lambda work, case: work,
):
    """A wrong twin in its parts."""

    def design_numbers(case):
        config, n = case["config"], case["prompt_tokens"]
        weight_bits, kv_bits = bits(case)
        parameters = float(oracle.count_parameters(config)["total"])
        weights = parameters * weight_bits / 8
        cache = 2 * config.n_layers * heads(config) * (config.d_model / config.n_heads) * kv_bits / 8 * kept(case)
        cache *= caches(case)
        work = prompts(case) * (flops * met(config) * parameters * n + pairs(config) * attention(config, n))
        speed, power = case["bandwidth_bytes_per_s"], case["flops_per_s"]
        some = met(config) * weights
        step = slowest((read(some, cache, case) / speed, flops * met(config) * parameters * case["sequences"] / power))
        first = (prefill or slowest)((work / power, some / speed))
        step = rate(step, case), float(machines(weights + cache, case))
        values = (parameters, weights, cache, told(work, case), first, *step)
        return dict(zip(PARTS, values, strict=True))

    return design_numbers


def full():
    """Two machines that weights and caches fill to the last byte."""
    sizes = TOY | dict(n_kv_heads=2)
    cache = 3 * 790 * 2 * 5 * 32 * 2
    need = oracle.count_parameters(ModelConfig(**sizes))["total"] + cache
    return design("two machines, exactly full", sizes, memory_bytes=need / 2)


def own_copy(need, case):
    """As many machines as the caches need beside a whole copy of the weights in each."""
    weights = oracle.count_parameters(case["config"])["total"] * case["weight_bits"] / 8
    room = case["memory_bytes"] - weights
    return math.ceil((need - weights) / room) if room > 0 else 0


register(
    expected=oracle.design_numbers,
    phase=PHASE,
    section="6.24",
    hint="weights once, a cache for each sequence; prefill 2·met·n + 2·n_layers·d_model·n² (two stacks: half is met, "
    "and an encoder looks both ways: twice the square); the slower counts.",
    grad=False,
    cases=(
        design("memory-bound"),
        design("compute-bound", flops_per_s=2e10, sequences=40),
        design("many users, grouped heads", config=dict(n_kv_heads=2), sequences=10_000),
        design("a long prompt", prompt_tokens=60_000, new_tokens=0, sequences=1, kv_bits=8),
        design("4 bits, one user", weight_bits=4, sequences=1, prompt_tokens=3, memory_bytes=0.3e9),
        full(),
        design("encoder and decoder", TOY, config=dict(src_vocab_size=900), sequences=4, memory_bytes=2e6),
    ),
    mistakes={
        "of two stacks each token meets one: half of the parameters": drawn(met=lambda config: 1.0),
        "an encoder looks both ways: twice the pairs": drawn(pairs=lambda config: 1),
        "two stacks: half of the parameters, twice the pairs": drawn(met=lambda config: 1.0, pairs=lambda config: 1),
        "prefill is of one prompt": Replays(
            drawn(prompts=lambda case: case["sequences"]),
            drawn(told=lambda work, case: work * case["sequences"]),
        ),
        "scores, and their sum of values: two products": drawn(
            attention=lambda config, n: config.n_layers * config.d_model * n * n
        ),
        "the weights are split over the machines, too: no whole copy in each": drawn(machines=own_copy),
        "a machine that is exactly full will do": drawn(
            machines=lambda need, case: math.floor(need / case["memory_bytes"]) + 1
        ),
        "every user has a cache": drawn(caches=lambda case: 1),
        "prompt and answer are both kept": Replays(
            drawn(kept=lambda case: case["prompt_tokens"]), drawn(kept=lambda case: case["new_tokens"])
        ),
        "attention grows with the square of the prompt": Replays(
            drawn(attention=lambda config, n: 0),
            drawn(attention=lambda config, n: 2 * config.n_layers * config.d_model * n),
        ),
        "a token meets half of the others on average": drawn(
            attention=lambda config, n: 4 * config.n_layers * config.d_model * n * n
        ),
        "grouped heads cache less": drawn(heads=lambda config: config.n_heads),
        "two operations for each parameter": drawn(flops=1),
        "a step reads the weights and every cache": Replays(
            drawn(read=lambda weights, cache, case: weights),
            drawn(read=lambda weights, cache, case: case["sequences"] * weights + cache),
            drawn(read=lambda weights, cache, case: cache),
        ),
        "machines come whole: round up": Replays(
            drawn(machines=lambda need, case: math.floor(need / case["memory_bytes"])),
            drawn(machines=lambda need, case: need / case["memory_bytes"]),
        ),
        "the weights need memory, too": drawn(
            machines=lambda need, case: math.ceil(
                (need - oracle.count_parameters(case["config"])["total"] * case["weight_bits"] / 8)
                / case["memory_bytes"]
            )
        ),
        "all users together": drawn(rate=lambda seconds, case: 1 / seconds),
        "a byte has 8 bits": drawn(bits=lambda case: (8 * case["weight_bits"], 8 * case["kv_bits"])),
        "the cache has its own bits": drawn(bits=lambda case: (case["weight_bits"], case["weight_bits"])),
        "the slower of the two counts": Replays(
            *(drawn(slowest=way) for way in (min, sum, first_of, last_of)),
            *(drawn(prefill=way) for way in (min, sum, first_of, last_of)),
            *(drawn(prefill=max, slowest=way) for way in (min, sum, first_of, last_of)),
        ),
    },
)
