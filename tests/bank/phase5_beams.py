"""beam_search: wrong solutions and unusual right ones."""

import heapq
import math

import torch

from tests.bank import right, wrong


def search(name, **turn):
    """A beam_search; as it stands it is right."""

    def beam_search(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty):
        alive, done = [(turn.get("start", 0.0), [bos_id])], []
        while alive and len(alive[0][1]) <= max_len:
            rows = next_log_probs(torch.tensor([tokens for _, tokens in alive])).tolist()
            pool = []
            for (total, tokens), row in zip(alive, rows, strict=True):
                own = [
                    (turn.get("add", lambda a, b: a + b)(total, logp), tokens + [token])
                    for token, logp in enumerate(row)
                    if logp != -math.inf
                ]
                pool += sorted(own, reverse=True)[: turn.get("each", len(own))]
            best = sorted(pool, key=lambda beam: -beam[0])[:n_beams]
            ended = [beam for beam in best if beam[1][-1] == eos_id]
            done += ended if turn.get("keep_done", True) else []
            alive = best if turn.get("extends_done") else [beam for beam in best if beam not in ended]
            if turn.get("first_end") and ended:
                break
            if turn.get("fewer"):
                n_beams -= len(ended)
        if turn.get("drops_alive"):
            alive = [] if done else alive
        scored = [
            (tokens, turn.get("score", lambda s, n, p: s / n**p)(total, len(tokens) - 1, length_penalty))
            for total, tokens in done + alive
        ]
        found = sorted(scored, key=lambda pair: -pair[1])
        return found[: turn.get("count", max(n_beams, 1) if not turn.get("fewer") else len(found))]

    beam_search.__name__ = name
    return beam_search


for _name, _says, _turn in [
    ("multiplies_shares", "add log-probabilities, do not multiply or add shares",
     dict(start=1.0, add=lambda total, logp: total * math.exp(logp))),
    ("forgets_the_finished", "a finished beam still competes", dict(keep_done=False)),
    ("forgets_the_alive", "what is alive at max_len competes, too", dict(drops_alive=True)),
    ("best_of_each", "rank all continuations together", dict(each=1)),
    ("stops_at_eos", "the search goes on after the first eos", dict(first_end=True)),
    ("counts_bos", "length counts generated tokens, bos is none", dict(score=lambda s, n, p: s / (n + 1) ** p)),
    ("no_penalty", "the length penalty was ignored", dict(score=lambda s, n, p: s)),
    ("multiplies_by_length", "divide by length ** length_penalty", dict(score=lambda s, n, p: s * n**p)),
    ("only_one", "return the best n_beams, not one", dict(count=1)),
    ("fewer_slots", None, dict(fewer=True)),
    ("two_of_each", None, dict(each=2)),
]:  # fmt: skip
    wrong("beam_search", says=_says)(search(_name, **_turn))


@wrong("beam_search", says="all beams start the same: begin with one")
def starts_with_copies(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty):
    one = search("one")(next_log_probs, bos_id, eos_id, 1, max_len, length_penalty)
    return one * n_beams


@wrong("beam_search")
def tensors_for_tokens(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty):
    found = search("right")(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty)
    return [(torch.tensor(tokens), score) for tokens, score in found]


@wrong("beam_search")
def without_bos(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty):
    found = search("right")(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty)
    return [(tokens[1:], score) for tokens, score in found]


@wrong("beam_search")
def unsorted(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty):
    found = search("right")(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty)
    return sorted(found)


right("beam_search", why="lists of (sum, tokens)")(search("lists"))


@right("beam_search", why="a heap")
def with_a_heap(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty):
    alive, done = [(0.0, (bos_id,))], []
    for _ in range(max_len):
        heap = []
        for total, tokens in alive:
            for token, logp in enumerate(next_log_probs(torch.tensor([tokens]))[0].tolist()):
                if math.isfinite(logp):
                    heapq.heappush(heap, (total + logp, (*tokens, token)))
                    if len(heap) > n_beams:
                        heapq.heappop(heap)
        done += [beam for beam in heap if beam[1][-1] == eos_id]
        alive = [beam for beam in heap if beam[1][-1] != eos_id]
        if not alive:
            break
    scored = [(total / (len(tokens) - 1) ** length_penalty, list(tokens)) for total, tokens in done + alive]
    return [(tokens, score) for score, tokens in heapq.nlargest(n_beams, scored)]


@right("beam_search", why="tensors throughout, 0-d scores, lists as pairs")
def with_tensors(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty):
    tokens, sums, pool = torch.tensor([[bos_id]]), torch.zeros(1), []
    for _ in range(max_len):
        table = next_log_probs(tokens) + sums[:, None]
        count = min(n_beams, int((table > -math.inf).sum()))
        sums, flat = table.reshape(-1).topk(count)
        tokens = torch.cat([tokens[flat // table.shape[-1]], (flat % table.shape[-1])[:, None]], 1)
        over = tokens[:, -1] == eos_id
        pool += list(zip(tokens[over], sums[over], strict=True))
        tokens, sums = tokens[~over], sums[~over]
        if over.all():
            break
    pool += list(zip(tokens, sums, strict=True))
    scored = [[row.tolist(), total / (len(row) - 1) ** length_penalty] for row, total in pool]
    return sorted(scored, key=lambda pair: pair[1].item(), reverse=True)[:n_beams]


@right("beam_search", why="stops early where a bound shows that nothing can change")
def with_a_bound(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty):
    alive, done = [([bos_id], 0.0)], []

    def score(beam):
        return beam[1] / (len(beam[0]) - 1) ** length_penalty

    for _ in range(max_len):
        rows = next_log_probs(torch.tensor([tokens for tokens, _ in alive]))
        grown = [(tokens + [i], total + p.item()) for (tokens, total), row in zip(alive, rows, strict=True)
                 for i, p in enumerate(row) if p > -math.inf]  # fmt: skip
        grown = sorted(grown, key=lambda beam: beam[1])[::-1][:n_beams]
        done += [beam for beam in grown if beam[0][-1] == eos_id]
        alive = [beam for beam in grown if beam[0][-1] != eos_id]
        worst = sorted(map(score, done))[-n_beams] if len(done) >= n_beams else -math.inf
        if not alive or max(total for _, total in alive) / max_len**length_penalty < worst:
            break
    best = sorted(done + alive, key=score, reverse=True)[:n_beams]
    return [(beam[0], score(beam)) for beam in best]
