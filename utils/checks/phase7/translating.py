"""bleu and alignment_from_attention: how good a translation is, and where the model looked."""

import math
from collections import Counter

import torch

from utils import oracle
from utils.checks.draw import given
from utils.checks.exercise import Replays, Spotted, case, refusal, register
from utils.checks.phase7 import PHASE
from utils.checks.phase7 import rules_measuring as rules

# ---- bleu ----------------------------------------------------------------------------------------


def texts(name, *pairs, make=case):
    """pairs: (hypothesis, reference)."""
    return make(name, dict(hypotheses=[one for one, _ in pairs], references=[other for _, other in pairs]))


def ngrams(words, n):
    return [tuple(words[place : place + n]) for place in range(len(words) - n + 1)]


def found(words, reference, n):
    """How many n-grams of a sentence count as found in its reference."""
    return (Counter(ngrams(words, n)) & Counter(ngrams(reference, n))).total()


def not_clipped(words, reference, n):
    return sum(gram in ngrams(reference, n) for gram in ngrams(words, n))


def as_sets(words, reference, n):
    return len(set(ngrams(words, n)) & set(ngrams(reference, n)))


def glued(words, reference, n):
    return (Counter(map("".join, ngrams(words, n))) & Counter(map("".join, ngrams(reference, n)))).total()


def geometric(shares):
    return math.exp(sum(map(math.log, shares)) / len(shares)) if all(shares) else 0.0


def brevity(hyp_len, ref_len):
    if not hyp_len:
        return 0.0
    return min(1.0, math.exp(1 - ref_len / hyp_len))


def exchanged(hyp_len, ref_len, free):
    """exp(1 − h/r), and 1 where nothing has to be paid."""
    if not hyp_len:
        return 0.0
    return 1.0 if free else math.exp(1 - hyp_len / ref_len)


def scored(
    cut=str.split,
    matches=found,
    possible=lambda words, reference, n: max(0, len(words) - n + 1),
    share=lambda right, total, n: right / total if total else 0.0,
    penalty=brevity,
    mean=geometric,
    per_cent=(100.0, 100.0),
    most=4,
    gather=lambda pairs: pairs,
):
    """A wrong twin in its parts."""

    def bleu(hypotheses, references):
        oracle.bleu(hypotheses, references)  # for its refusals
        pairs = gather([(cut(one), cut(other)) for one, other in zip(hypotheses, references, strict=True)])
        shares = []
        for n in range(1, most + 1):
            right = sum(matches(words, reference, n) for words, reference in pairs)
            shares.append(share(right, sum(possible(words, reference, n) for words, reference in pairs), n))
        factor = penalty(*(sum(len(pair[side]) for pair in pairs) for side in (0, 1)))
        return {
            "precisions": [per_cent[0] * one for one in shares],
            "brevity_penalty": float(factor),
            "bleu": per_cent[1] * factor * mean(shares),
        }

    return bleu


def from_all_references(hypotheses, references):
    """Clipped against what all references together have."""
    pool = [word for reference in references for word in reference.split()]
    joined = [gram for n in range(1, 5) for reference in references for gram in ngrams(reference.split(), n)]
    counts = Counter(joined)

    def matches(words, reference, n):
        return (Counter(ngrams(words, n)) & counts).total() if pool else 0

    return scored(matches=matches)(hypotheses, references)


def sentence_by_sentence(hypotheses, references):
    """The mean of the sentences' own scores."""
    oracle.bleu(hypotheses, references)
    each = [oracle.bleu([one], [other]) for one, other in zip(hypotheses, references, strict=True)]
    mean = {key: sum(one[key] for one in each) / len(each) for key in ("brevity_penalty", "bleu")}
    return mean | {"precisions": [sum(one["precisions"][n] for one in each) / len(each) for n in range(4)]}


def bleu_alone(hypotheses, references):
    """Right counts, but the mean of the sentences' penalties."""
    right = oracle.bleu(hypotheses, references)
    each = [oracle.bleu([one], [other]) for one, other in zip(hypotheses, references, strict=True)]
    factor = sum(one["brevity_penalty"] for one in each) / len(each)
    return right | {"brevity_penalty": factor, "bleu": geometric([p / 100 for p in right["precisions"]]) * factor * 100}


