"""serving_plan, route_request, design_numbers: arithmetic on what a machine can do."""

import math

from utils import oracle
from utils.checks.exercise import Replays, case, register
from utils.checks.phase6 import PHASE
from utils.config import ModelConfig
from utils.observe.codec import Fixture

TOY = dict(vocab_size=1000, d_model=96, n_heads=6, n_layers=5, d_ff=320, max_len=700)
LARGE = dict(vocab_size=50_000, d_model=2048, n_heads=16, n_layers=24, d_ff=8192, max_len=4096)
BOX = dict(
    memory_bytes=8e9,
    bandwidth_bytes_per_s=60e9,
    flops_per_s=4e12,
    weight_bits=8,
    kv_bits=16,
    prompt_len=500,
    seq_len=1500,
)


def plan(name, sizes=LARGE, config=None, **hardware):
    return case(name, dict(config=Fixture("config", sizes | (config or {})), hardware=BOX | hardware))


def scaled(**changes):
    """A wrong twin: the hardware as it would have to be for this answer, changes(hardware) by name."""

    def serving_plan(config, hardware):
        return oracle.serving_plan(config, hardware | {name: change(hardware) for name, change in changes.items()})

    return serving_plan


def narrow(config):
    """The width of a token's keys."""
    return (config.n_kv_heads or config.n_heads) * config.d_model / config.n_heads


def built(change):
    """A wrong twin: change(config, hardware) replaces parts of the arithmetic."""

    def serving_plan(config, hardware):
        part = dict(
            parameters=oracle.count_parameters(config)["total"],
            per_token=2 * narrow(config) * config.n_layers * hardware["kv_bits"] / 8,
            free=lambda memory, weights: memory - weights,
            read=lambda weights, batch, cache: weights + batch * cache,
            flops=lambda parameters: 2 * parameters,
            prompt=lambda n: n,
            length=lambda hardware: hardware["seq_len"],
            rate=lambda batch, seconds: batch / seconds,
            whole=math.floor,
            empty=(None, None, 0.0),
            slowest=max,
            prefill=None,
            bound=lambda compute, memory: "compute" if compute > memory else "memory",
            least=0,
            step=lambda batch, seconds: batch * seconds,
        ) | change(config, hardware)
        speed, power = hardware["bandwidth_bytes_per_s"], hardware["flops_per_s"]
        weights = part["parameters"] * hardware["weight_bits"] / 8
        cache = part["per_token"] * part["length"](hardware)
        batch = max(part["least"], part["whole"](part["free"](hardware["memory_bytes"], weights) / cache))
        flops = part["flops"](part["parameters"])
        pre = flops * part["prompt"](hardware["prompt_len"]) / power, weights / speed
        step = part["step"](batch, flops / power), part["read"](weights, batch, cache) / speed
        seconds = part["slowest"](step)
        bound = part["bound"](*step)
        last = (seconds, bound, part["rate"](batch, seconds)) if batch or part["empty"] is None else part["empty"]
        first = (part["prefill"] or part["slowest"])(pre)
        values = (
            *map(float, (part["parameters"], weights, part["per_token"], cache, batch, flops, first)),
            part["bound"](*pre),
            *last,
        )
        return dict(zip(KEYS, values, strict=True))

    return serving_plan


KEYS = (
    *("parameters", "weight_bytes", "kv_bytes_per_token", "kv_bytes_per_sequence", "max_batch", "flops_per_token"),
    *("prefill_seconds", "prefill_bound", "decode_step_seconds", "decode_bound", "tokens_per_second"),
)


def first_of(times):
    """Computing alone."""
    return times[0]


def last_of(times):
    """Reading alone."""
    return times[1]


def heads_of_queries(config, hardware):
    return dict(per_token=2 * config.n_layers * config.d_model * hardware["kv_bits"] / 8)


def half(config, hardware):
    return dict(per_token=config.n_layers * narrow(config) * hardware["kv_bits"] / 8)


def one_layer(config, hardware):
    return dict(per_token=2 * narrow(config) * hardware["kv_bits"] / 8)


