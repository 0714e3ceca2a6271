"""serving_plan, route_request, design_numbers: wrong solutions and unusual right ones."""

import math

from tests.bank import right, wrong


def count(config, norms=True, table=True):
    """All parameters of a model of these sizes."""
    d, kv = config.d_model, config.d_model // config.n_heads * (config.n_kv_heads or config.n_heads)
    attention = 2 * (d * d + d) + 2 * (d * kv + kv)
    ffn = 2 * d * config.d_ff + d + config.d_ff
    both = config.src_vocab_size is not None
    a, f, n = (3, 2, 5) if both else (1, 1, 2)
    total = config.n_layers * (a * attention + f * ffn)
    if norms:
        total += 2 * d * (config.n_layers * n + (2 if both else 1) * config.norm_first)
    if table:
        total += d * (config.vocab_size + (config.src_vocab_size or 0)) + (0 if both else d * config.max_len)
        total += 0 if config.tied else d * config.vocab_size
    return total


def cache_per_token(config, bits):
    return 2 * config.n_layers * (config.n_kv_heads or config.n_heads) * (config.d_model // config.n_heads) * bits / 8


# ---------------------------------------------------------------- serving_plan


def planner(
    name,
    number=float,
    parameters=count,
    cache=cache_per_token,
    read=lambda w, b, c: w + b * c,
    gigabyte=1.0,
    byte=8,
    free=lambda m, w: m - w,
    flops=2,
    choose=max,
):
    def serving_plan(config, hardware):
        h = hardware
        p = parameters(config)
        w = p * h["weight_bits"] * (8 / byte) / 8
        per_token = cache(config, h["kv_bits"]) * (8 / byte)
        sequence = per_token * h["seq_len"]
        b = max(int(free(h["memory_bytes"] * gigabyte, w) // sequence), 0)
        plan = dict(
            parameters=number(p), weight_bytes=number(w), max_batch=number(b), flops_per_token=number(flops * p)
        )
        plan |= dict(kv_bytes_per_token=per_token, kv_bytes_per_sequence=sequence)
        plan |= dict(decode_step_seconds=None, decode_bound=None, tokens_per_second=0.0)
        t = {"compute": flops * p * h["prompt_len"] / h["flops_per_s"], "memory": w / h["bandwidth_bytes_per_s"]}
        plan["prefill_bound"] = "compute" if t["compute"] > t["memory"] else "memory"
        plan["prefill_seconds"] = choose(t.values())
        if b > 0:
            t = {
                "compute": b * flops * p / h["flops_per_s"],
                "memory": read(w, b, sequence) / h["bandwidth_bytes_per_s"],
            }
            plan["decode_bound"] = "compute" if t["compute"] > t["memory"] else "memory"
            plan["decode_step_seconds"] = choose(t.values())
            plan["tokens_per_second"] = b / plan["decode_step_seconds"]
        return plan

    serving_plan.__name__ = name
    return serving_plan


for _name, _says, _parts in [
    ("weights_for_each", "one step reads the weights once", dict(read=lambda w, b, c: b * (w + c))),
    ("gibibytes", "GB are decimal: 10⁹ bytes", dict(gigabyte=2**30 / 1e9)),
    ("bits_for_bytes", "a byte has 8 bits", dict(byte=1)),
    ("memory_without_weights", "weights take their share of the memory", dict(free=lambda m, w: m)),
    ("caches_unread", "each sequence reads its own cache, too", dict(read=lambda w, b, c: w)),
    ("one_operation", "two operations for each parameter", dict(flops=1)),
    ("faster_counts", "the slower of the two counts", dict(choose=min)),
    ("keys_only", "keys and values", dict(cache=lambda c, bits: cache_per_token(c, bits) / 2)),
    (
        "all_heads",
        "grouped heads cache less",
        dict(cache=lambda c, bits: 2 * c.n_layers * c.d_model * bits / 8),
    ),
    ("blocks_only", None, dict(parameters=lambda c: count(c, norms=False, table=False))),
]:
    wrong("serving_plan", says=_says)(planner(_name, **_parts))


@wrong("serving_plan")
def crashes_without_room(config, hardware):
    plan = planner("plan")(config, hardware)
    plan["tokens_per_second"] = plan["max_batch"] / plan["decode_step_seconds"]
    return plan


@wrong("serving_plan")
def key_missing(config, hardware):
    plan = planner("plan")(config, hardware)
    del plan["prefill_bound"]
    return plan


right("serving_plan", why="everything as a float")(planner("floats"))
right("serving_plan", why="whole numbers stay ints")(planner("ints", number=lambda x: int(x) if x == int(x) else x))
right("serving_plan", why="as they come")(planner("mixed", number=lambda x: x))


@right("serving_plan", why="rates instead of times")
def rates(config, hardware):
    plan = planner("plan")(config, hardware)
    b = plan["max_batch"]
    if b:
        compute = hardware["flops_per_s"] / plan["flops_per_token"]
        memory = b * hardware["bandwidth_bytes_per_s"] / (plan["weight_bytes"] + b * plan["kv_bytes_per_sequence"])
        plan["tokens_per_second"] = min(compute, memory)
        plan["decode_step_seconds"] = b / min(compute, memory)
        plan["decode_bound"] = "compute" if compute < memory else "memory"
    return plan


# ---------------------------------------------------------------- route_request


def at_most(a, b):
    return a <= b


def router(name, trip=True, prompt=True, new=True, together=True, before=at_most, full=at_most, **change):
    """Early returns; each option spoils a part."""

    def route_request(request, device, server):
        def seconds(place):
            return (
                (place.get("round_trip_s", 0) if trip else 0)
                + (request["prompt_tokens"] / place["prefill_tokens_per_s"] if prompt else 0)
                + (request["new_tokens"] / place["decode_tokens_per_s"] if new else 0)
            )

        tokens = request["prompt_tokens"] + (request["new_tokens"] if together else 0)
        here, there = full(tokens, device["max_tokens"]), full(tokens, server["max_tokens"])
        near, far = seconds(device), seconds(server)
        private = request["private"] and "leaks" not in change
        online = server["online"] or "always_online" in change
        good = there and before(far, request["budget_s"])

        def answer(target, time, reason):
            return dict(target=target, seconds=time, reason=reason)

        if "server_first" in change and good and online and not private:
            return answer("server", far, "device_latency" if here else "device_context")
        if here and before(near, request["budget_s"]):
            return answer("device", near, "fits_device")
        if not here and not there:
            return answer("refuse", change.get("refused"), "context")
        if not good:
            return answer("refuse", change.get("refused"), "latency")
        if private and not ("offline_first" in change and not online):
            return answer("refuse", change.get("refused"), "privacy")
        if not online:
            return answer("refuse", change.get("refused"), "offline")
        return answer("server", far, "device_latency" if here else "device_context")

    route_request.__name__ = name
    return route_request


for _name, _says, _parts in [
    ("leaks", "a private request stays on the device", dict(leaks=True)),
    ("no_round_trip", "the way to the server takes time, too", dict(trip=False)),
    ("prompt_free", "the prompt takes time, too", dict(prompt=False)),
    ("answer_free", "the answer takes time, too", dict(new=False)),
    ("prompt_only_fits", "prompt and answer must fit together", dict(together=False)),
    ("strict_budget", "exactly on the budget is in time", dict(before=lambda a, b: a < b)),
    ("strict_context", "exactly full is not too long", dict(full=lambda a, b: a < b)),
    ("always_online", "an offline server cannot answer", dict(always_online=True)),
    ("offline_first", "privacy is told before being offline", dict(offline_first=True)),
    ("server_preferred", None, dict(server_first=True)),
    ("refused_in_no_time", "who refuses takes no time: None", dict(refused=0.0)),
]:
    wrong("route_request", says=_says)(router(_name, **_parts))

right("route_request", why="early returns")(router("early_returns"))
right("route_request", why="the budget as what is left")(router("left", before=lambda a, b: b - a >= 0))
right("route_request", why="not too long instead of short enough")(router("not_long", full=lambda a, b: not a > b))


@right("route_request", why="a table of rules")
def table(request, device, server):
    need = request["prompt_tokens"] + request["new_tokens"]
    t = {
        name: request["prompt_tokens"] / place["prefill_tokens_per_s"]
        + request["new_tokens"] / place["decode_tokens_per_s"]
        for name, place in (("device", device), ("server", server))
    }
    t["server"] += server["round_trip_s"]
    holds = {"device": need <= device["max_tokens"], "server": need <= server["max_tokens"]}
    good = {name: holds[name] and t[name] <= request["budget_s"] for name in t}
    rules = (
        (good["device"], "device", "fits_device"),
        (good["server"] and request["private"], "refuse", "privacy"),
        (good["server"] and not server["online"], "refuse", "offline"),
        (good["server"] and holds["device"], "server", "device_latency"),
        (good["server"], "server", "device_context"),
        (any(holds.values()), "refuse", "latency"),
        (True, "refuse", "context"),
    )
    target, reason = next(rule[1:] for rule in rules if rule[0])
    return {"reason": reason, "seconds": t.get(target), "target": target}


# ---------------------------------------------------------------- design_numbers


def designer(name, **change):
    """The numbers; each option replaces one."""

    def design_numbers(case):
        c, n, s = case["config"], case["prompt_tokens"], case["sequences"]
        p = change.get("flops", 2), count(c)
        stacks = 2 if c.src_vocab_size else 1
        met, pairs = change.get("met", 1 / stacks), change.get("pairs", stacks)
        weights = p[1] * case["weight_bits"] / change.get("byte", 8)
        tokens = change.get("tokens", lambda n, m: n + m)(n, case["new_tokens"])
        caches = change.get("users", lambda s: s)(s) * tokens * change.get("cache", cache_per_token)(c, case["kv_bits"])
        work = p[0] * met * p[1] * n + pairs * change.get("square", 2) * c.n_layers * c.d_model * n ** change.get(
            "power", 2
        )
        reading = change.get("read", lambda w, k, s: w + k)(met * weights, caches, s) / case["bandwidth_bytes_per_s"]
        computing = p[0] * met * p[1] * s / case["flops_per_s"]
        number = change.get("number", lambda x: x)
        return dict(
            parameters=number(p[1]),
            weight_bytes=number(weights),
            kv_bytes=number(caches),
            prefill_flops=number(work),
            prefill_seconds=max(work / case["flops_per_s"], met * weights / case["bandwidth_bytes_per_s"]),
            tokens_per_second=min(s / reading, s / computing) if "one" not in change else 1 / max(reading, computing),
            machines=number(change.get("round", math.ceil)((weights + caches) / case["memory_bytes"])),
        )

    design_numbers.__name__ = name
    return design_numbers


for _name, _says, _parts in [
    ("one_cache", "every user has a cache", dict(users=lambda s: 1)),
    ("prompt_only", "prompt and answer are both kept", dict(tokens=lambda n, m: n)),
    ("no_square", "attention grows with the square of the prompt", dict(square=0)),
    ("whole_square", "a token meets half of the others on average", dict(square=4)),
    ("all_heads", "grouped heads cache less", dict(cache=lambda c, bits: 2 * c.n_layers * c.d_model * bits / 8)),
    ("weights_only", "a step reads the weights and every cache", dict(read=lambda w, k, s: w)),
    ("rounded_down", "machines come whole: round up", dict(round=math.floor)),
    ("one_user", "all users together", dict(one=True)),
    ("one_operation", "two operations for each parameter", dict(flops=1)),
    ("cubed", None, dict(power=3)),
    ("both_stacks", "two stacks: half of the parameters, twice the pairs", dict(met=1, pairs=1)),
    ("whole_model", "of two stacks each token meets one: half of the parameters", dict(met=1)),
    ("looks_back_only", "an encoder looks both ways: twice the pairs", dict(pairs=1)),
    ("one_too_many", "a machine that is exactly full will do", dict(round=lambda x: int(x) + 1)),
]:
    wrong("design_numbers", says=_says)(designer(_name, **_parts))

right("design_numbers", why="ints and floats as they come")(designer("mixed"))
right("design_numbers", why="all floats")(designer("floats", number=float))
right("design_numbers", why="rounded up by negative floor division")(designer("floor", round=lambda x: -math.floor(-x)))
right("design_numbers", why="the cache by head")(
    designer(
        "by_head",
        cache=lambda c, b: (
            b / 8 * sum(2 * c.d_model / c.n_heads for _ in range((c.n_kv_heads or c.n_heads) * c.n_layers))
        ),
    )
)
