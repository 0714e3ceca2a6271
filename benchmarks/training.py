"""How fast does the trainer train? `python -m benchmarks.training [--rows …] [--against-nanogpt DIR] [--out FILE]`

Tokens per second of one process, as shares of what this machine can do, measured here. With a checkout of nanoGPT both
train in turn, some steps each, on the same batches of Python's own library, byte by byte: so a slow spell of the
machine hits both, and their losses can be compared.
"""

import argparse
import dataclasses
import datetime
import statistics
import time

import numpy as np
import torch

from benchmarks.kept import keep
from benchmarks.rivals import NanoGPT, NotThere
from utils import measure, oracle
from utils.data import python_source
from utils.data.token_stream import TokenStream
from utils.measure import costs, ratios
from utils.measure.clock import wait_for
from utils.train import Language, settings
from utils.train import parts as made_of
from utils.train.compiling import compiled
from utils.train.device import DTYPES
from utils.train.many import team
from utils.train.update import Updater

CHAR = dict(d_model=128, n_layers=4, n_heads=4, d_ff=512, seq_len=64, batch_size=12, vocab_size=257, lr=1e-3,
            init_std=0.02, beta2=0.99, eps=1e-8, warmup=100)  # fmt: skip
ROWS = {  # name: (model of the trainer, overrides); the first is nanoGPT's own setting for a CPU
    "char": (None, CHAR),
    "10m": ("10m", dict(batch_size=64)),
    "50m": ("50m", dict(batch_size=128)),
    "124m": ("124m", dict(batch_size=64, accumulation=1)),
}


class Ours:
    """The trainer's own update, without its log and checkpoints."""

    name = "ours"

    def __init__(self, config, task):
        self.task = task
        self.plain, self.parts = task.model(quiet=True)
        self.parameters = sum(parameter.numel() for parameter in self.plain.parameters())
        optimiser, _ = made_of.optimiser(config, self.plain, quiet=True)
        functions, _ = made_of.trainer_parts(config, quiet=True)
        self.updater = Updater(config, task, self.plain, optimiser, team(config), functions)
        self.compile_seconds = 0.0
        if config.compile:
            model, self.compile_seconds = compiled(self.plain, task, 1, print)
            self.updater.use(model)
        self.plain.train()

    def step(self, number):
        return self.updater.update(number)["loss"]


def byte_stream(source, vocab_size=None):
    """A SourceText as bytes; more ids than bytes only make the output layer as wide as it would be."""
    rows = (np.frombuffer(b"".join(part), dtype=np.uint8).astype(np.int32) for part in (source.train, source.val))
    stream = TokenStream(source.fingerprint, [], *rows, "bytes", "")
    stream.vocab_size = vocab_size or stream.vocab_size
    return stream


def timed(run, numbers, device):
    """(seconds, seconds of CPU) of some updates."""
    wait_for(device)
    began, cpu = time.perf_counter(), time.process_time()
    for number in numbers:
        run(number)
    wait_for(device)
    return time.perf_counter() - began, time.process_time() - cpu


def in_turn(rivals, steps, rounds, device):
    """{name: [(seconds, CPU seconds) of each round]}; who begins changes from round to round."""
    for run in rivals.values():
        timed(run, range(2), device)  # first updates make buffers
    found = {name: [] for name in rivals}
    for number in range(rounds):
        order = list(rivals) if number % 2 else list(rivals)[::-1]
        for name in order:
            first = 2 + number * steps
            found[name].append(timed(rivals[name], range(first, first + steps), device))
    return found


def measured(name, options):
    """One row of the table."""
    model, overrides = ROWS[name]
    fields = {field.name for field in dataclasses.fields(options.config)} & set(vars(options))
    overrides = overrides | {key: getattr(options, key) for key in fields if getattr(options, key) is not None}
    overrides |= dict(steps=2 + options.steps * options.rounds, kernels=options.kernels, device=options.device)
    config = settings("b", "h100" if model else "smoke", model, **overrides)
    device, size = torch.device(config.device), config.batch_size * config.seq_len
    stream = byte_stream(python_source.find("stdlib"), config.vocab_size).to(device)
    task = Language(stream, config)
    ours = Ours(config, task)
    rivals, theirs = {"ours": ours.step}, None
    if options.against_nanogpt:
        theirs = NanoGPT(options.against_nanogpt, config, stream.vocab_size, config.compile)

        def step(number):  # it draws the batch as we do, and pays for it
            batch = stream.batch(config.seed, number, config.batch_size, config.seq_len)
            return theirs.step(batch, ours.updater.rate(number))

        rivals["nanoGPT"] = step
    options.ceilings(DTYPES[config.precision], config.device)
    times = in_turn(rivals, options.steps, options.rounds, device)
    row = {"row": name, "sizes": {key: getattr(config, key) for key in SIZES}, "precision": config.precision,
           "kernels": ours.parts.get("attention", "the parts' own"), "compiled": config.compile,
           "compile_seconds": round(ours.compile_seconds, 1), "steps": options.steps, "rounds": options.rounds,
           "text": stream.source_fingerprint[:16]}  # fmt: skip
    row["ours"] = speeds(times["ours"], size * options.steps) | shares(config, stream, times["ours"], size, options)
    row["ours"] |= {"parameters": ours.parameters, "loss": task.evaluate(ours.plain, limit=LIMIT)["val_loss"]}
    if theirs:
        row["nanoGPT"] = speeds(times["nanoGPT"], size * options.steps)
        row["nanoGPT"] |= {"parameters": theirs.parameters, "loss": theirs.loss(some_windows(stream, config))}
        row["nanoGPT"]["revision"] = theirs.version
        row["ours_over_nanogpt"] = compared(times, device)
    return row


