"""bleu, alignment_from_attention: wrong solutions and unusual right ones."""

import math
from collections import Counter, defaultdict
from itertools import chain, pairwise

import numpy as np
import torch

from tests.bank import right, wrong

# ---------------------------------------------------------------- bleu


def grams(words, n):
    return list(zip(*(words[start:] for start in range(n)), strict=False))


def clipped(words, reference, n):
    have, may = Counter(grams(words, n)), Counter(grams(reference, n))
    return sum(min(count, may[gram]) for gram, count in have.items())


def roots(precisions):
    return math.prod(precisions) ** 0.25


def penalised(hyp, ref):
    if hyp == 0:
        return 0.0
    return 1.0 if hyp >= ref else math.exp(1 - ref / hyp)


def refuse(hypotheses, references):
    if len(hypotheses) != len(references) or len(hypotheses) == 0:
        raise ValueError("sentences")


def made(name, cut=str.split, match=clipped, total=lambda words, ref, n: len(grams(words, n)),
         penalty=penalised, mean=roots, scale=100.0, refuses=refuse, most=4, 
         share=lambda got, of, n: got / of if of else 0.0):  # fmt: skip
    """A bleu with one thing otherwise."""

    def bleu(hypotheses, references):
        refuses(hypotheses, references)
        got, of, lengths = [0] * most, [0] * most, [0, 0]
        for hypothesis, reference in zip(hypotheses, references, strict=False):
            words, ref = cut(hypothesis), cut(reference)
            lengths = [lengths[0] + len(words), lengths[1] + len(ref)]
            for n in range(most):
                got[n] += match(words, ref, n + 1)
                of[n] += total(words, ref, n + 1)
        shares = [share(a, b, n + 1) for n, (a, b) in enumerate(zip(got, of, strict=True))]
        factor = penalty(*lengths)
        return dict(precisions=[scale * one for one in shares], brevity_penalty=factor,
                    bleu=scale * factor * mean(shares))  # fmt: skip

    bleu.__name__ = name
    return bleu


def no_zeros(precisions):
    found = [one for one in precisions if one > 0]
    return math.exp(sum(map(math.log, found)) / len(found)) if found else 0.0


for _name, _says, _ways in [
    (
        "unclipped",
        "a word counts at most as often as its reference has it",
        dict(match=lambda words, ref, n: sum(gram in set(grams(ref, n)) for gram in grams(words, n))),
    ),
    (
        "sets",
        "a word counts at most as often as its reference has it",
        dict(match=lambda words, ref, n: len(set(grams(words, n)) & set(grams(ref, n)))),
    ),
    (
        "sets_throughout",
        "equal n-grams count, as often as they come",
        dict(
            match=lambda words, ref, n: len(set(grams(words, n)) & set(grams(ref, n))),
            total=lambda words, ref, n: len(set(grams(words, n))),
        ),
    ),
    (
        "a_bonus",
        "no bonus for being long",
        dict(penalty=lambda hyp, ref: math.exp(1 - ref / hyp) if hyp else 0.0),
    ),
    (
        "turned_round",
        "reference length over hypothesis length",
        dict(penalty=lambda hyp, ref: min(1.0, math.exp(1 - hyp / ref)) if hyp else 0.0),
    ),
    ("a_ratio", "the penalty is exp(1 − r/h), not the ratio", dict(penalty=lambda hyp, ref: min(1.0, hyp / ref))),
    ("no_penalty", "too short must cost", dict(penalty=lambda hyp, ref: 1.0)),
    (
        "recall",
        "of the hypothesis' n-grams: precision, not recall",
        dict(total=lambda words, ref, n: len(grams(ref, n))),
    ),
    ("arithmetic", "the mean is geometric", dict(mean=lambda shares: sum(shares) / 4)),
    ("a_product", "the mean is the fourth root of the product", dict(mean=math.prod)),
    ("characters", "n-grams are made of words", dict(cut=lambda text: list(text))),
    ("lower", "capitals matter", dict(cut=lambda text: text.lower().split(" ") if text else [])),
    (
        "add_one",
        "no smoothing",
        dict(share=lambda got, of, n: (got + 1) / (of + 1) if n > 1 else (got / of if of else 0.0)),
    ),
    ("leaves_zeros_out", "one precision of 0 makes it 0", dict(mean=no_zeros)),
    ("fractions", "in per cent, as sacrebleu", dict(scale=1.0)),
    ("three", "up to four words", dict(most=3, mean=lambda shares: math.prod(shares) ** (1 / 3))),
    (
        "logs",
        "a precision of 0 has no logarithm: the score is 0",
        dict(mean=lambda shares: math.exp(sum(math.log(one) for one in shares) / 4)),
    ),
    (
        "divides_by_nothing",
        "no n-grams of that length: the precision is 0",
        dict(share=lambda got, of, n: got / of),
    ),
    ("any_lengths", "as many hypotheses as references, and at least one", dict(refuses=lambda hyp, ref: None)),
]:
    wrong("bleu", says=_says)(made(_name, **_ways))


