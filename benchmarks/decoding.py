"""How fast does a model write? `python -m benchmarks.decoding [--against-transformers] [--small] [--out FILE]`

On a CPU: what one more token costs with the learner's cache and without, at several lengths, and what a whole text of
that follows from it. On a GPU: models with random weights in bf16, one sentence at a time, as shares of the time in
which their weights can be read at all; eagerly, as a CUDA graph, compiled, and with INT8 weights.
"""

import argparse
import datetime
import statistics
import time

import torch

from benchmarks.kept import keep
from benchmarks.rivals import NotThere, Transformers
from benchmarks.static_decoder import Recorded, StaticDecoder, floor_seconds, greedy, kernels_of, to_int8
from utils import measure, oracle
from utils.config import ModelConfig
from utils.measure import costs, ratios
from utils.measure.clock import alternating, wait_for
from utils.measure.parts import part

CPU_MODEL = ModelConfig(vocab_size=4096, d_model=256, n_heads=8, n_layers=4, d_ff=1024, max_len=1088)
LENGTHS = (64, 128, 256, 512, 768, 1024)
GPU_MODELS = {
    "50m": ModelConfig(8_192, 640, 10, 10, 2_560, 512),
    "124m": ModelConfig(50_304, 768, 12, 12, 3_072, 1_024),
    "1.3b": ModelConfig(50_304, 2_048, 16, 24, 8_192, 2_048),
}
CHECKED = 48  # tokens for which two ways must write the same


