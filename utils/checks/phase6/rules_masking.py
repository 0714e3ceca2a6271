"""What the check of mask_tokens looks for by rule: a judge of chance, signs of a known mistake."""

from functools import partial

import torch

from utils.checks.phase6.rules_families import argument, said

IGNORED = -100


def spread_too_far(count, n, share):
    """Is a count, or one of many, outside six sigma of what chance gives?"""
    count, n = torch.as_tensor(count, dtype=torch.float64), torch.as_tensor(n, dtype=torch.float64)
    return bool(((count - share * n).abs() > 6 * (n * share * (1 - share)).sqrt() + 0.5).any())


def too_regular(count, n, share):
    """Do the counts of many rows spread far less than chance makes them?"""
    count, n = count[n > 0].double(), n[n > 0].double()
    return ((count - share * n).square() / (n * share * (1 - share))).mean().item() < 0.35


# ---- mask_tokens ---------------------------------------------------------------------------------


def hides(**text):
    """Judge calls on one text: a generator, the same again, a copy of its first state, the first some more times."""
    return partial(judge_hidden, **text)


def judge_hidden(got, settled, tokens, pad_mask, mask_id, vocab_size, p, special_ids):
    for index in range(3):
        if text := _badly_formed(said(got, index), tokens):
            return text
    aside = torch.tensor([*special_ids, mask_id])
    eligible = pad_mask & ~torch.isin(tokens, aside)
    for index in range(3):
        inputs, labels = said(got, index)
        chosen = labels != IGNORED
        if not torch.equal(labels[chosen], tokens[chosen]):
            return "labels that are the original tokens, or -100", "other labels"
        if bool((chosen & ~eligible).any()):
            return "only real words chosen", "padding, a special token or mask_id chosen as well"
        if not torch.equal(inputs[~chosen], tokens[~chosen]):
            return "tokens that were not chosen as they were", "some of them changed"
    (inputs, labels), again, copy = (said(got, index) for index in range(3))
    chosen = labels != IGNORED
    words = torch.tensor([word for word in range(vocab_size) if word not in aside.tolist()])
    return (
        _badly_chosen(chosen, eligible, p)
        or _counted_out(got)
        or _badly_split(inputs, tokens, chosen, mask_id, words)
        or _never_drawn(got, tokens, mask_id, words)
        or _not_from_the_generator(said(got), again, copy)
    )


def _badly_formed(value, tokens):
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        return "two tensors, inputs and labels", "something else"
    for part in value:
        if not isinstance(part, torch.Tensor) or (part.shape, part.dtype) != (tokens.shape, tokens.dtype):
            return f"int64 tensors of shape {tuple(tokens.shape)}", "something else"
    return None


def _badly_chosen(chosen, eligible, p):
    n, count = eligible.sum().item(), chosen.sum().item()
    if spread_too_far(count, n, p):
        return f"about {p:.0%} of the words chosen", f"{count / n:.1%}"
    if spread_too_far(chosen.sum(1), eligible.sum(1), p):
        return f"about {p:.0%} of each row's words chosen", "another share in some rows"
    if too_regular(chosen.sum(1), eligible.sum(1), p):
        return "each word chosen on its own, so that rows differ in how many", "the same share in every row"
    for axis, says in enumerate(("each row", "each place of a row")):
        seen, among = chosen.sum(axis), eligible.sum(axis)
        if bool(((seen == 0) | (seen == among)).all()):
            return f"{says} draws for itself", "one pattern for all"
    return None


def _counted_out(got):
    """Did four calls, each with new luck, choose equally many? One in a million, if each word is drawn by itself."""
    counts = {(call["value"][1] != IGNORED).sum().item() for call in got["calls"]}
    if len(got["calls"]) > 4 and len(counts) == 1:
        return "each word chosen on its own, so that calls differ in how many", f"{counts.pop()} of them each time"
    return None


