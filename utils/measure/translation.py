"""How good a translator is: its sentences, how many are right and how sure that is, BLEU, where it looked."""

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from utils import oracle
from utils.data.vocabulary import BOS, EOS, PAD
from utils.measure.clock import MeasureError
from utils.train import device as devices
from utils.train import weights as stored
from utils.train.tasks import evaluating, tried

AT_ONCE = 250  # sentences of one batch
LONGEST = 24  # words; the grammar's longest target has 19
READ = ("src", "tgt_in", "src_pad_mask", "tgt_pad_mask")  # of a batch, in the order of a model's arguments


@dataclass(frozen=True)
class Share:
    """right of n, and the range of true rates that this leaves open (95 %, by Clopper and Pearson)."""

    right: int
    n: int
    low: float
    high: float

    @property
    def share(self):
        return self.right / self.n

    def __str__(self):
        return f"{self.share:.1%} ({self.right} of {self.n}; the true rate is {self.low:.1%} to {self.high:.1%})"


def share_of(right, n, sure=0.95):
    """The Share of `right` in `n`: with all of 1,000 right, the rate may still be 99.6 %."""
    if not 0 <= right <= n or n < 1:
        raise ValueError(f"{right} of {n} is no share")
    aside = (1 - sure) / 2
    low = 0.0 if right == 0 else _where(lambda rate: _at_least(right, n, rate) > aside)
    high = 1.0 if right == n else _where(lambda rate: 1 - _at_least(right + 1, n, rate) < aside)
    return Share(right, n, low, high)


def _where(crossed):
    """The rate at which `crossed` begins to hold."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if crossed(middle) else (middle, high)
    return (low + high) / 2


def _at_least(right, n, rate):
    """The chance of `right` or more successes in n at this rate."""
    if rate in (0.0, 1.0):
        return float(rate == 1.0 or right == 0)
    logs = (
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(rate)
        + (n - k) * math.log1p(-rate)
        for k in range(right, n + 1)
    )  # fmt: skip
    return min(1.0, sum(map(math.exp, logs)))


# ---- sentences -----------------------------------------------------------------------------------


def translate(model, corpus, sentences, precision="fp32"):
    """Greedy translations, in order: a list of str. sentences: str, or pairs whose source counts.

    model(src, tgt, src_pad_mask, tgt_pad_mask) -> logits, of any make
    """
    texts = [getattr(one, "source", one) for one in sentences]
    order = sorted(range(len(texts)), key=lambda n: len(texts[n].split()))  # neighbours of one length: few pads
    found = [None] * len(texts)
    device = next(model.parameters()).device
    with evaluating(model), devices.computing(device, precision):
        for start in range(0, len(order), AT_ONCE):
            rows = order[start : start + AT_ONCE]
            for row, ids in zip(rows, _greedy(model, *_read(corpus, [texts[n] for n in rows], device)), strict=True):
                found[row] = corpus.target_words.decode(ids)
    return found


def _read(corpus, texts, device):
    """(ids, mask) of sources, padded."""
    ids = [corpus.source_words.encode(text) for text in texts]
    if not all(ids):
        raise MeasureError("there is no word to translate in one of these sentences")
    table = torch.full((len(ids), max(map(len, ids))), PAD)
    for row, words in enumerate(ids):
        table[row, : len(words)] = torch.tensor(words)
    lengths = torch.tensor([len(words) for words in ids])
    return table.to(device), (torch.arange(table.shape[1]) < lengths[:, None]).to(device)


def _greedy(model, src, seen):
    """Lists of ids, without bos and eos. A sentence leaves the batch when it is over."""
    said = torch.full((len(src), 1), BOS, device=src.device)
    places, found = torch.arange(len(src), device=src.device), [None] * len(src)
    while len(places) and said.shape[1] <= LONGEST:
        new = model(src, said, seen, None)[:, -1].argmax(-1)
        over = new == EOS
        for place, row in zip(places[over].tolist(), said[over].tolist(), strict=True):
            found[place] = row[1:]
        said = torch.cat([said, new[:, None]], 1)[~over]
        src, seen, places = src[~over], seen[~over], places[~over]
    for place, row in zip(places.tolist(), said.tolist(), strict=True):
        found[place] = row[1:]
    return found


def exact_match(model, corpus, limit=None):
    """{test: Share} of sentences that are right word for word; at most `limit` of each test.

    model: or a finished Run, which has asked its model already: then nothing is translated again
    """
    known = getattr(model, "report", None)
    if known and limit is None and (found := shares(known, corpus)):
        return found
    model, found = getattr(model, "model", model), {}
    for name, pairs in corpus.tests.items():
        pairs = pairs[:limit]
        if pairs:
            said = translate(model, corpus, pairs)
            found[name] = share_of(sum(one == pair.target for one, pair in zip(said, pairs, strict=True)), len(pairs))
    return found


def shares(report, corpus):
    """{test: Share} from a report's rates and the numbers of sentences that a run tries."""
    rates = {name: report.get(f"exact_match_{name}") for name in corpus.tests}
    sizes = {name: len(tried(name, pairs)) for name, pairs in corpus.tests.items()}
    return {
        name: share_of(round(rate * sizes[name]), sizes[name])
        for name, rate in rates.items()
        if rate is not None and sizes[name]
    }