def run_together(pairs):
    """All sentences as one."""
    return [tuple([word for pair in pairs for word in pair[side]] for side in (0, 1))]


def smooth(right, total, n):
    return (right + 1) / (total + 1) if n > 1 else (right / total if total else 0.0)


def exponential(right, total, n):
    return right / total if right or not total else 1 / (2 * total)


def without_zeros(shares):
    kept = [one for one in shares if one]
    return geometric(kept) if kept else 0.0


def takes_any_number(hypotheses, references):
    n = min(len(hypotheses), len(references))
    return oracle.bleu(hypotheses[:n], references[:n]) if n else oracle.bleu(["a"], ["b"])


def no_care_for_zero(hypotheses, references):
    """Logarithms without a look at what goes in."""
    return scored(mean=lambda shares: math.exp(sum(map(math.log, shares)) / 4))(hypotheses, references)


CATS = ("the cat sat on the mat .", "the cat sat on the mat .")
LONG = ("it is a guide to action which ensures that it obeys", "it is a guide to action that ensures that it will obey")
AGAIN = ("the the the the cat sat on the the mat", "there is the cat that sat on a mat")
SHORT = ("el gato se sentó", "el gato negro se sentó en la mesa grande")
OTHERS = ("there is a guide on the mat", "a dog ran to the tree today")

register(
    expected=oracle.bleu,
    phase=PHASE,
    section="7.10",
    hint="clipped matches and totals of n-grams summed over all sentences, then divided; penalty · geometric mean.",
    grad=False,
    bans=("bleu",),
    script="bleu",
    cases=(
        texts("two sentences, one with a word too often", LONG, AGAIN),
        texts("one too short", SHORT, LONG),
        texts("words of another's reference", OTHERS, LONG, SHORT),
        texts("longer than the references", AGAIN, ("a dog ran to the tree today and slept", "a dog ran to the tree")),
        texts("perfect", CATS, SHORT[::-1][:1] * 2),
        texts("The cat, the cat", ("The cat sat on the Mat .", CATS[1]), LONG),
        texts("some too short for four words", ("the cat", "the cat"), ("sat on the mat now", "sat on the mat there")),
        texts("no four words in any", ("the cat", "the cat"), ("a dog sat", "a dog sat")),
        texts("blanks in a row, words that look alike", ("a bc  on the mat ", " ab c on the mat"), LONG),
        texts("no four in a row", ("the cat sat here", "the cat slept here"), ("a b", "a b c")),
        texts("nothing in common", ("uno dos tres cuatro", "one two three four")),
        texts("an empty answer", ("", "the cat sat"), LONG),
        texts("nothing but empty answers", ("", "the cat sat"), ("", "on the mat")),
        texts("other lengths", CATS, make=lambda name, args: refusal(name, args | {"references": [CATS[1], "x"]})),
        texts("no sentences", make=refusal),
    ),
    mistakes={
        "a word counts at most as often as its reference has it": Replays(
            scored(matches=not_clipped), scored(matches=as_sets)
        ),
        "equal n-grams count, as often as they come": scored(
            matches=as_sets, possible=lambda words, reference, n: len(set(ngrams(words, n)))
        ),
        "each sentence has a reference of its own": from_all_references,
        "add up all sentences before dividing": Replays(sentence_by_sentence, bleu_alone),
        "no bonus for being long": scored(
            penalty=lambda hyp_len, ref_len: math.exp(1 - ref_len / hyp_len) if hyp_len else 0.0
        ),
        "reference length over hypothesis length": Replays(
            scored(penalty=lambda hyp_len, ref_len: min(1.0, math.exp(1 - hyp_len / ref_len)) if hyp_len else 0.0),
            scored(penalty=lambda hyp_len, ref_len: exchanged(hyp_len, ref_len, hyp_len >= ref_len)),
            scored(penalty=lambda hyp_len, ref_len: exchanged(hyp_len, ref_len, hyp_len <= ref_len)),
            scored(penalty=lambda hyp_len, ref_len: exchanged(hyp_len, ref_len, False)),
        ),
        "the penalty is exp(1 − r/h), not the ratio": scored(
            penalty=lambda hyp_len, ref_len: min(1.0, hyp_len / ref_len)
        ),
        "too short must cost": scored(penalty=lambda hyp_len, ref_len: 1.0),
        "of the hypothesis' n-grams: precision, not recall": scored(
            possible=lambda words, reference, n: max(0, len(reference) - n + 1)
        ),
        "the mean is geometric": scored(mean=lambda shares: sum(shares) / 4),
        "the mean is the fourth root of the product": scored(mean=math.prod),
        "n-grams are made of words": scored(cut=list),
        "two blanks in a row hold no word: split()": scored(cut=lambda text: text.split(" ") if text else []),
        "an n-gram knows its words' ends: tuples, not glued text": scored(matches=glued),
        "capitals matter": scored(cut=lambda text: text.lower().split()),
        "an n-gram ends with its sentence": scored(gather=run_together),
        "no smoothing": Replays(scored(share=smooth), scored(share=exponential)),
        "a sentence too short for four words counts, too": scored(
            gather=lambda pairs: [pair for pair in pairs if len(pair[0]) >= 4]
        ),
        "one precision of 0 makes it 0": scored(mean=without_zeros),
        "in per cent, as sacrebleu": Replays(
            *(scored(per_cent=pair) for pair in ((1.0, 1.0), (100.0, 1.0), (1.0, 100.0)))
        ),
        "up to four words": scored(most=3),
        "only runs of four": scored(mean=lambda shares: shares[-1]),
        "a precision of 0 has no logarithm: the score is 0": Spotted(rules.log_of_zero, no_care_for_zero),
        "no n-grams of that length: the precision is 0": Spotted(
            rules.divided_by_zero, scored(share=lambda right, total, n: right / total)
        ),
        "no words at all: h is 0, and so is the penalty": Spotted(
            rules.divided_by_no_words,
            scored(penalty=lambda hyp_len, ref_len: min(1.0, math.exp(1 - ref_len / hyp_len))),
        ),
        "as many hypotheses as references, and at least one": Spotted(
            rules.sentences_uneven, takes_any_number, certain=True
        ),
    },
)