def made(config, device="cpu", dtype=torch.float32):
    """The course's GPT with small random weights: no product overflows, and no token is favoured."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        model = oracle.GPT(config)
        oracle.init_weights(model, 0.02, config.n_layers)
    return model.to(device, dtype).eval()


# ---- on a CPU ------------------------------------------------------------------------------------


@torch.no_grad()
def cached_row(config, lengths, rounds):
    """What one more token costs at each length, cached and not, taken in turn."""
    model, cpu = made(config), torch.device("cpu")
    (cache_of, whose), (stepped, _) = part("KVCache"), part("forward_cached")
    tokens = torch.randint(config.vocab_size, (1, lengths[-1] + 1), generator=torch.Generator().manual_seed(0))
    heads, steps = config.n_kv_heads or config.n_heads, []
    for length in lengths:
        cache = cache_of(config.n_layers, 1, heads, config.max_len, config.d_model // config.n_heads)
        stepped(model, tokens[:, : length - 1], cache)

        def cached(cache=cache, length=length):
            stepped(model, tokens[:, length - 1 : length], cache)
            cache.truncate(length - 1)

        found = alternating(
            {"cached": cached, "uncached": lambda length=length: model(tokens[:, :length])}, cpu, rounds
        )
        steps.append({"length": length} | {f"ms_{name}": round(1000 * time, 4) for name, time in found.items()})
    return {"row": "cache", "model": sizes(config), "whose": whose, "steps": steps,
            "speed_up_at_last": round(steps[-1]["ms_uncached"] / steps[-1]["ms_cached"], 2),
            "speed_up_of_whole_text": round(whole(steps, "ms_uncached") / whole(steps, "ms_cached"), 2),
            "same_tokens": same_tokens(model)}  # fmt: skip


def whole(steps, key):
    """Milliseconds of a text from its first token to the last length, between measured lengths as straight lines."""
    points = [(0, steps[0][key]), *((row["length"], row[key]) for row in steps)]
    return sum((b - a) * (y + z) / 2 for (a, y), (b, z) in zip(points, points[1:], strict=False))


def same_tokens(model):
    """Are greedy tokens the same with a cache, without, and by the static decoder?"""
    generate, _ = part("generate")
    prompt = torch.tensor([[1, 2, 3]])
    texts = [generate(model, prompt, CHECKED, temperature=0, use_cache=cached) for cached in (True, False)]
    static = continued(StaticDecoder(model, 1, CHECKED + 3), prompt, CHECKED)
    return torch.equal(*texts) and torch.equal(texts[0], static)


@torch.no_grad()
def against_transformers(config, n_tokens, rounds, device="cpu", dtype=torch.float32):
    """Milliseconds a token of whole generations with a cache, taken in turn.

    Theirs; ours with torch's kernels, in buffers of fixed size; and on a CPU the `generate` that the course builds.
    """
    device = torch.device(device)
    theirs, model = Transformers(config, device, dtype), made(config, device, dtype)
    generate, whose = part("generate")
    prompt = torch.randint(config.vocab_size, (1, 8), device=device)
    runs = {"transformers": lambda: theirs.generate(prompt, n_tokens)}
    if device.type == "cuda":
        recorded = Recorded(StaticDecoder(model, 1, n_tokens + 1), 1)
        runs["ours"] = lambda: recorded.write(prompt[:, -1:], n_tokens)
    else:
        decoder = StaticDecoder(model, 1, n_tokens + prompt.shape[1])
        runs |= {"ours": lambda: continued(decoder, prompt, n_tokens),
                 "generate": lambda: generate(model, prompt, n_tokens, temperature=0)}  # fmt: skip
    found = alternating(runs, device, rounds)
    ms = {f"ms_{name}": round(1000 * seconds / n_tokens, 4) for name, seconds in found.items()}
    shares = {f"{name}_over_theirs": round(ms["ms_transformers"] / ms[f"ms_{name}"], 3) for name in list(runs)[1:]}
    return {"row": "transformers", "model": sizes(config), "tokens": n_tokens, "version": theirs.version,
            "ours_is": "a CUDA graph" if device.type == "cuda" else "the static decoder", "generate_is": whose,
            **ms, **shares}  # fmt: skip


def continued(decoder, prompt, n_tokens):
    """The prompt and n_tokens more, greedily; the prompt is fed token by token."""
    decoder.restart()
    for token in prompt[0, :-1]:
        decoder(token.view(1, 1))
    return torch.cat([prompt, greedy(decoder, prompt[:, -1:], n_tokens)], 1)


# ---- on a GPU ------------------------------------------------------------------------------------


@torch.no_grad()
def gpu_rows(name, config, device, bandwidth, n_tokens):
    """One model, one sentence: a row for each way to run the same step."""
    entries = costs.matrix_entries(config, oracle.flops_per_token)
    for way, bits in (("eager", 16), ("graph", 16), ("compiled", 16), ("compiled", 8)):
        model = made(config, device, torch.bfloat16)
        model = to_int8(model) if bits == 8 else model
        try:
            seconds, kernels = one_way(model, way, device, n_tokens)
        except RuntimeError as error:  # a driver or compiler that cannot: the other rows still count
            yield {"row": name, "way": way, "bits": bits, "failed": (str(error).splitlines() or [""])[0][:200]}
            continue
        block = entries - config.vocab_size * config.d_model
        weight_bytes = block * bits / 8 + config.vocab_size * config.d_model * 2
        moved = weight_bytes + costs.decode_traffic(config, 0, 1, n_tokens // 2, 0, 2)
        row = {"row": name, "way": way, "bits": bits, "model": sizes(config), "tokens": n_tokens,
               "tokens_per_second": round(1 / seconds, 1), "bytes_per_token": int(moved),
               "R_decode": ratios.decode(moved, bandwidth, seconds).told()}  # fmt: skip
        if way != "compiled":
            row |= {"kernels": kernels, "floor_ms": round(1000 * floor_seconds(kernels, device), 4)}
        yield row
        del model
        torch.cuda.empty_cache()


def one_way(model, way, device, n_tokens, runs=3):
    """(median seconds a token, operations of a step)."""
    decoder, first = StaticDecoder(model, 1, n_tokens + 1), torch.zeros(1, 1, dtype=torch.int64, device=device)
    decoder(first)
    kernels = kernels_of(lambda: decoder(first))
    if way == "graph":
        recorded = Recorded(decoder, 1)

        def write():
            recorded.write(first, n_tokens)
    else:
        step = torch.compile(decoder, mode="reduce-overhead", fullgraph=True) if way == "compiled" else decoder

        def write():
            decoder.restart()
            greedy(step, first, n_tokens)

    write()
    times = []
    for _ in range(runs):
        wait_for(device)
        began = time.perf_counter()
        write()
        wait_for(device)
        times.append((time.perf_counter() - began) / n_tokens)
    return statistics.median(times), kernels


def sizes(config):
    return {name: getattr(config, name) for name in ("n_layers", "d_model", "n_heads", "vocab_size", "max_len")}


# ---- all of it -----------------------------------------------------------------------------------


def rows(options, device):
    if device.type == "cuda":
        bandwidth = measure.bandwidth(device)
        yield {"row": "bandwidth", "bytes_per_second": bandwidth}
        for name in options.models:
            yield from gpu_rows(name, GPU_MODELS[name], device, bandwidth, options.tokens)
    else:
        lengths = LENGTHS[:3] if options.small else LENGTHS
        yield cached_row(CPU_MODEL, lengths, options.rounds)
    if options.against_transformers:
        config, dtype = (GPU_MODELS["124m"], torch.bfloat16) if device.type == "cuda" else (CPU_MODEL, torch.float32)
        yield against_transformers(config, 64 if options.small else options.tokens, options.rounds, device, dtype)


def told(row):
    """A line or two for the reader."""
    if row["row"] == "cache":
        head = f"{'tokens':>8} {'cached ms':>10} {'uncached ms':>12}\n"
        lines = [f"{s['length']:8} {s['ms_cached']:10.2f} {s['ms_uncached']:12.2f}" for s in row["steps"]]
        text = f"a text of {row['steps'][-1]['length']} tokens: {row['speed_up_of_whole_text']} times as fast with "
        text += f"{row['whose']} cache; the same tokens: {row['same_tokens']}"
        return head + "\n".join(lines) + f"\n{text}"
    return "  ".join(f"{key} {value}" for key, value in row.items() if key != "model")


def parser():
    made = argparse.ArgumentParser("python -m benchmarks.decoding", description=__doc__.splitlines()[0])
    made.add_argument("--against-transformers", action="store_true", help="where that package is installed")
    made.add_argument("--device", default="auto")
    made.add_argument("--models", nargs="+", choices=list(GPU_MODELS), default=list(GPU_MODELS), help="on a GPU")
    made.add_argument("--tokens", type=int, default=256, help="of each generated text")
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--small", action="store_true", help="short lengths only, to try it out")
    made.add_argument("--out", help="also write the numbers there, as json")
    return made


def main(arguments=None):
    """Print the rows; with --out also write the json."""
    options = parser().parse_args(arguments)
    device = measure.device_of(options.device)
    result = {"date": datetime.date.today().isoformat(), **measure.described(device), "rows": []}
    try:
        for row in rows(options, device):
            result["rows"].append(row)
            print(told(row), flush=True)
    except NotThere as error:
        print(f"✗ {error}")
        result["left_out"] = str(error)
    keep(result, options.out)
    return result


if __name__ == "__main__":
    main()