@wrong("bleu", says="add up all sentences before dividing")
def mean_of_sentences(hypotheses, references):
    refuse(hypotheses, references)
    one = made("one")
    each = [one([hyp], [ref]) for hyp, ref in zip(hypotheses, references, strict=True)]
    mean = {key: sum(row[key] for row in each) / len(each) for key in ("brevity_penalty", "bleu")}
    return mean | {"precisions": np.mean([row["precisions"] for row in each], 0).tolist()}


@wrong("bleu", says="an n-gram ends with its sentence")
def one_long_text(hypotheses, references):
    refuse(hypotheses, references)
    return made("one")([" ".join(hypotheses)], [" ".join(references)])


@wrong("bleu", says="each sentence has a reference of its own")
def any_reference(hypotheses, references):
    refuse(hypotheses, references)
    pools = [Counter(chain.from_iterable(grams(ref.split(), n) for ref in references)) for n in range(5)]

    def match(words, ref, n):
        return sum(min(count, pools[n][gram]) for gram, count in Counter(grams(words, n)).items())

    return made("pooled", match=match)(hypotheses, references)


@wrong("bleu")
def with_sacrebleu(hypotheses, references):
    import sacrebleu

    found = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", smooth_method="none", force=True)
    return dict(precisions=found.precisions, brevity_penalty=found.bp, bleu=found.score)


@wrong("bleu")
def with_the_class(hypotheses, references):
    from sacrebleu.metrics.bleu import BLEU

    found = BLEU(tokenize="none", smooth_method="none").corpus_score(hypotheses, [references])
    return dict(precisions=found.precisions, brevity_penalty=found.bp, bleu=found.score)


@wrong("bleu")
def score_alone(hypotheses, references):
    return made("right")(hypotheses, references)["bleu"]


right("bleu", why="Counter and a root")(made("counter"))


@right("bleu", why="a list is used up, n-gram by n-gram; strings as n-grams")
def used_up(hypotheses, references):
    if not hypotheses or len(hypotheses) != len(references):
        raise ValueError("give as many hypotheses as references")
    rows = [(one.split(), other.split()) for one, other in zip(hypotheses, references, strict=True)]
    precisions = []
    for n in (1, 2, 3, 4):
        hits = tries = 0
        for words, reference in rows:
            left = [" ".join(reference[i : i + n]) for i in range(len(reference) - n + 1)]
            for i in range(len(words) - n + 1):
                tries += 1
                gram = " ".join(words[i : i + n])
                if gram in left:
                    left.remove(gram)
                    hits += 1
        precisions.append(100 * hits / max(tries, 1))
    hyp, ref = (sum(len(row[side]) for row in rows) for side in (0, 1))
    bp = math.exp(min(0.0, 1 - ref / hyp)) if hyp else 0.0
    score = bp * math.exp(sum(math.log(p) for p in precisions) / 4) if min(precisions) > 0 else 0.0
    return {"bleu": score, "brevity_penalty": bp, "precisions": tuple(precisions)}