# ---- alignment_from_attention --------------------------------------------------------------------


def looks(mask, heads, rows, sinks=(), first=None, others=None):
    """Weights of so many heads and rows over len(mask) places. sinks: places on which most of the weight lies.

    first, others: (place, how much) that the first head and all others prefer.
    """

    def draw(generator, drawn):
        scores = 1.5 * torch.randn(heads, rows, len(mask), generator=generator, dtype=torch.float64)
        scores[..., list(sinks)] += 4.0
        if first:
            scores = scores / 8
            scores[0, :, first[0]] += first[1]
            scores[1:, :, others[0]] += others[1]
        return scores.softmax(-1)

    return given(draw)


def looking(name, mask, heads=3, rows=4, **options):
    sizes = {key: options.pop(key) for key in ("sinks", "first", "others") if key in options}
    places = [letter == "w" for letter in mask]
    pad_mask = given(lambda generator, others: torch.tensor(places))
    return case(name, dict(weights=looks(places, heads, rows, **sizes), pad_mask=pad_mask), **options)


def paired(score=lambda weights: weights.mean(0), hide=True, numbered=True, keep=lambda place, mask: True, pair=None):
    """A wrong twin in its parts; works on places, and turns them into words where numbered."""

    def alignment_from_attention(weights, pad_mask):
        if not pad_mask.any():
            return []
        scores = score(weights)
        scores = scores.masked_fill(~pad_mask, -1) if hide else scores
        places = scores.argmax(-1).tolist()
        words = (pad_mask.cumsum(0) - 1).tolist() if numbered else list(range(len(pad_mask)))
        pairs = [(words[place], row) for row, place in enumerate(places) if keep(place, pad_mask)]
        return pair(pairs) if pair else pairs

    return alignment_from_attention


def is_word(place, mask):
    return bool(mask[place])


def votes(count):
    """Each head chooses a word; count(choices) is the word that most choose."""

    def alignment_from_attention(weights, pad_mask):
        if not pad_mask.any():
            return []
        choices = weights[..., pad_mask].argmax(-1)
        return [(int(count(choices[:, row])), row) for row in range(choices.shape[1])]

    return alignment_from_attention


