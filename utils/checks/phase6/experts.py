"""moe_route: which experts work on which token."""

from functools import partial

import torch

from utils import oracle
from utils.checks.draw import given, normal
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase6 import PHASE
from utils.checks.phase6 import rules_families as rules


def crowded(n_tokens, n_experts, favourite):
    """Logits of which one expert is nearly everybody's first choice."""

    def draw(generator, others):
        logits = normal(n_tokens, n_experts).draw(generator, others)
        logits[:, favourite] += 1.5
        return logits

    return given(draw)


def steep(n_tokens, n_experts):
    """Logits 2000 apart: each token has another first choice, and the weight of its second one is 0."""

    def draw(generator, others):
        steps = (torch.arange(n_tokens)[:, None] + torch.arange(n_experts)) % n_experts
        return 2000.0 * steps + normal(n_tokens, n_experts).draw(generator, others)

    return given(draw)


def refuse(logits, k, capacity):
    oracle.moe_route(logits, k, capacity)


def top(logits, k, dim=-1):
    return torch.zeros_like(logits, dtype=torch.bool).scatter(dim, logits.topk(k, dim).indices, True)


def hidden_with_infinity(logits, chosen):
    return logits.masked_fill(~chosen, -torch.inf).softmax(-1)


def first_come(logits, chosen, weights, capacity):
    return weights * (chosen.cumsum(0) <= capacity)


def even(logits, chosen, weights, k):
    share = chosen.sum(0) / (len(logits) * k)
    return logits.shape[1] * (share * logits.softmax(-1).mean(0)).sum()


def wrong(choose=top, weigh=hidden_with_infinity, drop=first_come, balance=even):
    """A wrong twin in its parts; as it stands it is right."""

    def faulty(logits, k, capacity=None):
        refuse(logits, k, capacity)
        chosen = choose(logits, k)
        weights = weigh(logits, chosen)
        if capacity is not None:
            weights = drop(logits, chosen, weights, capacity)
        return weights, balance(logits, chosen, weights, k)

    return faulty


def strongest_first(logits, chosen, weights, capacity):
    rank = weights.masked_fill(~chosen, -1.0).argsort(0, descending=True).argsort(0)
    return weights * (rank < capacity)


def last_come(logits, chosen, weights, capacity):
    return weights * (chosen.flip(0).cumsum(0).flip(0) <= capacity)


def first_choices_first(logits, chosen, weights, capacity):
    """Everybody's first choice is served before anybody's second."""
    order = logits.masked_fill(~chosen, -torch.inf).argsort(-1, descending=True).argsort(-1)
    keep, used = torch.zeros_like(chosen), torch.zeros(logits.shape[1], dtype=torch.int64)
    for rank in range(int(chosen.sum(-1).max())):
        now = chosen & (order == rank)
        keep |= now & (now.cumsum(0) + used <= capacity)
        used = used + now.sum(0)
    return weights * keep


def handed_on(logits, chosen, weights, capacity):
    kept = first_come(logits, chosen, weights, capacity)
    return kept / kept.sum(-1, keepdim=True).clamp(min=1e-12)


def rerouted(logits, chosen, weights, capacity):
    keep = chosen & (chosen.cumsum(0) <= capacity)
    return torch.where(keep, logits, -torch.inf).softmax(-1).nan_to_num()


def chosen_by_weight(balance):
    """Whoever has a weight above 0 counts as chosen."""

    def faulty(logits, k, capacity=None):
        refuse(logits, k, capacity)
        whole, _ = oracle.moe_route(logits, k)
        weights = whole if capacity is None else first_come(logits, whole > 0, whole, capacity)
        return weights, balance(logits, whole > 0, whole, k)

    return faulty


def unrefused(logits, k, capacity=None):
    chosen = top(logits, min(max(k, 1), logits.shape[1]))
    weights = hidden_with_infinity(logits, chosen)
    weights = weights if capacity is None else first_come(logits, chosen, weights, capacity)
    return weights, even(logits, chosen, weights, k or 1)


def of_the_kept(logits, chosen, weights, k):
    share = (weights > 0).sum(0) / (len(logits) * k)
    return logits.shape[1] * (share * logits.softmax(-1).mean(0)).sum()


def of_the_kept_anew(logits, chosen, weights, k):
    kept = (weights > 0).sum(0)
    return logits.shape[1] * (kept / kept.sum() * logits.softmax(-1).mean(0)).sum()


def cut_off(logits, chosen, weights, k):
    return even(logits.detach(), chosen, weights, k)


def of_the_weights(logits, chosen, weights, k):
    share = chosen.sum(0) / (len(logits) * k)
    return logits.shape[1] * (share * hidden_with_infinity(logits, chosen).mean(0)).sum()