@right("bleu", why="n-grams made from shorter ones; NumPy numbers")
def grown(hypotheses, references):
    refuse(hypotheses, references)
    right_ones, all_ones, lengths = np.zeros(4), np.zeros(4), np.zeros(2)
    for texts in zip(hypotheses, references, strict=True):
        rows = [[(word,) for word in text.split()] for text in texts]
        lengths += [len(row) for row in rows]
        for n in range(4):
            counts = [Counter(row) for row in rows]
            right_ones[n] += (counts[0] & counts[1]).total()
            all_ones[n] += len(rows[0])
            rows = [[(*left, right_one[-1]) for left, right_one in pairwise(row)] for row in rows]
    shares = np.divide(right_ones, all_ones, out=np.zeros(4), where=all_ones > 0)
    bp = np.exp(np.minimum(0, 1 - lengths[1] / lengths[0])) if lengths[0] else 0.0
    with np.errstate(divide="ignore"):
        score = 100 * bp * np.exp(np.log(shares).mean())
    return dict(precisions=[100 * share for share in shares], brevity_penalty=bp, bleu=score)


@right("bleu", why="tables of counts, torch's minimum")
def with_torch(hypotheses, references):
    if len(hypotheses) != len(references) or not len(hypotheses):
        raise ValueError(f"{len(hypotheses)} hypotheses, {len(references)} references")
    hits, tries = torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    for hyp, ref in zip(hypotheses, references, strict=True):
        for n in range(1, 5):
            ids = defaultdict(lambda: len(ids))  # noqa: B023
            numbers = [torch.tensor([ids[g] for g in grams(text.split(), n)], dtype=torch.int64) for text in (hyp, ref)]
            a, b = (torch.bincount(row, minlength=len(ids)) for row in numbers)
            hits[n - 1] += torch.minimum(a, b).sum()
            tries[n - 1] += a.sum()
    shares = hits / tries.clamp(min=1)
    lengths = [sum(map(len, map(str.split, texts))) for texts in (hypotheses, references)]
    bp = penalised(*lengths)
    return dict(precisions=(100 * shares).tolist(), brevity_penalty=bp, bleu=100 * bp * shares.log().mean().exp())


# ---------------------------------------------------------------- alignment_from_attention


def chosen(name, score=lambda weights: weights.mean(0), hide=lambda scores, mask: scores.masked_fill(~mask, -math.inf),
           number=lambda mask: (mask.cumsum(0) - 1).tolist(), keep=lambda place, mask: True,
           make=lambda pairs: pairs):  # fmt: skip
    def alignment_from_attention(weights, pad_mask):
        if not pad_mask.any():
            return []
        words = number(pad_mask)
        places = hide(score(weights), pad_mask).argmax(-1).tolist()
        return make([(words[place], row) for row, place in enumerate(places) if keep(place, pad_mask)])

    alignment_from_attention.__name__ = name
    return alignment_from_attention


def nothing_hidden(scores, mask):
    return scores


