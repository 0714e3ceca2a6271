"""head_entropy, head_patterns and head_importance: what a head does, and whether it matters."""

import contextlib
from functools import partial

import torch
import torch.nn.functional as F

from utils import oracle
from utils.checks.draw import given, probs
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase3 import PHASE, rules
from utils.checks.phase3.splitting import OWN_DTYPE, fixture

# ---- head_entropy --------------------------------------------------------------------------------


def with_zeros(*shape):
    """Weights of which about a third is exactly 0; every row still sums to 1."""

    def draw(generator, others):
        table = probs(*shape).draw(generator, others)
        hidden = torch.rand(shape, generator=generator) < 0.4
        hidden[..., 0] = False
        table = table.masked_fill(hidden, 0.0)
        return table / table.sum(-1, keepdim=True)

    return given(draw)


def with_empty_rows(*shape):
    def draw(generator, others):
        table = probs(*shape).draw(generator, others)
        table[..., 1, :] = 0.0
        return table

    return given(draw)


def with_tiny_weights(*shape):
    """One key takes nearly everything, the others get about a millionth each."""

    def draw(generator, others):
        table = 1e-6 * (0.5 + torch.rand(shape, generator=generator, dtype=torch.float64))
        table[..., 0] = 0.0
        table[..., 0] = 1 - table.sum(-1)
        return table

    return given(draw)


def plain(weights):
    return torch.special.entr(weights)


def nudged(constant):
    return lambda weights: -(weights * (weights + constant).log()).sum(-1)


register(
    expected=oracle.head_entropy,
    phase=PHASE,
    section="3.10",
    hint="minus the sum of w · log w over the keys, where 0 · log 0 counts as 0.",
    grad=False,
    cases=(
        case("batch and heads", dict(weights=probs(2, 3, 5, 7))),
        case("one row", dict(weights=probs(6))),
        case("four equal shares", dict(weights=torch.full((2, 4), 0.25, dtype=torch.float64))),
        case("zeros among them", dict(weights=with_zeros(2, 3, 5, 7))),
        case("tiny weights", dict(weights=with_tiny_weights(3, 40))),
        case("all on one key", dict(weights=torch.eye(3, 5, dtype=torch.float64))),
        case("one key", dict(weights=probs(2, 3, 4, 1))),
        case("as many heads as queries and keys", dict(weights=probs(4, 4, 4))),
        case("a row with nothing to see", dict(weights=with_empty_rows(2, 3, 5, 7)), kind="edge"),
        case("zeros, float32", dict(weights=with_zeros(2, 3, 5, 7)), dtype="float32", repeats="zeros among them"),
    ),
    mistakes={
        "0 log 0 is 0": lambda weights: -(weights * weights.log()).sum(-1),
        "nats were asked": lambda weights: (
            plain(weights).sum(-1) / torch.log(torch.tensor(2.0, dtype=torch.float64)).to(weights.dtype)
        ),
        "no constant is needed": Replays(*map(nudged, (1e-6, 1e-5, 1e-7, 1e-8, 1e-9, 1e-10))),
        "the sign: entropy is never negative": lambda weights: -plain(weights).sum(-1),
        "one number per query row": Replays(
            lambda weights: plain(weights).sum(-1).mean(),
            lambda weights: plain(weights).sum(-1).mean(-1),
            lambda weights: plain(weights).sum(-1).mean((0, 2)),
        ),
        "sum over the keys, not their mean": lambda weights: plain(weights).mean(-1),
        "keys are on the last axis": lambda weights: plain(weights).sum(-2),
        OWN_DTYPE: Spotted(rules.default_dtype, rules.in_default_dtype(oracle.head_entropy)),
    },
)

# ---- head_patterns -------------------------------------------------------------------------------