def without_table(config, hardware):
    count = oracle.count_parameters(config)
    return dict(parameters=count["total"] - count["embedding"] - count["positions"])


def tied():
    """A machine that computes a step of four sequences in exactly the time in which it reads."""
    sizes = dict(vocab_size=512, d_model=64, n_heads=4, n_layers=2, d_ff=256, max_len=64)
    parameters = oracle.count_parameters(ModelConfig(**sizes))["total"]
    cache = 2 * 2 * 64 * 2 * 64  # of a sequence of 64 tokens at 16 bits
    memory = 2 * parameters + 4 * cache
    rates = dict(memory_bytes=memory + 5.0, bandwidth_bytes_per_s=memory * 64.0, flops_per_s=8 * parameters * 64.0)
    return plan("computing and reading take equally long", sizes, weight_bits=16, seq_len=64, prompt_len=2, **rates)


register(
    expected=oracle.serving_plan,
    phase=PHASE,
    section="6.22",
    hint="a step reads the weights once and every cache, and computes 2 · parameters per sequence: the slower counts.",
    grad=False,
    cases=(
        plan("memory-bound"),
        plan("compute-bound", flops_per_s=3e10, memory_bytes=12e9),
        plan("4-bit weights, 8-bit cache", weight_bits=4, kv_bits=8),
        plan("too small for the weights", memory_bytes=1e9),
        plan("room for the weights, for no sequence", memory_bytes=1.5e9),
        tied(),
        plan("grouped heads", config=dict(n_kv_heads=4), prompt_len=3),
        plan(
            "a small model, untied",
            TOY,
            config=dict(tied=False, n_kv_heads=2),
            memory_bytes=1e7,
            seq_len=130,
            weight_bits=16,
        ),
    ),
    mistakes={
        "compute only where it takes strictly longer": built(
            lambda c, h: dict(bound=lambda compute, memory: "compute" if compute >= memory else "memory")
        ),
        "one step reads the weights once": built(
            lambda c, h: dict(read=lambda weights, batch, cache: batch * (weights + cache))
        ),
        "GB are decimal: 10⁹ bytes": Replays(
            scaled(memory_bytes=lambda h: h["memory_bytes"] / 1e9 * 2**30),
            scaled(memory_bytes=lambda h: h["memory_bytes"] * 1e9 / 2**30),
            scaled(**{n: lambda h, n=n: h[n] / 1e9 * 2**30 for n in ("memory_bytes", "bandwidth_bytes_per_s")}),
        ),
        "a byte has 8 bits": Replays(
            scaled(weight_bits=lambda h: 8 * h["weight_bits"], kv_bits=lambda h: 8 * h["kv_bits"]),
            scaled(kv_bits=lambda h: 8 * h["kv_bits"]),
            scaled(weight_bits=lambda h: 8 * h["weight_bits"]),
        ),
        "weights take their share of the memory": built(lambda c, h: dict(free=lambda memory, weights: memory)),
        "each sequence reads its own cache, too": built(lambda c, h: dict(read=lambda weights, batch, cache: weights)),
        "the caches of the whole batch are read": built(
            lambda c, h: dict(read=lambda weights, batch, cache: weights + cache)
        ),
        "keys and values": built(half),
        "every layer has a cache": built(one_layer),
        "grouped heads cache less": built(heads_of_queries),
        "the cache has its own bits": scaled(kv_bits=lambda h: h["weight_bits"]),
        "two operations for each parameter": built(lambda c, h: dict(flops=lambda parameters: parameters)),
        "the prompt's tokens are computed, all of them": built(lambda c, h: dict(prompt=lambda n: 1)),
        "prefill takes the prompt only": built(lambda c, h: dict(prompt=lambda n: h["seq_len"])),
        "the slower of the two counts": Replays(
            *(built(lambda c, h, way=way: dict(slowest=way)) for way in (min, sum, first_of, last_of)),
            *(built(lambda c, h, way=way: dict(prefill=way)) for way in (min, sum, first_of, last_of)),
            *(built(lambda c, h, way=way: dict(prefill=max, slowest=way)) for way in (min, sum, first_of, last_of)),
        ),
        "seq_len is the whole length, prompt included": Replays(
            built(lambda c, h: dict(length=lambda h: h["seq_len"] + h["prompt_len"])),
            built(lambda c, h: dict(length=lambda h: h["prompt_len"])),
        ),
        'a bound is "compute" or "memory"': built(
            lambda c, h: dict(bound=lambda compute, memory: "compute" if compute > memory else "bandwidth")
        ),
        "only whole sequences fit": Replays(
            built(lambda c, h: dict(whole=lambda batch: batch)),
            built(lambda c, h: dict(whole=round)),
            built(lambda c, h: dict(whole=math.ceil)),
        ),
        "each sequence gets a token per step": built(lambda c, h: dict(rate=lambda batch, seconds: 1 / seconds)),
        "count all parameters": built(without_table),
        "without a sequence there is no step": Replays(
            built(lambda c, h: dict(empty=(0.0, "memory", 0.0))),
            built(lambda c, h: dict(empty=(0.0, None, 0.0))),
            built(lambda c, h: dict(empty=(math.inf, None, 0.0))),
            built(lambda c, h: dict(empty=(None, None, None))),
            built(lambda c, h: dict(empty=None)),
        ),
        "max_batch is at least 0": Replays(
            built(lambda c, h: dict(least=-math.inf)), built(lambda c, h: dict(least=-math.inf, empty=None))
        ),
        "a step computes a token for every sequence": built(lambda c, h: dict(step=lambda batch, seconds: seconds)),
    },
)