for _name, _says, _ways in [
    ("sinks_too", "special tokens and padding are no words: hide them first", dict(hide=nothing_hidden)),
    (
        "sinks_and_places",
        "special tokens and padding are no words: hide them first",
        dict(hide=nothing_hidden, number=lambda mask: list(range(len(mask)))),
    ),
    (
        "places",
        "words are numbered, not places: bos is not counted",
        dict(number=lambda mask: list(range(len(mask)))),
    ),
    (
        "drops",
        "each row gets a word: hide first, do not drop afterwards",
        dict(hide=nothing_hidden, keep=lambda place, mask: bool(mask[place])),
    ),
    ("first_head", "average the heads", dict(score=lambda weights: weights[0])),
    ("last_head", "average the heads", dict(score=lambda weights: weights[-1])),
    ("loudest_head", "average the heads", dict(score=lambda weights: weights.max(0).values)),
    (
        "turned_round",
        "(source word, target word), in this order",
        dict(make=lambda pairs: [(row, word) for word, row in pairs]),
    ),
    ("by_source", "in the order of the rows", dict(make=lambda pairs: sorted(pairs))),
    (
        "inverted",
        "True is a word",
        dict(
            hide=lambda scores, mask: scores.masked_fill(mask, -math.inf),
            number=lambda mask: ((~mask).cumsum(0) - 1).tolist(),
        ),
    ),  # fmt: skip
    ("hidden_by_much", None, dict(hide=lambda scores, mask: scores.masked_fill(~mask, 9.0))),
    ("without_bos", None, dict(number=lambda mask: [place - 1 for place in range(len(mask))])),
    ("words_alone", None, dict(make=lambda pairs: [word for word, _ in pairs])),
]:
    wrong("alignment_from_attention", says=_says)(chosen(_name, **_ways))


@wrong("alignment_from_attention", says="average the weights, not the heads' choices")
def most_heads(weights, pad_mask):
    if not pad_mask.any():
        return []
    votes = weights[..., pad_mask].argmax(-1)
    return [(Counter(votes[:, row].tolist()).most_common(1)[0][0], row) for row in range(votes.shape[1])]


@wrong("alignment_from_attention", says="for each row a word, not for each word a row")
def wrong_axis(weights, pad_mask):
    if not pad_mask.any() or not weights.shape[1]:
        return []
    return [(word, int(row)) for word, row in enumerate(weights[..., pad_mask].mean(0).argmax(0))]


@wrong("alignment_from_attention")
def writes_over(weights, pad_mask):
    weights.masked_fill_(~pad_mask, 0)
    return chosen("right")(weights, pad_mask)


@wrong("alignment_from_attention", says="a source without words has nothing to align")
def nothing_special(weights, pad_mask):
    words = (pad_mask.cumsum(0) - 1).clamp(min=0)
    places = weights.mean(0).masked_fill(~pad_mask, -math.inf).argmax(-1)
    return [(int(words[place]), row) for row, place in enumerate(places)]


@wrong("alignment_from_attention")
def zeros_are_not_hidden(weights, pad_mask):
    """Logarithms turned round: hides with 0, which is the largest."""
    if not pad_mask.any():
        return []
    logs = weights.mean(0).log().masked_fill(~pad_mask, 0.0)
    words = pad_mask.cumsum(0) - 1
    return [(int(words[place]), row) for row, place in enumerate(logs.argmax(-1))]


right("alignment_from_attention", why="hidden with −∞, numbered by a running sum")(chosen("hidden"))
right("alignment_from_attention", why="a sum instead of a mean, hidden with zeros")(
    chosen("summed", score=lambda weights: weights.sum(0), hide=lambda scores, mask: scores * mask)
)


@right("alignment_from_attention", why="the columns of words alone; a table of pairs")
def columns(weights, pad_mask):
    if not pad_mask.any():
        return []
    best = weights[:, :, pad_mask].mean(dim=0).argmax(dim=-1)
    return torch.stack([best, torch.arange(len(best))], 1)


@right("alignment_from_attention", why="NumPy, lists as pairs")
def with_numpy(weights, pad_mask):
    table = weights.numpy()[..., pad_mask.numpy()].mean(0)
    return [[np.int64(row.argmax()), target] for target, row in enumerate(table)] if table.shape[-1] else []


@right("alignment_from_attention", why="loops, one word at a time")
def looped(weights, pad_mask):
    heads, rows, places = weights.shape
    pairs = []
    for row in range(rows):
        best, best_value, word = None, -1.0, -1
        for place in range(places):
            if not pad_mask[place]:
                continue
            word += 1
            value = sum(float(weights[head, row, place]) for head in range(heads)) / heads
            if value > best_value:
                best, best_value = word, value
        if best is not None:
            pairs.append((best, row))
    return pairs
