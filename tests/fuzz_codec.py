"""Mutated messages, as a hostile child might send them: `python -m tests.fuzz_codec 100000` prints what became of them.

Each is an honest message with something changed: bytes, the JSON tree, the list of streams, or two messages mixed.
"""

import copy
import json
import os
import random
import resource
import sys
from collections import Counter

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from autograde import claims
from utils.checks import EXERCISES
from utils.checks.exercise import request_for, truth
from utils.checks.verdict import Exam, judged
from utils.observe import codec

ASKED = {  # exercises whose observations differ most: gradients, modules, chance, a flag, two calls, a refusal
    "sdpa": ("two heads", "a mask"),
    "SelfAttention": ("causal",),
    "MaskedSelfAttention": ("training, two keys seen", "one token too many"),
    "score_variance": ("d_head 48",),
    "streaming_attention": ("blocks of 2",),
    "causal_mask": ("five tokens",),
    "attention_cost": (),
    "leaks_future": ("causal",),
}
WORDS = (
    *("named", "dict", "tuple", "array", "shape", "library", "text", "bytes", "generator", "copy", "fixture"),
    *("options", "other", "torch", "torch bfloat16", "numpy", "numpy scalar", "float64", "int16", "uint8", "bool"),
    *("raised", "value", "grads", "every parameter", "problem", "kind", "message", "type", "is", "where", "ValueError"),
    *(
        "TookTooLong",
        "NotImplementedError",
        "stream",
        "stdout",
        "text/plain",
        "image/png",
        "\x1b[2J\r✓ 4/4\n",
        "\ud800",
    ),
)
NUMBERS = (0, 1, -1, 2, 3, 5, 64, 65, 2**31, 2**62, 2**64, -(2**63), 2**4095, 2**4096, 0.5, -0.0, 1e308)
NUMBERS += (float("nan"), float("inf"))
OUTPUTS = {
    "outputs": [
        {"output_type": "stream", "name": "stdout", "text": "\x1b[31mred\x1b[0m\n" + 200 * "long "},
        {
            "output_type": "display_data",
            "data": {"text/plain": "<Figure>", "image/png": "iVBORw0KGgo="},
            "metadata": {},
        },
        {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": ["ValueError: no"]},
    ]
}
VALUES = (
    [
        torch.arange(6.0).reshape(2, 3).T,
        torch.tensor(True),
        torch.ones(2, 2).bfloat16(),
        np.float32(2),
        np.zeros((0, 3)),
    ],
    {"a": (1, None, b"x" * 200), 7: codec.Other("a.b", "c"), "f": codec.Fixture("mean", {"seed": 1})},
    {"g": codec.Generator(5), "s": "é" * 300, "d": torch.zeros(3, dtype=torch.int8), "n": -0.0},
)


def papers():
    """[(exam of one case, request's bytes, honest message)], and messages that answer nothing."""
    asked = []
    for name, wanted in ASKED.items():
        exercise = EXERCISES[name]
        found = [case for case in exercise.visible if case.name in wanted] or exercise.visible[:1]
        for case in found:
            request = codec.encode(vars(request_for(exercise, case, 7)))
            asked.append((Exam(exercise, (case,), 7), request, codec.encode(truth(exercise, case, 7))))
    return asked, [codec.encode(value) for value in (OUTPUTS, *VALUES)]


# ---- mutations -----------------------------------------------------------------------------------


def split(message):
    """(tree, streams) of a message's bytes."""
    end = 8 + int.from_bytes(message[:8], "little")
    return message[8:end], message[end:]


def joined(tree, streams):
    return len(tree).to_bytes(8, "little") + tree + streams


def in_its_bytes(message, rng, others):
    data = bytearray(message)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place, length = rng.randrange(len(data) + 1), rng.choice((1, 1, 4, 8, 40))
        piece = rng.choice(
            (b"", rng.randbytes(length), bytes(length), b"\xff" * length, bytes(data[place : place + length]) * 2)
        )
        data[place : place + rng.choice((0, length))] = piece
    return bytes(data)


def in_its_tree(message, rng, others):
    tree, streams = split(message)
    tree = json.loads(tree)
    for _ in range(rng.choice((1, 1, 2, 5))):
        tree = changed(tree, rng, json.loads(split(rng.choice(others))[0]))
    return joined(json.dumps(tree).encode(), streams)


def changed(tree, rng, other):
    """`tree` with one node replaced, removed, doubled, renamed or wrapped."""
    root = [tree]
    nodes = list(_nodes(root))
    holder, key = rng.choice(nodes)
    way = rng.randrange(6)
    if way == 0:
        holder[key] = rng.choice((*WORDS, *NUMBERS, None, True, [], {}))
    elif way == 1:
        far, name = rng.choice(list(_nodes([other])))
        holder[key] = copy.deepcopy(far[name])
    elif way == 2 and len(nodes) > 1 and holder is not root:
        del holder[key]
    elif way == 3 and isinstance(holder, dict):
        holder[rng.choice(WORDS)] = holder.pop(key)
    elif way == 4 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    else:
        holder[key] = rng.choice(([holder[key]], {"tuple": [holder[key]]}, {"named": {rng.choice(WORDS): holder[key]}}))
    return root[0]


def _nodes(holder):
    for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
        yield holder, key
        if isinstance(holder[key], (dict, list)):
            yield from _nodes(holder[key])


def in_its_streams(message, rng, others):
    tree, streams = split(message)
    if not streams:
        return in_its_bytes(message, rng, others)
    head, numbers = split(streams)
    head = json.loads(head)
    for _ in range(rng.choice((1, 1, 3))):
        head = changed(head, rng, {"a": {"dtype": "F8_E5M2", "shape": [0, 2**40], "data_offsets": [-1, 2**63]}})
    return joined(tree, joined(json.dumps(head).encode(), numbers))


def of_two(message, rng, others):
    """The tree of one, the numbers of another; or numbers of the right count that are noise."""
    tree, streams = split(message)
    if rng.random() < 0.5 or not streams:
        return joined(tree, split(rng.choice(others))[1])
    head, numbers = split(streams)
    return joined(tree, joined(head, rng.choice((rng.randbytes(len(numbers)), b"\xff" * len(numbers)))))


MUTATIONS = (in_its_bytes, in_its_tree, in_its_tree, in_its_tree, in_its_streams, of_two)


# ---- what becomes of them ------------------------------------------------------------------------


def outcome(message, request, exam):
    """Which of the doors a message gets through: "refused", "decoded", "outputs", "observation", "full marks"."""
    try:
        value = codec.decode(message)
    except codec.CodecError:
        return "refused"
    again = codec.encode(value)
    if codec.encode(codec.decode(again)) != again:
        raise AssertionError("a value that changes on its way")
    try:
        claims.cell_outputs(message)
        return "outputs"
    except claims.BadClaim:
        pass
    try:
        seen = claims.observation(message, request)
    except claims.BadClaim:
        return "decoded"
    report = judged(exam, [seen])
    return "full marks" if report.passed else "observation"


def run(inputs, seed=0):
    """Counts of what became of `inputs` mutated messages. Raises what a door lets fall through."""
    rng = random.Random(seed)
    asked, loose = papers()
    messages = [message for *_, message in asked] + loose
    counts = Counter()
    for _ in range(inputs):
        exam, request, message = rng.choice(asked)
        if rng.random() < 0.25:
            message = rng.choice(loose)
        mutated = rng.choice(MUTATIONS)(message, rng, messages)
        try:
            counts[outcome(mutated, request, exam)] += 1
        except Exception as error:
            raise AssertionError(f"{exam.exercise.name}, {exam.cases[0].name}: {mutated[:2000]!r}") from error
    return dict(counts)


if __name__ == "__main__":
    torch.set_num_threads(1)
    papers()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = run(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({**found, "grown_mib": (used.ru_maxrss - before) // 1024, "cpu_seconds": round(used.ru_utime)}))