def _badly_split(inputs, tokens, chosen, mask_id, words):
    n = chosen.sum().item()
    masked, kept = chosen & (inputs == mask_id), chosen & (inputs == tokens)
    other = chosen & ~masked & ~kept
    lucky = 0.1 / len(words)  # a random word may be the original
    for part, share, says in (
        (masked, 0.8, "become mask_id"),
        (other, 0.1 - lucky, "become another word"),
        (kept, 0.1 + lucky, "stay as they are"),
    ):
        if spread_too_far(part.sum().item(), n, share):
            return f"about {share:.1%} of the chosen {says}", f"{part.sum().item() / n:.1%}"
    if spread_too_far(masked.sum(1), chosen.sum(1), 0.8):
        return "each chosen token by itself: 80, 10, 10", "a row in which nearly all go one way"
    if too_regular(masked.sum(1), chosen.sum(1), 0.8):
        return "each chosen token by itself: 80, 10, 10", "the same shares in every row"
    found = inputs[other]
    if not bool(torch.isin(found, words).all()):
        return "random words that are words", "a special token among them"
    if _one_word(inputs, other):
        return "a random word for each place", "one and the same along a row, or a column"
    counts = torch.bincount(found, minlength=int(words.max()) + 1)[words]
    never = (counts == 0).sum() > len(words) / 4 and len(found) > 3 * len(words)
    if never or spread_too_far(counts, len(found), 1 / len(words)):
        return "random words spread over the whole vocabulary", "some far too often, others never"
    return None


def _drawn_words(got, tokens, mask_id, words):
    """How often each word was put in place of another one, over all calls that drew anew."""
    counts = torch.zeros(int(words.max()) + 1, dtype=torch.int64)
    for index in (0, 1, 3, 4)[: len(got["calls"]) - 1]:  # the third call repeats the first
        inputs, labels = said(got, index)
        found = inputs[(labels != IGNORED) & (inputs != tokens) & (inputs != mask_id)]
        counts += torch.bincount(found, minlength=len(counts))[: len(counts)]
    return counts[words]


def _never_drawn(got, tokens, mask_id, words):
    """Is there a word that never comes, though each should come 20 times and more? A chance of one in 10⁸."""
    counts = _drawn_words(got, tokens, mask_id, words)
    if counts.sum() > 20 * len(words) and bool((counts == 0).any()):
        return "random words spread over the whole vocabulary", f"word {words[counts == 0][0]} never"
    return None


def _one_word(inputs, other):
    """Are all random words of each row, or of each column, the same?"""
    for table, places in ((inputs, other), (inputs.mT, other.mT)):
        lines = [row[there] for row, there in zip(table, places, strict=True) if there.sum() > 2]
        if len(lines) > 5 and all(len(line.unique()) == 1 for line in lines):
            return True
    return False


def _not_from_the_generator(first, again, copy):
    if all(torch.equal(a, b) for a, b in zip(first, again, strict=True)):
        return "a second call that draws on", "the same choice again"
    if not all(torch.equal(a, b) for a, b in zip(first, copy, strict=True)):
        return "the same generator state gives the same choice", "another one: is all chance from the generator?"
    return None


def _masking(got, request):
    """(inputs, labels, tokens, pad_mask, words not to be chosen, chosen) of the first call."""
    inputs, labels = said(got)
    tokens, pad_mask = argument(request, "tokens"), argument(request, "pad_mask")
    aside = torch.tensor([*argument(request, "special_ids"), argument(request, "mask_id")])
    return inputs, labels, tokens, pad_mask, torch.isin(tokens, aside), labels != IGNORED


def loss_everywhere(got, request):
    inputs, labels, tokens, pad_mask, aside, chosen = _masking(got, request)
    return torch.equal(labels[pad_mask & ~aside], tokens[pad_mask & ~aside]) and argument(request, "p") < 1


def kept_not_predicted(got, request):
    inputs, labels, tokens, pad_mask, aside, chosen = _masking(got, request)
    kept = (chosen & (inputs == tokens)).sum().item()
    return chosen.sum().item() > 200 and kept < 0.02 * chosen.sum().item() and _masks_most(inputs, chosen, request)