SEVEN = dict(logits=(7, 5), k=2)
CROWD = dict(logits=crowded(9, 4, 2), k=2)

register(
    expected=oracle.moe_route,
    phase=PHASE,
    section="6.9",
    hint="top k of each row, softmax over those alone; a running count down the tokens tells who comes too late.",
    cases=(
        case("seven tokens, five experts, two each", SEVEN),
        case("one each", SEVEN | dict(k=1)),
        case("all five", SEVEN | dict(k=5)),
        case("three of four, a crowd", CROWD | dict(k=3)),
        case("a crowd, capacity 2", CROWD | dict(capacity=2)),
        case("a crowd, capacity 1", CROWD | dict(capacity=1)),
        case("a crowd, one each, capacity 3", CROWD | dict(k=1, capacity=3)),
        case("all, capacity 4", CROWD | dict(k=4, capacity=4)),
        case("more capacity than tokens", SEVEN | dict(capacity=20)),
        case("as many tokens as experts", dict(logits=(4, 4), k=2, capacity=2)),
        case("one token", dict(logits=(1, 3), k=2, capacity=1)),
        case("one expert", dict(logits=(4, 1), k=1, capacity=3)),
        case("a second choice with hardly any weight", dict(logits=steep(6, 3), k=2, capacity=2)),
        case(
            "experts that score the same",
            dict(logits=torch.zeros(3, 5, dtype=torch.float64), k=2),
            kind="chance",  # any two will do
            grad=False,
            judge=partial(rules.judge_ties, k=2),
        ),
        refusal("k = 0", SEVEN | dict(k=0)),
        refusal("k = 6 of 5", SEVEN | dict(k=6)),
        refusal("capacity 0", SEVEN | dict(capacity=0)),
        refusal("capacity -1", SEVEN | dict(capacity=-1)),
    ),
    mistakes={
        "the weights of the chosen experts sum to 1": wrong(
            weigh=lambda logits, chosen: logits.softmax(-1) * chosen,
        ),
        "hide with −∞, not 0": Replays(
            wrong(weigh=lambda logits, chosen: (logits * chosen).softmax(-1)),
            wrong(weigh=lambda logits, chosen: (logits * chosen).softmax(-1) * chosen),
        ),
        "each token chooses its experts": wrong(
            choose=lambda logits, k: top(logits, min(k, len(logits)), dim=0),
            weigh=lambda logits, chosen: hidden_with_infinity(logits, chosen).nan_to_num(),
        ),
        "exactly k experts, whoever scores the same": Spotted(
            rules.too_many_chosen,
            wrong(choose=lambda logits, k: logits >= logits.topk(k).values[:, -1:]),
            certain=True,
        ),
        "chosen is chosen, though the weight rounds to 0": Replays(*map(chosen_by_weight, (even, of_the_kept_anew))),
        "the first `capacity` tokens are served: <=, not <": wrong(
            drop=lambda logits, chosen, weights, capacity: weights * (chosen.cumsum(0) < capacity)
        ),
        "an expert counts the tokens that chose it, not all": wrong(
            drop=lambda logits, chosen, weights, capacity: weights * (torch.arange(len(weights))[:, None] < capacity)
        ),
        "all k choices of a token count for the balance": wrong(
            balance=lambda logits, chosen, weights, k: even(logits, top(logits, 1), weights, 1)
        ),
        "the weights teach the router: do not cut them off": wrong(
            weigh=lambda logits, chosen: hidden_with_infinity(logits, chosen).detach()
        ),
        "capacity was ignored": lambda logits, k, capacity=None: (
            refuse(logits, k, capacity),
            oracle.moe_route(logits, k),
        )[1],
        "first come, first served, in the order of the tokens": Replays(
            wrong(drop=strongest_first), wrong(drop=last_come), wrong(drop=first_choices_first)
        ),
        "what is dropped is not handed to the other experts": Replays(wrong(drop=handed_on), wrong(drop=rerouted)),
        "balance counts choices, before any is dropped": Replays(
            wrong(balance=of_the_kept), wrong(balance=of_the_kept_anew)
        ),
        "even routing gives 1": Replays(
            wrong(balance=lambda logits, c, w, k: even(logits, c, w, k) / logits.shape[1]),
            wrong(balance=lambda logits, c, w, k: even(logits, c, w, k) * k),
            wrong(balance=lambda logits, c, w, k: even(logits, c, w, k) / logits.shape[1] * k),
        ),
        "probabilities are those of all experts": wrong(balance=of_the_weights),
        "balance teaches through the probabilities: do not cut them off": wrong(balance=cut_off),
        "refuse k outside 1 … n_experts, and a capacity below 1": Spotted(
            rules.routing_not_refused, unrefused, certain=True
        ),
    },
)
