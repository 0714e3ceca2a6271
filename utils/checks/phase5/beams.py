"""beam_search: what competes, what is set aside, how it is scored."""

import math

import torch

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, register
from utils.checks.phase5 import PHASE
from utils.checks.phase5 import rules_decoding as rules

BOS, EOS = 7, 0  # bos is no token that could come next


def tree(vocab, depth, eos_bias=0.0, forbidden=0.0, root=None, below=None, eos=EOS):
    """(prefixes, vocab) of log-probabilities; root, below: shares at the root and after single tokens, {token: shares}.

    eos_bias: added to the logits of eos; forbidden: so many of the tokens have log-probability −∞.
    """

    def draw(generator, others):
        prefixes = sum(vocab**length for length in range(depth))
        logits = torch.randn(prefixes, vocab, generator=generator, dtype=torch.float64)
        logits[:, eos] += eos_bias
        if forbidden:
            hidden = torch.rand(prefixes, vocab, generator=generator) < forbidden
            hidden[:, vocab - 1] = False
            logits = logits.masked_fill(hidden, -math.inf)
        noise = 0.02 * torch.randn(vocab + 1, vocab, generator=generator, dtype=torch.float64)
        for place, shares in {**({0: root} if root else {}), **{1 + t: s for t, s in (below or {}).items()}}.items():
            logits[place] = torch.tensor(shares, dtype=torch.float64).log() + noise[place]
        return logits.log_softmax(-1)

    return given(draw)


def search(name, table, n_beams, max_len, penalty=0.6, eos=EOS, bos=BOS, **options):
    args = dict(table=table, bos_id=bos, eos_id=eos, n_beams=n_beams, max_len=max_len, length_penalty=penalty)
    return case(name, args, grad=False, **options)


TRAP = dict(root=(0.05, 0.5, 0.45), below={1: (0.34, 0.33, 0.33), 2: (0.03, 0.9, 0.07)})
LATE = dict(root=(0.3, 0.6, 0.1), below={1: (0.1, 0.45, 0.45)})  # at penalty 1.2 both long ones pass the early end
AWAY = dict(root=(0.45, 0.4, 0.15), below={1: (0.05, 0.9, 0.05)})
SHORT = dict(root=(0.55, 0.25, 0.2), below={1: (0.3, 0.4, 0.3), 2: (0.3, 0.3, 0.4)})


def grown(next_log_probs, alive, add, every=False):
    """All continuations, a list for each hypothesis; every: also by words that cannot come."""
    rows = next_log_probs(torch.tensor([tokens for tokens, _ in alive])).tolist()
    return [
        [([*tokens, token], add(total, logp)) for token, logp in enumerate(row) if every or logp > -math.inf]
        for (tokens, total), row in zip(alive, rows, strict=True)
    ]


# a search in its parts; as it stands it is right
RIGHT_WAYS = dict(
    add=lambda total, logp: total + logp,
    start=0.0,
    impossible=False,  # words of log-probability −∞ are kept
    rank=lambda total, length, penalty: total,
    each=lambda n: None,  # so many continuations of one hypothesis are kept
    cut=lambda n: n,  # and so many of all
    slots="free",  # "taken": what is finished keeps its place; "never": it takes none, not even in its own step
    ends=lambda token, eos: token == eos,
    keep_done=True,
    keep_alive=True,
    stops=True,  # when nothing is alive
    halt=lambda done, n: False,
    score=lambda total, length, penalty: total / length**penalty,
    counts_eos=True,
    best_last=False,
    how_many=lambda n: n,
)


def searcher(**ways):
    """A wrong twin, `ways` replacing steps of the right one."""
    way = RIGHT_WAYS | ways

    def beam_search(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty):
        def worth(pair):
            return -way["rank"](pair[1], len(pair[0]) - 1, length_penalty)

        alive, done = [([bos_id], way["start"])], []
        for _ in range(max_len):
            rows = grown(next_log_probs, alive, way["add"], way["impossible"])
            pool = [pair for row in rows for pair in sorted(row, key=worth)[: way["each"](n_beams)]]
            alive, done = _dealt(way, sorted(pool, key=worth), done, worth, eos_id, n_beams)
            if way["stops"] and not alive or way["halt"](done, n_beams):
                break
        pool = (done if way["keep_done"] else []) + (alive if way["keep_alive"] or not done else [])
        return _ranked(way, pool, eos_id, length_penalty)[: way["how_many"](n_beams)]

    return beam_search


def _dealt(way, pool, done, worth, eos, n_beams):
    """(alive, done) after a step whose continuations are `pool`, the best first."""

    def ended(pair):
        return way["ends"](pair[0][-1], eos)

    if way["slots"] == "never":
        return [pair for pair in pool if not ended(pair)][:n_beams], done + [pair for pair in pool if ended(pair)]
    if way["slots"] == "taken":
        pool = sorted(pool + done, key=worth)
    best = pool[: way["cut"](n_beams)]
    if way["slots"] == "taken":
        done, best = [pair for pair in done if pair in best], [pair for pair in best if pair not in done]
    return [pair for pair in best if not ended(pair)], done + [pair for pair in best if ended(pair)]