def _masks_most(inputs, chosen, request):
    """Are eight to nine in ten of the chosen masked? 8/9 where the kept tenth is not among them."""
    share = (inputs[chosen] == argument(request, "mask_id")).double().mean().item()
    return 0.84 < share < 0.94


def nothing_kept(got, request):
    """Two ways only: masked, or another word."""
    inputs, labels, tokens, pad_mask, aside, chosen = _masking(got, request)
    masked = inputs[chosen] == argument(request, "mask_id")
    kept = (inputs == tokens)[chosen].double().mean().item()
    return chosen.sum().item() > 200 and kept < 0.02 and masked.double().mean().item() <= 0.84


def always_the_mask(got, request):
    inputs, labels, tokens, pad_mask, aside, chosen = _masking(got, request)
    return bool(chosen.any()) and bool((inputs[chosen] == argument(request, "mask_id")).all())


def pads_chosen(got, request):
    inputs, labels, tokens, pad_mask, aside, chosen = _masking(got, request)
    return bool((chosen & ~pad_mask & ~aside).any()) and not bool((chosen & pad_mask & aside).any())


def specials_chosen(got, request):
    inputs, labels, tokens, pad_mask, aside, chosen = _masking(got, request)
    return bool((chosen & pad_mask & aside).any())


def one_pattern(got, request):
    inputs, labels, tokens, pad_mask, aside, chosen = _masking(got, request)
    may = pad_mask & ~aside
    count = chosen.sum(0)
    return chosen.shape[0] > 3 and bool(((count == 0) | (count == may.sum(0))).all())


def one_way_per_row(got, request):
    inputs, labels, tokens, pad_mask, aside, chosen = _masking(got, request)
    masked, n = ((inputs == argument(request, "mask_id")) & chosen).sum(1), chosen.sum(1)
    return len(n) > 3 and bool(((masked == 0) | (masked == n)).all()) and bool(((masked == 0) & (n > 1)).any())


def last_word_left_out(got, request):
    """Does the last word of the vocabulary never come, and all others do?"""
    inputs, labels, tokens, pad_mask, aside, chosen = _masking(got, request)
    specials = [*argument(request, "special_ids"), argument(request, "mask_id")]
    words = torch.tensor([word for word in range(argument(request, "vocab_size")) if word not in specials])
    if len(got["calls"]) < 5:
        return False
    counts = _drawn_words(got, tokens, argument(request, "mask_id"), words)
    return counts.sum() > 20 * len(words) and (counts == 0).nonzero().flatten().tolist() == [len(words) - 1]


def random_specials(got, request):
    inputs, labels, tokens, pad_mask, aside, chosen = _masking(got, request)
    specials = torch.tensor(list(argument(request, "special_ids")))
    return bool((chosen & ~aside & pad_mask & torch.isin(inputs, specials)).any())


def one_word_in_a_line(got, request):
    inputs, labels, tokens, pad_mask, aside, chosen = _masking(got, request)
    return _one_word(inputs, chosen & (inputs != tokens) & (inputs != argument(request, "mask_id")))


def another_generator(got, request):
    """Equal states of the generator, and different choices."""
    first, _, copy = (said(got, index) for index in range(3))
    return not all(torch.equal(a, b) for a, b in zip(first, copy, strict=True))


def exact_share(got, request):
    """The same share in every row, or over all of the text."""
    inputs, labels, tokens, pad_mask, aside, chosen = _masking(got, request)
    may, p = pad_mask & ~aside, argument(request, "p")
    rows = bool(((chosen.sum(1) - p * may.sum(1)).abs() <= 1).all())
    return 0 < p < 1 and (rows or _counted_out(got) is not None)


def keeps_p(got, request):
    inputs, labels, tokens, pad_mask, aside, chosen = _masking(got, request)
    n, p = (pad_mask & ~aside).sum().item(), argument(request, "p")
    return abs(p - 0.5) > 0.1 and not spread_too_far(chosen.sum().item(), n, 1 - p)