# ---- route_request -----------------------------------------------------------------------------------

PHONE = dict(prefill_tokens_per_s=500.0, decode_tokens_per_s=20.0, max_tokens=1000)
FARM = dict(prefill_tokens_per_s=8000.0, decode_tokens_per_s=100.0, max_tokens=16000, round_trip_s=0.25, online=True)
ASK = dict(prompt_tokens=250, new_tokens=30, private=False, budget_s=4.0)


def ask(name, server=None, device=None, then=(), **request):
    """One request; `then`: further ones on the same machines, as changes to the first."""
    first = dict(request=ASK | request, device=PHONE | (device or {}), server=FARM | (server or {}))
    more = tuple(first | dict(request=ASK | request | change) for change in then)
    return case(name, first, then=more)


def router(
    seconds=lambda request, place: (
        place.get("round_trip_s", 0.0)
        + request["prompt_tokens"] / place["prefill_tokens_per_s"]
        + request["new_tokens"] / place["decode_tokens_per_s"]
    ),
    fits=lambda request, place: request["prompt_tokens"] + request["new_tokens"] <= place["max_tokens"],
    in_time=lambda seconds, budget: seconds <= budget,
    private=lambda request: request["private"],
    online=lambda server: server["online"],
    server_first=False,
    swap=lambda reason, here, there: reason,
    refused=lambda near, far: None,
):
    """A wrong twin in its parts."""

    def route_request(request, device, server):
        near, far = seconds(request, device), seconds(request, server)
        here, there = fits(request, device), fits(request, server)
        near_good, far_good = (one and in_time(time, request["budget_s"]) for one, time in ((here, near), (there, far)))
        may = far_good and online(server) and not private(request)
        if near_good and not (server_first and may and far < near):
            target, time, reason = "device", near, "fits_device"
        elif may:
            target, time, reason = "server", far, "device_latency" if here else "device_context"
        else:
            target, time = "refuse", refused(near, far)
            reason = (
                ("privacy" if request["private"] else "offline")
                if far_good
                else ("latency" if here or there else "context")
            )
        return {"target": target, "seconds": time, "reason": swap(reason, here, there)}

    return route_request


def without(part):
    """The time without one of its parts."""

    def seconds(request, place):
        parts = dict(
            trip=place.get("round_trip_s", 0.0),
            prompt=request["prompt_tokens"] / place["prefill_tokens_per_s"],
            new=request["new_tokens"] / place["decode_tokens_per_s"],
        )
        return sum(value for name, value in parts.items() if name != part)

    return seconds


def swapped(**names):
    return lambda reason, here, there: names.get(reason, reason)


