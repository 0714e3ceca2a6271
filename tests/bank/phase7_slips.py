"""Phase 7: natural slips of a reader who solved all of it, each of which has a name."""

import copy
import hashlib
import math

import torch
import torch.nn.functional as F

from tests.bank import right, wrong
from tests.bank.phase7_corpus import cut
from tests.bank.phase7_corpus import refuse as refuse_share
from tests.bank.phase7_costs import counted, needed
from tests.bank.phase7_evaluating import nats, quiet
from tests.bank.phase7_evaluating import refuse as refuse_text
from tests.bank.phase7_overfitting import changed, moved, number_of, quietly, vocab_of
from tests.bank.phase7_resuming import put_back, state_of
from tests.bank.phase7_shares import ratio
from tests.bank.phase7_translations import made
from tests.bank.phase7_translations import refuse as refuse_texts

# ---------------------------------------------------------------- what a run costs, and its share of the peak

wrong("flops_per_token", says="attention is counted twice: 6 holds multiplication and addition")(
    counted("attention_twice", attention=24)
)
wrong("training_memory", says="bytes_per_element is of activations: all the rest is float32")(
    needed("nothing_in_float32", state_width=lambda width: width / 4, logits=lambda width: 2 * width)
)


def capped(name, answer):
    """It refuses what comes out above 1, by its own numbers."""

    def mfu(tokens_per_second, flops, peak):
        if not 0 < peak < math.inf:
            raise ValueError("peak")
        share = answer(tokens_per_second, flops, peak)
        if share > 1:
            raise ValueError(f"{share:.0%} of the peak")
        return share

    mfu.__name__ = name
    return mfu


wrong("mfu", says="flops are those of training already")(capped("three_passes", lambda s, f, p: 3 * s * f / p))
wrong("mfu", says="flops are those of training already")(capped("six_each", lambda s, f, p: 6 * s * f / p))
wrong("mfu", says="a share, not per cent")(capped("per_cent_up_to_one", lambda s, f, p: 100 * s * f / p))
wrong("mfu", says="what was used over what there is")(capped("the_inverse", lambda s, f, p: p / (s * f)))
wrong("mfu")(ratio("refuses_small_ones", answer=lambda s, f, p: s * f / p if s * f / p > 0.1 else None))

# ---------------------------------------------------------------- one batch


@wrong("overfit_one_batch", says="gradients may be left from before: clear them before the first step, too")
def cleared_at_the_end_of_a_step(model, optimizer, loss, steps):
    losses = []
    with quietly(model):
        for step in range(steps + 1):
            now = loss(model)
            losses.append(number_of(now))
            if step < steps:
                now.backward()
                optimizer.step()
                optimizer.zero_grad()
    return losses


@wrong("overfit_one_batch", says="look at the loss before you step with it")
def looks_at_all_in_the_end(model, optimizer, loss, steps):
    losses = []
    with quietly(model):
        for step in range(steps + 1):
            now = loss(model)
            losses.append(now.item())
            if step < steps:
                optimizer.zero_grad()
                now.backward()
                optimizer.step()
        if not all(map(math.isfinite, losses)):
            raise ValueError("some loss is no number")
    return losses


@wrong("overfit_one_batch", says="a loss is a float: .item()")
def tensors_with_their_graph(model, optimizer, loss, steps):
    losses = []
    with quietly(model):
        for step in range(steps + 1):
            now = loss(model)
            number_of(now)
            losses.append(now)
            if step < steps:
                optimizer.zero_grad()
                now.backward()
                optimizer.step()
    return losses


# ---------------------------------------------------------------- sees_targets


@wrong("sees_targets", says="one border is not enough: try every place")
def half_by_half(model, tokens):
    half = tokens.shape[1] // 2
    with quietly(model):
        other = changed(tokens, slice(half, None), vocab_of(model, tokens))
        return bool(moved(model, tokens, other)[:half].any())


@wrong("sees_targets", says="a row keeps its length: change its tokens, do not cut them off")
def token_by_token_read(model, tokens):
    with quietly(model), torch.no_grad():
        whole = model(tokens)
        steps = [model(tokens[:, : place + 1])[:, -1] for place in range(tokens.shape[1])]
        return bool(((torch.stack(steps, 1) - whole).abs() > 1e-6).any())


@right("sees_targets", why="from the last place back to the first, more of the row replaced each time")
def from_behind(model, tokens):
    with quietly(model), torch.no_grad():
        whole, other = model(tokens), tokens.clone()
        for place in range(tokens.shape[1] - 1, 0, -1):
            other[:, place] = (tokens[:, place] + 2) % whole.shape[-1]
            if ((model(other) - whole)[:, :place].abs() > 1e-6).any():
                return True
    return False


# ---------------------------------------------------------------- evaluate


@wrong("evaluate", says="a model takes a batch: tokens[None], and [0] of what comes back")
def without_a_batch(model, tokens, seq_len):
    refuse_text(tokens, seq_len)
    total = 0.0
    with quiet(model):
        for start in range(0, len(tokens) - 1, seq_len):
            piece = tokens[start : start + seq_len + 1]
            total += F.cross_entropy(model(piece[:-1]), piece[1:], reduction="sum").item()
    return total, len(tokens) - 1