SIZES = ("d_model", "n_layers", "n_heads", "seq_len", "vocab_size", "batch_size")
LIMIT = 50_000  # tokens of the held-out text that both are tested on


def some_windows(stream, config):
    """What Language.evaluate reads up to the same limit."""
    count = 0
    for batch in stream.windows(config.seq_len, split="val", size=16):
        yield batch
        count += batch["targets"].numel()
        if count >= LIMIT:
            return


def speeds(times, tokens):
    wall, cpu = (statistics.median(part) for part in zip(*times, strict=True))
    return {"tokens_per_second": round(tokens / wall, 1), "tokens_per_cpu_second": round(tokens / cpu, 1)}


def compared(times, device):
    """How much faster we are, round by round: by the clock on a GPU, by CPU time on a CPU that others use, too."""
    which = 0 if device.type == "cuda" else 1
    pairs = zip(times["nanoGPT"], times["ours"], strict=True)
    found = sorted(theirs[which] / ours[which] for theirs, ours in pairs)
    quarter = len(found) // 4
    return {"by": ("clock", "CPU time")[which], "median": round(statistics.median(found), 4),
            "quartiles": [round(found[quarter], 4), round(found[-1 - quarter], 4)]}  # fmt: skip


def shares(config, stream, times, size, options):
    """The row's ratios; both conventions have a name."""
    wanted = costs.model_config({"settings": dataclasses.asdict(config), "text": {"vocabulary": [stream.vocab_size]}})
    flops = oracle.flops_per_token(wanted, config.seq_len)
    peak, bandwidth = options.ceilings(DTYPES[config.precision], config.device)
    speed = size * options.steps / statistics.median(wall for wall, _ in times)
    found = {f"R_compute_{name}": ratios.compute(speed, cost, peak).told() for name, cost in flops.items()}
    traffic = costs.training_traffic(wanted)
    found["R_roofline"] = ratios.roofline(speed, flops["causal"], peak, traffic, bandwidth).told()
    return found | {"flops_per_token": flops, "peak_flops": peak, "bandwidth": bandwidth}


def parser():
    made = argparse.ArgumentParser("python -m benchmarks.training", description=__doc__.splitlines()[0])
    made.add_argument("--rows", nargs="+", choices=list(ROWS), help="default: char on a CPU, the others on a GPU")
    made.add_argument("--against-nanogpt", metavar="DIR", help="a checkout of karpathy/nanoGPT")
    made.add_argument("--device", default="auto")
    made.add_argument("--kernels", choices=("own", "fused"), default="fused")
    made.add_argument("--precision", choices=("auto", "fp32", "bf16", "fp16"))
    made.add_argument("--compile", action=argparse.BooleanOptionalAction)
    made.add_argument("--steps", type=int, default=20, help="updates in a round")
    made.add_argument("--rounds", type=int, default=8)
    made.add_argument("--batch_size", type=int)
    made.add_argument("--out", help="also write the numbers there, as json")
    return made


def main(arguments=None):
    """Print a row for each model; with --out also write the json."""
    options = parser().parse_args(arguments)
    options.config = settings("b", "smoke", device=options.device)
    device, known = measure.device_of(options.device), {}

    def ceilings(dtype, where):
        """The best ever seen: asked before a row and after it, so that a slow spell does not lower them."""
        new = measure.peak_matmul(dtype, where), measure.bandwidth(where)
        known[dtype] = tuple(map(max, new, known.get(dtype, new)))
        return known[dtype]

    options.ceilings = ceilings
    gpu = device.type == "cuda"
    torch.set_float32_matmul_precision("high")  # for both; what neither computes in half precision
    if options.compile is None:
        options.compile = gpu
    result = {"date": datetime.date.today().isoformat(), **measure.described(device), "rows": []}
    try:
        for name in options.rows or (["10m", "50m", "124m"] if gpu else ["char"]):
            result["rows"].append(measured(name, options))
            print(told(result["rows"][-1]), flush=True)
    except NotThere as error:
        raise SystemExit(f"✗ {error}") from None
    keep(result, options.out)
    return result


def told(row):
    """A line or two for the reader."""
    ours = row["ours"]
    text = f"{row['row']:6} {ours['parameters']:,} parameters, {row['precision']}: "
    text += f"{ours['tokens_per_second']:,.0f} tokens/s, R_compute {ours['R_compute_causal']} (causal) "
    text += f"{ours['R_compute_palm']} (PaLM), R_roofline {ours['R_roofline']}"
    if "nanoGPT" in row:
        found, theirs = row["ours_over_nanogpt"], row["nanoGPT"]
        low, high = found["quartiles"]
        text += f"\n       nanoGPT {theirs['tokens_per_second']:,.0f} tokens/s; ours / nanoGPT by {found['by']}: "
        text += f"{found['median']:.3f} ({low:.3f} to {high:.3f}); loss {ours['loss']:.3f} and {theirs['loss']:.3f}"
    return text


if __name__ == "__main__":
    main()