def private_first(request, device, server):
    answer = oracle.route_request(request, device, server)
    if answer["target"] == "refuse" and request["private"]:
        return answer | {"reason": "privacy"}
    return answer


def private_before_context(request, device, server):
    answer = oracle.route_request(request, device, server)
    if answer["reason"] == "context" and request["private"]:
        return answer | {"reason": "privacy"}
    return answer


def offline_first(request, device, server):
    answer = oracle.route_request(request, device, server)
    if answer["reason"] == "privacy" and not server["online"]:
        return answer | {"reason": "offline"}
    return answer


register(
    expected=oracle.route_request,
    phase=PHASE,
    section="6.23",
    hint="device if it holds and is in time; else server if good, online and not private; else say what failed.",
    grad=False,
    cases=(
        ask("the device will do"),
        ask("too slow on the device", new_tokens=100),
        ask("too long for the device", prompt_tokens=3000, new_tokens=40, budget_s=3.0),
        ask("private, and the server would be good", private=True, new_tokens=100),
        ask("offline, and the server would be good", server=dict(online=False), new_tokens=100),
        ask("private and offline", server=dict(online=False), private=True, prompt_tokens=3000),
        ask("private, and the device will do", private=True),
        ask("offline, and the device will do", server=dict(online=False)),
        ask("nobody holds it", prompt_tokens=20000, budget_s=1e6, then=(dict(private=True),)),
        ask("nobody is in time", budget_s=0.3, then=(dict(private=True), dict(prompt_tokens=3000))),
        ask("only the device holds it, too slowly", server=dict(max_tokens=100), new_tokens=100),
        ask("exactly on the budget", budget_s=2.0, then=(dict(budget_s=1.999),)),
        ask(
            "exactly on the server's budget",
            prompt_tokens=2000,
            new_tokens=50,
            budget_s=1.0,
            then=(dict(budget_s=0.999),),
        ),
        ask(
            "exactly what the device holds",
            prompt_tokens=950,
            new_tokens=50,
            budget_s=9.0,
            then=(dict(prompt_tokens=951),),
        ),
        ask("exactly what the server holds", prompt_tokens=15960, new_tokens=40, then=(dict(prompt_tokens=15961),)),
        ask("no new tokens", new_tokens=0),
    ),
    mistakes={
        "a private request stays on the device": router(private=lambda request: False),
        "the way to the server takes time, too": router(seconds=without("trip")),
        "the prompt takes time, too": router(seconds=without("prompt")),
        "the answer takes time, too": router(seconds=without("new")),
        "the device comes first where it is good enough": router(server_first=True),
        "prompt and answer must fit together": Replays(
            router(fits=lambda request, place: request["prompt_tokens"] <= place["max_tokens"]),
            router(fits=lambda request, place: request["new_tokens"] <= place["max_tokens"]),
        ),
        "exactly full is not too long": router(
            fits=lambda request, place: request["prompt_tokens"] + request["new_tokens"] < place["max_tokens"]
        ),
        "exactly on the budget is in time": router(in_time=lambda seconds, budget: seconds < budget),
        "the budget was ignored": router(in_time=lambda seconds, budget: True),
        "an offline server cannot answer": router(online=lambda server: True),
        "privacy is told before being offline": offline_first,
        "privacy is the reason only where the server would be good": Replays(private_first, private_before_context),
        "device_context: the device could not hold it": router(
            swap=swapped(device_context="device_latency", device_latency="device_context")
        ),
        "device_context where the device cannot hold it, device_latency where it is too slow": Replays(
            router(swap=swapped(device_context="device_latency")),
            router(swap=swapped(device_latency="device_context")),
        ),
        "context: neither of the two holds it": router(
            swap=lambda reason, here, there: "context" if reason == "latency" and not (here and there) else reason
        ),
        "who refuses takes no time: None": Replays(
            router(refused=lambda near, far: 0.0),
            router(refused=lambda near, far: near),
            router(refused=lambda near, far: math.inf),
        ),
        "offline: the server would be good, and only that is missing": router(swap=swapped(offline="latency")),
    },
)