def bleu(outputs, references):
    """Corpus BLEU in per cent, by sacrebleu, on words as they stand."""
    from sacrebleu.metrics import BLEU  # on use: it takes half a second

    return BLEU(tokenize="none", smooth_method="none", force=True).corpus_score(outputs, [references]).score


# ---- where it looked -----------------------------------------------------------------------------


def readable(model):
    """The course's own Transformer with this model's weights, whose attention can be read. Raises MeasureError.

    A learner's module may name and call its parts as it likes; its numbers have one meaning.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "weights.safetensors"
        if reason := stored.write(path, model, "a"):
            raise MeasureError(f"where this model looked cannot be read: {reason}")
        return stored.twin(path)


def _looks(model, batch):
    """Per layer (batch, n_heads, tgt_len, src_len), while `model`, a readable one, is fed the truth."""
    found, hooks = [], []

    def read(attention, args, options):
        given = dict(zip(("x", "memory", "attn_mask"), args, strict=False)) | options
        q, k = (
            project(side).unflatten(-1, (attention.n_heads, -1)).transpose(1, 2)  # (B, H, T, D)
            for project, side in ((attention.w_q, given["x"]), (attention.w_k, given["memory"]))
        )
        found.append(oracle.attention_weights(q, k, given["attn_mask"]))

    for block in model.decoder.blocks:
        hooks.append(block.cross_attention.register_forward_pre_hook(read, with_kwargs=True))
    try:
        with evaluating(model):
            logits = model(*(batch[name] for name in READ))
    finally:
        for hook in hooks:
            hook.remove()
    return found, logits


def _read_all(model, corpus, pairs):
    """(weights per layer, batch) on the CPU, from a twin that is first found to say what the model says."""
    batch = {name: tensor.cpu() for name, tensor in corpus.encoded(pairs).items()}
    layers, said = _looks(readable(model), batch)
    device = next(model.parameters()).device
    with evaluating(model), devices.computing(device, "fp32"):
        own = model(*(batch[name].to(device) for name in READ)).cpu()
    real = batch["tgt_pad_mask"]
    if not torch.allclose(own[real], said[real], atol=1e-2, rtol=1e-2):
        raise MeasureError("where this model looked cannot be read: the course's says other things with its weights")
    return layers, batch


def cross_attention(model, corpus, pair):
    """Per layer the weights (n_heads, target words, source words) of one pair; row j wrote target word j."""
    layers, batch = _read_all(model, corpus, [pair])
    words = int(batch["tgt_pad_mask"].sum()) - 1  # the last row wrote eos
    return [layer[0, :, :words] for layer in layers]


def alignment_rate(model, corpus, pairs, align):
    """Per layer the share of gold pairs found. align(weights, pad_mask) -> pairs, such as your own function."""
    layers, batch = _read_all(model, corpus, pairs)
    rates, gold = [], sum(len(pair.alignment) for pair in pairs)
    for layer in layers:
        found = 0
        for row, pair in enumerate(pairs):
            words = int(batch["tgt_pad_mask"][row].sum()) - 1
            pairs_found = {tuple(map(int, one)) for one in align(layer[row, :, :words], batch["src_pad_mask"][row])}
            found += len(pairs_found & set(pair.alignment))
        rates.append(found / gold)
    return rates