@wrong("evaluate", says="the last window is shorter: it begins where the one before it ends")
def always_full(model, tokens, seq_len):
    refuse_text(tokens, seq_len)
    count, total = len(tokens) - 1, 0.0
    with quiet(model):
        for start in range(0, count, seq_len):
            end = min(start + seq_len, count)
            first = max(0, end - seq_len)
            losses = F.cross_entropy(model(tokens[None, first:end])[0], tokens[first + 1 : end + 1], reduction="none")
            total += losses[start - first :].sum().item()
    return total, count


@wrong("evaluate", says="no window begins at the last token: range(0, len(tokens) - 1, seq_len)")
def one_window_more(model, tokens, seq_len):
    refuse_text(tokens, seq_len)
    total = 0.0
    with quiet(model):
        for start in range(0, len(tokens), seq_len):
            piece = tokens[start : start + seq_len + 1]
            total += nats(model, piece[:-1], piece[1:])
    return total, len(tokens) - 1


# ---------------------------------------------------------------- a state


@wrong("training_state", says="a generator's state, not the generator: get_state()")
def the_generator_itself(model, optimizer, generator, step):
    return state_of(model, optimizer, generator, step, generator=generator)


@wrong("restore_state", says="the optimiser holds the old weights: write into them, no assign=True")
def copies_for_the_model(state, model, optimizer, generator):
    model.load_state_dict(copy.deepcopy(state["model"]), assign=True)
    return put_back(state, None, optimizer, generator)


# ---------------------------------------------------------------- bleu

for _name, _says, _penalty in [
    (
        "exchanged_in_the_power",
        "reference length over hypothesis length",
        lambda hyp, ref: 0.0 if hyp == 0 else 1.0 if hyp >= ref else math.exp(1 - hyp / ref),
    ),
    (
        "exchanged_throughout",
        "reference length over hypothesis length",
        lambda hyp, ref: 1.0 if hyp <= ref else math.exp(1 - hyp / ref),
    ),
    ("exchanged_and_never_cut", "reference length over hypothesis length", lambda hyp, ref: math.exp(1 - hyp / ref)),
    (
        "no_words_no_look",
        "no words at all: h is 0, and so is the penalty",
        lambda hyp, ref: 1.0 if hyp >= ref and hyp else math.exp(1 - ref / hyp),
    ),
]:
    wrong("bleu", says=_says)(made(_name, penalty=_penalty))


@wrong("bleu", says="a sentence too short for four words counts, too")
def only_long_ones(hypotheses, references):
    """Of what is said, too few words for a 4-gram are not looked at."""
    refuse_texts(hypotheses, references)
    kept = [pair for pair in zip(hypotheses, references, strict=True) if len(pair[0].split()) > 3]
    found = made("right", refuses=lambda hyp, ref: None)
    return found([one for one, _ in kept], [other for _, other in kept])


wrong("bleu", says="two blanks in a row hold no word: split()")(made("one_blank", cut=lambda text: text.split(" ")))

# ---------------------------------------------------------------- alignment_from_attention


@wrong("alignment_from_attention", says="for each row a word, not for each word a row")
def the_other_axis(weights, pad_mask):
    if not pad_mask.any() or not weights.shape[1]:
        return []
    best = weights.mean(0)[:, pad_mask].argmax(0)
    return [(word, row) for row, word in enumerate(best.tolist())]


# ---------------------------------------------------------------- split_corpus


def byte_over(most, kind=hashlib.sha256):
    def split_corpus(documents, val_share):
        refuse_share(val_share)
        return cut([kind(document).digest()[0] / most for document in documents], val_share)

    split_corpus.__name__ = f"first_byte_of_{kind().name}_over_{most}"
    return split_corpus


wrong("split_corpus", says="a share of 1 is all: the number drawn stays below 1")(byte_over(255))
wrong("split_corpus", says="a share of 1 is all: the number drawn stays below 1")(byte_over(255, hashlib.blake2b))
right("split_corpus", why="one byte of a hash, over 256: as fine as that")(byte_over(256))


@wrong("split_corpus", says="a set has no order: two lists")
def two_sets(documents, val_share):
    refuse_share(val_share)
    return tuple(map(set, byte_over(256)(documents, val_share)))


@wrong("split_corpus", says="a share can be finer: the hash in small steps")
def in_tenths(documents, val_share):
    refuse_share(val_share)
    return cut([int(hashlib.md5(one).hexdigest(), 16) % 10 / 10 for one in documents], val_share)


@wrong("split_corpus", says="val_share outside 0 to 1: raise ValueError")
def nan_is_neither_below_nor_above(documents, val_share):
    if val_share < 0 or val_share > 1:
        raise ValueError("val_share must lie between 0 and 1")
    return cut([hashlib.md5(document).digest()[0] / 256 for document in documents], val_share)
