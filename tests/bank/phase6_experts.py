"""moe_route: wrong solutions and unusual right ones."""

import torch
import torch.nn.functional as F

from tests.bank import right, wrong


def refuse(logits, k, capacity):
    if not 1 <= k <= logits.shape[1] or (capacity is not None and capacity < 1):
        raise ValueError("k or capacity makes no sense")


class Route:
    """Right as it stands; each wrong solution changes one step."""

    def __call__(self, logits, k, capacity=None):
        self.refuse(logits, k, capacity)
        chosen = self.choose(logits, k)
        weights = self.weigh(logits, chosen)
        if capacity is not None:
            weights = self.drop(weights, chosen, capacity)
        return weights, self.balance(logits, chosen, weights, k)

    def refuse(self, logits, k, capacity):
        refuse(logits, k, capacity)

    def choose(self, logits, k):
        return F.one_hot(logits.topk(k).indices, logits.shape[1]).sum(1).bool()

    def weigh(self, logits, chosen):
        return logits.masked_fill(~chosen, float("-inf")).softmax(-1)

    def drop(self, weights, chosen, capacity):
        return weights.masked_fill(chosen.cumsum(0) > capacity, 0.0)

    def balance(self, logits, chosen, weights, k):
        share = chosen.to(logits.dtype).mean(0) / k
        return logits.shape[1] * (share * logits.softmax(-1).mean(0)).sum()


def routed(name, says=None):
    """Register the route that the decorated class makes."""

    def register(cls):
        def route(logits, k, capacity=None):
            return cls()(logits, k, capacity)

        route.__name__ = cls.__name__
        (wrong("moe_route", says=says) if name == "wrong" else right("moe_route", why=says))(route)
        return cls

    return register


@routed("wrong", "the weights of the chosen experts sum to 1")
class OverAll(Route):
    def weigh(self, logits, chosen):
        return logits.softmax(-1).masked_fill(~chosen, 0.0)


@routed("wrong", "hide with −∞, not 0")
class HiddenWithZero(Route):
    def weigh(self, logits, chosen):
        return logits.masked_fill(~chosen, 0.0).softmax(-1)


@routed("wrong", "each token chooses its experts")
class ExpertsChoose(Route):
    def choose(self, logits, k):
        best = logits.topk(min(k, len(logits)), dim=0).indices
        return torch.zeros_like(logits, dtype=torch.bool).scatter(0, best, True)

    def weigh(self, logits, chosen):
        return super().weigh(logits, chosen).nan_to_num()


@routed("wrong", "capacity was ignored")
class NoCapacity(Route):
    def drop(self, weights, chosen, capacity):
        return weights


@routed("wrong", "first come, first served, in the order of the tokens")
class StrongestFirst(Route):
    def drop(self, weights, chosen, capacity):
        order = weights.argsort(0, descending=True).argsort(0)
        return weights.masked_fill(order >= capacity, 0.0)


@routed("wrong", "what is dropped is not handed to the other experts")
class Renormalised(Route):
    def drop(self, weights, chosen, capacity):
        kept = super().drop(weights, chosen, capacity)
        total = kept.sum(-1, keepdim=True)
        return torch.where(total > 0, kept / total.clamp(min=1e-9), 0.0)


@routed("wrong", "balance counts choices, before any is dropped")
class BalanceAfterDropping(Route):
    def balance(self, logits, chosen, weights, k):
        return super().balance(logits, weights > 0, weights, k)


@routed("wrong", "even routing gives 1")
class NotTimesExperts(Route):
    def balance(self, logits, chosen, weights, k):
        return super().balance(logits, chosen, weights, k) / logits.shape[1]


@routed("wrong", "even routing gives 1")
class NotDividedByK(Route):
    def balance(self, logits, chosen, weights, k):
        return super().balance(logits, chosen, weights, 1)


@routed("wrong", "balance teaches through the probabilities: do not cut them off")
class BalanceCutOff(Route):
    def balance(self, logits, chosen, weights, k):
        return super().balance(logits.detach(), chosen, weights, k)


@routed("wrong", "probabilities are those of all experts")
class WeightsForProbabilities(Route):
    def balance(self, logits, chosen, weights, k):
        share = chosen.to(logits.dtype).mean(0) / k
        return logits.shape[1] * (share * self.weigh(logits, chosen).mean(0)).sum()


@routed("wrong", "refuse k outside 1 … n_experts, and a capacity below 1")
class TakesAnything(Route):
    def refuse(self, logits, k, capacity):
        pass

    def choose(self, logits, k):
        return super().choose(logits, max(1, min(k, logits.shape[1])))

    def balance(self, logits, chosen, weights, k):
        return super().balance(logits, chosen, weights, max(k, 1))


@routed("wrong")
class CapacityOneTooMany(Route):
    def drop(self, weights, chosen, capacity):
        return super().drop(weights, chosen, capacity + 1)


@routed("wrong")
class WeightsDetached(Route):
    def weigh(self, logits, chosen):
        return super().weigh(logits.detach(), chosen)


@routed("wrong")
class SquaredProbabilities(Route):
    """Even is 1 here, too, but counts do not enter."""

    def balance(self, logits, chosen, weights, k):
        return logits.shape[1] * logits.softmax(-1).mean(0).square().sum()


@routed("wrong")
class WeakestChosen(Route):
    def choose(self, logits, k):
        return F.one_hot(logits.topk(k, largest=False).indices, logits.shape[1]).sum(1).bool()


@routed("right", "one-hot and cumulative sums")
class Plain(Route):
    pass


@routed("wrong", "exactly k experts, whoever scores the same")
class Threshold(Route):
    def choose(self, logits, k):
        return logits >= logits.sort(-1, descending=True).values[:, k - 1 : k]


@routed("right", "softmax of the k logits, scattered")
class Scattered(Route):
    def __call__(self, logits, k, capacity=None):
        refuse(logits, k, capacity)
        best, places = logits.topk(k, -1)
        weights = torch.zeros_like(logits).scatter(1, places, best.softmax(-1))
        chosen = torch.zeros_like(logits).scatter(1, places, 1.0)
        balance = self.balance(logits, chosen, weights, k)
        if capacity is not None:
            weights = weights * (chosen.cumsum(0) <= capacity)
        return weights, balance


@routed("right", "token by token")
class TokenByToken(Route):
    def __call__(self, logits, k, capacity=None):
        refuse(logits, k, capacity)
        n_tokens, n_experts = logits.shape
        taken, served, rows = [0] * n_experts, [0] * n_experts, []
        for token in logits:
            best = sorted(range(n_experts), key=lambda e: -token[e].item())[:k]
            share = torch.stack([token[e] for e in best]).softmax(0)
            row = [token[0] * 0 for _ in range(n_experts)]
            for expert, weight in zip(best, share, strict=True):
                taken[expert] += 1
                if capacity is None or served[expert] < capacity:
                    served[expert] += 1
                    row[expert] = weight
            rows.append(torch.stack(row))
        probability = logits.softmax(-1).mean(0)
        balance = sum(n / (n_tokens * k) * p for n, p in zip(taken, probability, strict=True))
        return torch.stack(rows), n_experts * balance


@routed("right", "softmax over all, divided by the chosen part")
class Renormalising(Route):
    def weigh(self, logits, chosen):
        kept = logits.softmax(-1) * chosen
        return kept / kept.sum(-1, keepdim=True)