def from_each_word(weights, pad_mask):
    """For each source word the row that looks at it most."""
    if not pad_mask.any() or not weights.shape[1]:
        return []
    rows = weights[..., pad_mask].mean(0).argmax(0).tolist()
    return list(enumerate(rows))


def upside_down(weights, pad_mask):
    return oracle.alignment_from_attention(weights, ~pad_mask)


def scaled_up(weights, pad_mask):
    """Each head's weights on words sum to 1 first."""
    if not pad_mask.any():
        return []
    words = weights[..., pad_mask]
    places = (words / words.sum(-1, keepdim=True)).mean(0).argmax(-1).tolist()
    return [(place, row) for row, place in enumerate(places)]


def first_columns(weights, pad_mask):
    count = int(pad_mask.sum())
    return oracle.alignment_from_attention(weights[..., :count], pad_mask.new_ones(count))


def behind_the_first(weights, pad_mask):
    """Numbers from the first word on, whatever lies between."""
    places = pad_mask.nonzero()[:, 0].tolist()
    return [(places[word] - places[0], row) for word, row in oracle.alignment_from_attention(weights, pad_mask)]


def chooses_among_none(weights, pad_mask):
    best = weights.mean(0)[:, pad_mask].argmax(-1)
    return [(word, row) for row, word in enumerate(best.tolist())]


def refuses_no_words(weights, pad_mask):
    if not pad_mask.any():
        return [(0, row) for row in range(weights.shape[1])]
    return oracle.alignment_from_attention(weights, pad_mask)


register(
    expected=oracle.alignment_from_attention,
    phase=PHASE,
    section="7.11",
    hint="average over heads, keep the columns of words, argmax along them.",
    grad=False,
    bans=(),
    script="alignment_from_attention",
    cases=(
        looking("words and the end, which attracts", "wwwww.", sinks=(5,)),
        looking("the beginning, words, the end, padding", ".wwwwww...", heads=2, rows=5, sinks=(0, 7, 9)),
        looking("something between the words", "ww.w.www.", rows=6, heads=4, sinks=(2,)),
        looking("one head, sure, against two that lean", ".wwwww.", rows=3, first=(2, 4.0), others=(4, 1.0)),
        looking("one head, sure, against two, nearly as sure", ".wwwww.", rows=3, first=(3, 4.0), others=(1, 2.5)),
        looking("one head", "..wwww", heads=1, rows=3, sinks=(1,)),
        looking("one word", ".w.", rows=3, sinks=(0,)),
        looking("more rows than words", "www.", rows=8, heads=2),
        looking("no rows", "www.", rows=0, kind="edge"),
        looking("no words", "...", rows=2, kind="edge"),
    ),
    mistakes={
        "special tokens and padding are no words: hide them first": Replays(
            paired(hide=False), paired(hide=False, numbered=False)
        ),
        "words are numbered, not places: bos is not counted": paired(numbered=False),
        "each row gets a word: hide first, do not drop afterwards": Replays(
            paired(hide=False, keep=is_word), paired(hide=False, numbered=False, keep=is_word)
        ),
        "average the heads": Replays(
            paired(score=lambda weights: weights[0]),
            paired(score=lambda weights: weights[-1]),
            paired(score=lambda weights: weights.amax(0)),
            paired(score=lambda weights: weights.prod(0)),
            paired(score=lambda weights: weights.median(0).values),
        ),
        "average the weights, not the heads' choices": Replays(
            votes(lambda choices: choices.mode().values),
            votes(lambda choices: Counter(choices.tolist()).most_common(1)[0][0]),
        ),
        "average the weights as they are: no head is scaled up": scaled_up,
        "words are where the mask says, not in the first columns": Replays(first_columns, behind_the_first),
        "for each row a word, not for each word a row": Replays(
            from_each_word, lambda weights, pad_mask: [pair[::-1] for pair in from_each_word(weights, pad_mask)]
        ),
        "(source word, target word), in this order": paired(pair=lambda pairs: [one[::-1] for one in pairs]),
        "True is a word": upside_down,
        "in the order of the rows": paired(pair=sorted),
        "a source without words has nothing to align": Spotted(
            rules.no_word_to_choose, chooses_among_none, also=(refuses_no_words,)
        ),
    },
)
