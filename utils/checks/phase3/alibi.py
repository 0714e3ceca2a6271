"""alibi_bias: distance as a handicap, another one for each head."""

from utils import oracle
from utils.checks.exercise import Spotted, case, register
from utils.checks.phase3 import PHASE, rules_alibi


def asked(n_heads, q_len, kv_len):
    return dict(n_heads=n_heads, q_len=q_len, kv_len=kv_len)


def table(name, *sizes, **options):
    return case(name, asked(*sizes), judge=rules_alibi.judge_biases, **options)


def wrong(fault):
    def biases(n_heads, q_len, kv_len):
        found = rules_alibi.biases(n_heads, q_len, kv_len, fault)
        return rules_alibi.biases(n_heads, q_len, kv_len) if found is None else found

    return biases


FAULTS = {
    "far keys must lose: the sign": "sign",
    "slopes were reversed: head 0 is the steepest": "reversed",
    "align to the end": "from the start",
    "six is no power of 2": "plain formula",
    "h starts at 1": "from 0",
    "of the finer slopes take the first, the third, …": "even ones",
    "every other of the finer slopes": "all of them",
    "the finer slopes come after the others, unsorted": "sorted",
}

register(
    expected=oracle.alibi_bias,
    phase=PHASE,
    section="3.13",
    hint="slope times distance, negative; query i stands at i + kv_len − q_len.",
    grad=False,
    cases=(
        table("four heads", 4, 5, 5),
        table("eight heads, one query", 8, 1, 6),
        table("more keys than queries", 4, 3, 7),
        table("six heads", 6, 5, 5),
        table("twelve heads", 12, 2, 9),
        table("three heads, float64 by default", 3, 4, 6, dtype="float64"),
        table("three heads, float32 by default", 3, 4, 6, dtype="float32"),
        table("one head", 1, 3, 3),
        table("two heads, one token", 2, 1, 1),
    ),
    mistakes={says: Spotted(rules_alibi.biased(fault), wrong(fault)) for says, fault in FAULTS.items()},
)