def _ranked(way, pool, eos, penalty):
    def length(tokens):
        return max(len(tokens) - 1 - (tokens[-1] == eos and not way["counts_eos"]), 1)

    scored = [(tokens, way["score"](total, length(tokens), penalty)) for tokens, total in pool]
    return sorted(scored, key=lambda pair: pair[1] if way["best_last"] else -pair[1])


def copies(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty):
    """All beams start with bos at the same sum: each is grown, and the same things are found n_beams times."""
    found = oracle.beam_search(next_log_probs, bos_id, eos_id, 1, max_len, length_penalty)
    return found * n_beams


def greedy(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty):
    return oracle.beam_search(next_log_probs, bos_id, eos_id, 1, max_len, length_penalty)


def without_ends(next_log_probs, bos_id, eos_id, n_beams, max_len, length_penalty):
    """eos is a token like any other."""
    return oracle.beam_search(next_log_probs, bos_id, -1, n_beams, max_len, length_penalty)


register(
    expected=oracle.beam_search,
    phase=PHASE,
    section="5.11",
    hint="grow all that is alive, rank all continuations by their sum, set aside what ends; score at the end.",
    grad=False,
    script="beams",
    cases=(
        search("two beams, greedy is trapped", tree(3, 3, **TRAP), 2, 3),
        search("three beams of four words", tree(4, 4), 3, 4),
        search("one beam", tree(4, 4, eos_bias=-1.0), 1, 4),
        search("one beam in the trap", tree(3, 3, **TRAP), 1, 3, 0.0),
        search("more beams than sentences", tree(3, 3), 50, 3),
        search("no penalty", tree(4, 4, eos_bias=0.7), 3, 4, 0.0),
        search("penalty 1.2", tree(4, 4, eos_bias=0.7), 3, 4, 1.2),
        search("an early end wins", tree(3, 4, **SHORT), 2, 4, 0.0),
        search("an early end that loses in the end", tree(3, 3, **LATE), 2, 3, 1.2),
        search("nothing ends before max_len", tree(4, 3, eos_bias=-9.0), 3, 3, 1.2),
        search("some tokens forbidden", tree(4, 4, forbidden=0.4), 4, 4),
        search("fewer possible words than beams", tree(4, 3, forbidden=1.0), 4, 3),
        search("eos 2, bos 9", tree(4, 3, eos_bias=0.5, eos=2), 2, 3, eos=2, bos=9),
        search("one step", tree(4, 1), 3, 1),
        search("much ends early", tree(3, 4, eos_bias=2.5), 3, 4),
        search("one beam that ends, though going on would win", tree(3, 3, **AWAY), 1, 3, 1.2),
    ),
    mistakes={
        "add log-probabilities, do not multiply or add shares": Replays(
            searcher(add=lambda total, logp: total + math.exp(logp)),
            searcher(add=lambda total, logp: total * math.exp(logp), start=1.0),
        ),
        "a finished beam still competes": searcher(keep_done=False),
        "what is alive at max_len competes, too": searcher(keep_alive=False),
        "rank all continuations together": Replays(
            searcher(each=lambda n: 1), searcher(each=lambda n: n, cut=lambda n: None)
        ),
        "the penalty is for the final scores, not for the search": searcher(
            rank=lambda total, length, penalty: total / length**penalty, slots="taken"
        ),
        "the search goes on after the first eos": searcher(halt=lambda done, n: bool(done)),
        "finished beams do not end the search: one alive may pass them": searcher(halt=lambda done, n: len(done) >= n),
        "first cut to n_beams, then set aside what has ended": searcher(slots="never"),
        "nothing alive: stop": Spotted(rules.asks_about_nobody, searcher(stops=False), certain=True),
        "a word of log-probability −∞ cannot come": Spotted(
            rules.impossible_words, searcher(impossible=True), certain=True
        ),
        "all beams start the same: begin with one": Spotted(rules.one_beam_copied, copies),
        "a finished beam takes no slot later": searcher(slots="taken"),
        "a finished beam is not extended": Replays(without_ends, searcher(ends=lambda token, eos: False)),
        "length counts generated tokens, bos is none": searcher(
            score=lambda total, length, penalty: total / (length + 1) ** penalty
        ),
        "length counts eos, too": searcher(counts_eos=False),
        "the length penalty was ignored": searcher(score=lambda total, length, penalty: total),
        "divide by length ** length_penalty": Replays(
            searcher(score=lambda total, length, penalty: total * length**penalty),
            searcher(score=lambda total, length, penalty: total / length),
            searcher(score=lambda total, length, penalty: total / (length * penalty if penalty else 1)),
        ),
        "the best comes first": searcher(best_last=True),
        "return the best n_beams, not all": searcher(how_many=lambda n: None),
        "return the best n_beams, not one": Replays(searcher(how_many=lambda n: 1), greedy),
    },
)