def causal_weights(*shape):
    def draw(generator, others):
        scores = torch.randn(shape, generator=generator, dtype=torch.float64)
        later = torch.ones(shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(later, float("-inf")).softmax(-1)

    return given(draw)


def tokens(*rows):
    """Ints from strings: equal letters are equal tokens."""
    return torch.tensor([[ord(letter) for letter in row] for row in rows])


def induction(weights, tokens, target="next", places="all", over="counted", only_first=False, least=1):
    """The induction score with one fault."""
    batch, _, seq_len, _ = weights.shape
    total, count = weights.new_zeros(weights.shape[1]), 0
    for example in range(1 if only_first else batch):
        row = tokens[example].tolist()
        for i in range(seq_len):
            earlier = [j for j in range(i) if row[j] == row[i]]
            earlier = {"all": earlier, "latest": earlier[-1:], "earliest": earlier[:1]}[places]
            shift = {"next": 1, "same": 0, "before": -1}[target]
            for j in earlier:
                if j + shift >= 0:
                    total = total + weights[example, :, i, j + shift]
            count += len(earlier) if over == "pairs" else bool(earlier) or over == "all"
    return total / torch.tensor(max(count, least), dtype=weights.dtype)


def itself_counted(weights, tokens, upto, wraps):
    """The induction score by tables in which a token equals itself, too (upto 0), or even later ones (None)."""
    same = tokens[:, :, None] == tokens[:, None, :]
    same = same if upto is None else same.tril(upto)
    after = same.roll(1, dims=-1)
    if not wraps:
        after[..., 0] = False
    return (weights * after[:, None]).sum((0, 2, 3)) / same.any(-1).sum()


def changed(key, function):
    """A wrong twin whose entry `key` is function(weights, tokens)."""
    return lambda weights, tokens: oracle.head_patterns(weights, tokens) | {key: function(weights, tokens)}


def _diagonal(weights, offset):
    return weights.diagonal(offset, -2, -1)  # (B, H, places)


def all_changed(function):
    """A wrong twin made of function(weights, tokens) for weights of one example or of all."""
    return lambda weights, tokens: function(weights, tokens)


def each_example_alone(weights, tokens):
    """The mean over examples of the scores of each."""
    alone = [oracle.head_patterns(weights[n : n + 1], tokens[n : n + 1]) for n in range(len(weights))]
    return {key: torch.stack([one[key] for one in alone]).mean(0) for key in alone[0]}


def looked_at(weights, *rows):
    return dict(weights=weights, tokens=tokens(*rows))


register(
    expected=oracle.head_patterns,
    phase=PHASE,
    section="3.10",
    hint="for each pattern: which key is the target, and which queries count; then one mean over all of them.",
    grad=False,
    cases=(
        case("repeats twice and three times", looked_at(probs(2, 3, 7, 7), "abcabca", "abababc")),
        case("causal weights", looked_at(causal_weights(2, 3, 7, 7), "abcdabc", "aabcbda")),
        case("equal neighbours", looked_at(probs(2, 4, 6, 6), "aaabbb", "abbbcc")),
        case(
            "examples with different numbers of repeats",
            looked_at(causal_weights(3, 2, 6, 6), "abcdef", "ababab", "abcdea"),
        ),
        case("no repeats", looked_at(probs(2, 3, 5, 5), "abcde", "edcba")),
        case("one example, one head", looked_at(probs(1, 1, 6, 6), "abcabc")),
        case("two tokens", looked_at(probs(3, 2, 2, 2), "ab", "aa", "ba")),
        case(
            "as many heads as examples and tokens",
            looked_at(probs(5, 5, 5, 5), "abcab", "aabbc", "abcde", "aaaaa", "abcba"),
        ),
    ),
    mistakes={
        "that is the next token": changed("previous", lambda w, t: _diagonal(w, 1).mean((0, 2))),
        "induction looks one place after the earlier one": Replays(
            changed("induction", lambda w, t: induction(w, t, target="same")),
            changed("induction", lambda w, t: induction(w, t, target="before")),
        ),
        "only queries whose token stood before are counted": changed(
            "induction", lambda w, t: induction(w, t, over="all")
        ),
        "one mean over queries: not over pairs of equal tokens": changed(
            "induction", lambda w, t: induction(w, t, over="pairs")
        ),
        "a token is not its own earlier place: j < i": Replays(
            *(
                changed("induction", partial(itself_counted, upto=upto, wraps=wraps))
                for upto in (0, None)
                for wraps in (True, False)
            )
        ),
        "self counts every query": changed("self", lambda w, t: _diagonal(w, 0)[..., 1:].mean((0, 2))),
        "no counted query gives 0, not NaN": lambda w, t: (
            oracle.head_patterns(w, t) | {"induction": induction(w, t, least=0)}
        ),
        "all examples count": Replays(
            lambda weights, tokens: oracle.head_patterns(weights[:1], tokens[:1]),
            changed("induction", lambda w, t: induction(w, t, only_first=True)),
        ),
        "all earlier places count": Replays(
            changed("induction", lambda w, t: induction(w, t, places="latest")),
            changed("induction", lambda w, t: induction(w, t, places="earliest")),
        ),
        "pool the queries of all examples into one mean": each_example_alone,
        "query 0 has nothing before it: leave it out": Replays(
            changed("previous", lambda w, t: _diagonal(w, -1).sum((0, 2)) / (w.shape[0] * w.shape[2])),
            changed("first", lambda w, t: w[..., 0].mean((0, 2))),
            lambda w, t: (
                oracle.head_patterns(w, t)
                | {
                    "previous": _diagonal(w, -1).sum((0, 2)) / (w.shape[0] * w.shape[2]),
                    "first": w[..., 0].mean((0, 2)),
                }
            ),
        ),
        "queries are rows, keys are columns": lambda w, t: oracle.head_patterns(w.mT, t),
        "the mean over examples and queries, not the sum": Replays(
            changed("previous", lambda w, t: _diagonal(w, -1).sum((0, 2))),
            changed("previous", lambda w, t: _diagonal(w, -1).sum(-1).mean(0)),
        ),
        OWN_DTYPE: Spotted(rules.default_dtype, rules.in_default_dtype(oracle.head_patterns)),
    },
)

# ---- head_importance -----------------------------------------------------------------------------


def zeroed(name, axis, biases=False):
    """A wrong twin that sets a head's slice of one layer to 0, restores it, and calls that the head being off."""

    def wrong(mha, x, loss):
        layer = getattr(mha, name)
        d_head = layer.weight.shape[0] // mha.n_heads
        with torch.no_grad():
            whole = loss(mha(x))
            found = []
            for head in range(mha.n_heads):
                part = slice(head * d_head, (head + 1) * d_head)
                with _silenced(layer, part, axis, biases):
                    found.append(loss(mha(x)) - whole)
        return torch.stack(found)

    return wrong


@contextlib.contextmanager
def _silenced(layer, part, axis, biases):
    kept = {name: parameter.detach().clone() for name, parameter in layer.named_parameters()}
    layer.weight.narrow(axis, part.start, part.stop - part.start).zero_()
    if biases and layer.bias is not None:
        layer.bias[part] = 0.0
    yield
    for name, parameter in layer.named_parameters():
        parameter.copy_(kept[name])


def ablated(difference, keep=lambda eye: 1 - eye, bias=True):
    """A wrong twin that switches heads off by `keep` and reports difference(loss without, loss with)."""

    def wrong(mha, x, loss):
        kept = []
        hook = mha.w_o.register_forward_pre_hook(lambda layer, args: kept.append(args[0].detach()))
        with torch.no_grad():
            whole = loss(mha(x))
        hook.remove()
        parts = kept[0].unflatten(-1, (mha.n_heads, -1))
        found = []
        for row in keep(torch.eye(mha.n_heads, dtype=parts.dtype)):
            merged = (parts * row[:, None]).flatten(-2)
            found.append(difference(loss(F.linear(merged, mha.w_o.weight, mha.w_o.bias if bias else None)), whole))
        return torch.stack(found).detach()

    return wrong


def slope(mha, x, loss, backward=False):
    """How the loss moves with a gate on each head: another quantity. backward: parameters get gradients, too."""
    gates = torch.ones(mha.n_heads, dtype=x.dtype, requires_grad=True)

    def gate(layer, args):
        return ((args[0].unflatten(-1, (mha.n_heads, -1)) * gates[:, None]).flatten(-2),)

    hook = mha.w_o.register_forward_pre_hook(gate)
    if backward:
        loss(mha(x)).backward()
    else:
        (gates.grad,) = torch.autograd.grad(loss(mha(x)), gates)
    hook.remove()
    return gates.grad


def hooked_for_good(mha, x, loss):
    found = oracle.head_importance(mha, x, loss)
    mha.w_o.register_forward_pre_hook(lambda layer, args: None)
    return found


def switched_to_eval(mha, x, loss):
    mha.eval()
    return oracle.head_importance(mha, x, loss)


def left_silent(mha, x, loss):
    """The last head stays off."""
    found = oracle.head_importance(mha, x, loss)
    d_head = mha.w_o.weight.shape[1] // mha.n_heads
    with torch.no_grad():
        mha.w_o.weight[:, -d_head:] = 0.0
    return found


def one_by_one_until_raised(mha, x, loss):
    """Right, but nothing is put back when `loss` raises."""
    with torch.no_grad():
        whole, weight, found = loss(mha(x)), mha.w_o.weight.detach().clone(), []
        d_head = weight.shape[1] // mha.n_heads
        for head in range(mha.n_heads):
            mha.w_o.weight[:, head * d_head : (head + 1) * d_head] = 0.0
            found.append(loss(mha(x)) - whole)
            mha.w_o.weight.copy_(weight)
    return torch.stack(found)


def asked(d_model, n_heads, *shape, raises_at=0, **options):
    layer = fixture("heads", d_model=d_model, n_heads=n_heads, **options)
    return dict(mha=layer, x=(*shape, d_model), loss=fixture("loss", raises_at=raises_at))


AGAIN = asked(12, 3, 2, 5)

register(
    expected=oracle.head_importance,
    phase=PHASE,
    section="3.11",
    hint="set one head's part of what goes into w_o to 0, compare the losses, put everything back.",
    grad=False,
    cases=(
        case("three heads", AGAIN),
        case("four heads", asked(12, 4, 3, 6)),
        case("one head", asked(6, 1, 2, 5)),
        case("as many heads as tokens and examples", asked(12, 4, 4, 4)),
        case("in train mode", asked(10, 5, 2, 3, training=True)),
        case("no biases", asked(12, 3, 2, 7, bias=False)),
        case("twice", AGAIN, then=(asked(8, 2, 1, 4), AGAIN)),
        refusal("the loss raises at its third call", asked(12, 4, 2, 5, raises_at=3)),
    ),
    mistakes={
        "the head then averages, it is not off": Replays(
            zeroed("w_q", 0, biases=True), zeroed("w_q", 0), zeroed("w_k", 0, biases=True), zeroed("w_k", 0)
        ),
        "the head then hands on its bias, it is not off": zeroed("w_v", 0),
        "a head owns columns of w_o": Replays(zeroed("w_o", 0), zeroed("w_o", 0, biases=True)),
        "positive means that the head helps": ablated(lambda without, whole: whole - without),
        "keep the sign": ablated(lambda without, whole: (without - whole).abs()),
        "without the head, not with it alone": ablated(lambda without, whole: without - whole, keep=lambda eye: eye),
        "the bias of w_o stays": ablated(lambda without, whole: without - whole, bias=False),
        "that is the loss, not how much it rises": ablated(lambda without, whole: without),
        "a share of the loss was not asked": ablated(lambda without, whole: (without - whole) / whole),
        "a slope is not an ablation: switch the head off": Replays(
            slope,
            lambda mha, x, loss: -slope(mha, x, loss),
            lambda mha, x, loss: slope(mha, x, loss).abs(),
            partial(slope, backward=True),
        ),
        "one head at a time: put it back before the next one": ablated(
            lambda without, whole: without - whole, keep=lambda eye: 1 - eye.cumsum(0).clamp(max=1)
        ),
        OWN_DTYPE: Spotted(rules.default_dtype, rules.in_default_dtype(oracle.head_importance)),
        "put it back in a finally: the loss may raise": Spotted(rules.left_when_raised, one_by_one_until_raised),
        "mha must come back as it was": Spotted(
            rules.left_changed, left_silent, also=(switched_to_eval, hooked_for_good)
        ),
    },
)
