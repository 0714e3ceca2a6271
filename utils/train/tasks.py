"""What is learnt: a track's text as batches, its loss, its evaluation. One `fit` serves both.

A batch is a pure function of (seed, step): nothing has to be remembered to go on, and every process can draw the whole
of it and keep its own rows. Part `part` of `parts` holds the same rows whether parts follow each other on one device or
lie on several.
"""

import contextlib
import math

import torch
import torch.nn.functional as F

from utils.train import device as devices
from utils.train import parts as made_of
from utils.train.errors import TrainError

OTHERS = 300  # sentences of each further test at the end of a run; utils.measure judges all, given a model
IGNORED = -100  # a target that costs nothing


def tried(name, pairs):
    """The sentences of a test that are translated at the end of a run: all of "iid", OTHERS of another."""
    return pairs if name == "iid" else pairs[:OTHERS]


class _Task:
    """What both tracks share. `config` must be settled (settings does that)."""

    def __init__(self, config):
        self.config, self.device, self.note = config, torch.device(config.device), ""
        self._whole = (None, None)  # the last step asked for, and its batch

    def model(self, quiet=False):
        """(a fresh model on the device, {exercise: whose})."""
        model, parts = made_of.build(self.config, self.vocabulary, quiet)
        return model.to(self.device), parts

    def batch(self, step, part=0, parts=1):
        """Rows of the batch of a step: dict of tensors on the device."""
        whole = self.whole(step)
        rows = self.config.batch_size
        start, end = part * rows // parts, (part + 1) * rows // parts
        return {name: tensor[start:end] for name, tensor in whole.items()}

    def whole(self, step):
        if self._whole[0] != step:
            batch = {name: tensor.to(self.device) for name, tensor in self._drawn(step).items()}
            self._whole = (step, batch)
        return self._whole[1]

    def count(self, step):
        """Tokens that cost something in the whole batch of a step, all devices together."""
        return int((self._targets(self.whole(step)) != IGNORED).sum())

    def loss(self, model, batch):
        """(sum of the losses of all kept tokens, their number)."""
        inputs, targets = self.pair(batch)
        with devices.computing(self.device, self.config.precision):
            logits = self.logits(model, inputs)
        total = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum")
        return total, (targets != IGNORED).sum()

    def pair(self, batch):
        """(inputs, targets) as train_step takes them."""
        return self._inputs(batch), self._targets(batch)


class Translation(_Task):
    """Track a: English to Spanish, by an encoder and a decoder."""

    def __init__(self, corpus, config):
        super().__init__(config)
        if not corpus.train:
            raise TrainError("the corpus is empty: there is no sentence to learn from")
        self.corpus = corpus
        self.vocabulary = (len(corpus.source_words), len(corpus.target_words))
        self.fingerprint, self.n_units = corpus.fingerprint, len(corpus.train)
        sides = zip(*((pair.source, pair.target) for pair in corpus.train), strict=True)
        self.lengths = tuple(max(len(text.split()) for text in side) + 1 for side in sides)  # to estimate memory

    def _drawn(self, step):
        batch = self.corpus.batch(self.config.seed, step, self.config.batch_size)
        if self.device.type != "cpu":  # a GPU wants one shape; on a CPU every column of pads costs
            return batch
        widths = {side: int(batch[f"{side}_pad_mask"].any(0).sum()) for side in ("src", "tgt")}
        return {name: tensor[:, : widths[name[:3]]] for name, tensor in batch.items()}

    def _inputs(self, batch):
        return batch["src"], batch["tgt_in"], batch["src_pad_mask"], batch["tgt_pad_mask"]

    def _targets(self, batch):
        return batch["tgt_out"].masked_fill(~batch["tgt_pad_mask"], IGNORED)

    def logits(self, model, inputs):
        return model(*inputs)

    def evaluate(self, model, limit=None):
        """{"exact_match": share of sentences that are right}, and for each test; greedy, at most `limit` of each."""
        shares = {}
        for name, pairs in self.corpus.tests.items():
            if pairs:
                shares[name] = self.exact_match(model, tried(name, pairs)[:limit])
        return {"exact_match": shares.get("iid")} | {f"exact_match_{name}": share for name, share in shares.items()}

    def exact_match(self, model, pairs, size=250):
        """Share of pairs whose translation is word for word the target."""
        right = 0
        order = sorted(pairs, key=lambda pair: len(pair.source))  # neighbours of one length: few pads
        with evaluating(model):
            for start in range(0, len(order), size):
                right += self._right(model, order[start : start + size])
        return right / len(pairs)

    def _right(self, model, pairs):
        """How many are right. A sentence is dropped once it is over or wrong, so that only open ones cost time."""
        batch = {name: tensor.to(self.device) for name, tensor in self.corpus.encoded(pairs).items()}
        src, seen, targets, said = batch["src"], batch["src_pad_mask"], self._targets(batch), batch["tgt_in"][:, :1]
        right = 0
        for place in range(targets.shape[1]):
            with devices.computing(self.device, self.config.precision):
                new = model(src, said, seen, None)[:, -1].argmax(-1)
            hit = new == targets[:, place]
            over = (targets[:, place + 1 :] == IGNORED).all(1)
            right += int((hit & over).sum())
            still = hit & ~over
            said = torch.cat([said, new[:, None]], 1)[still]
            src, seen, targets = src[still], seen[still], targets[still]
            if not len(said):
                break
        return right


class Language(_Task):
    """Track b: the next token of Python source, by a GPT."""

    def __init__(self, stream, config):
        super().__init__(config)
        self.stream, self.vocabulary = stream, (stream.vocab_size,)
        self.fingerprint, self.n_units = stream.fingerprint, len(stream.train)
        self.lengths = (config.seq_len,)
        for name in ("train", "val"):
            n_tokens = len(getattr(stream, name))
            if n_tokens == 0:
                raise TrainError(f"the text is empty: its {name} part has no token")
            if n_tokens <= config.seq_len and name == "train":
                raise TrainError(
                    f"seq_len {config.seq_len} is too long: the text has {n_tokens} tokens, and a sequence needs one "
                    "more than its length. Choose a smaller seq_len or more text"
                )

    def _drawn(self, step):
        return self.stream.batch(self.config.seed, step, self.config.batch_size, self.config.seq_len)

    def _inputs(self, batch):
        return batch["tokens"]

    def _targets(self, batch):
        return batch["targets"]

    def count(self, step):
        return self.config.batch_size * self.config.seq_len

    def logits(self, model, inputs):
        return model(inputs)

    def evaluate(self, model, limit=None):
        """{"bits_per_byte", "val_loss"} of the held-out text in fixed windows; of its first `limit` tokens."""
        total, n_tokens, n_bytes = 0.0, 0, 0
        with evaluating(model):
            for batch in self.stream.windows(self.config.seq_len, split="val", size=16):
                loss, count = self.loss(model, {name: tensor.to(self.device) for name, tensor in batch.items()})
                total, n_tokens = total + loss.item(), n_tokens + int(count)
                n_bytes += self.stream.bytes_of(batch["targets"].flatten())
                if limit and n_tokens >= limit:
                    break
        return {"bits_per_byte": total / math.log(2) / n_bytes, "val_loss": total / n_tokens}


@contextlib.contextmanager
def evaluating(model):
    """No gradients and eval mode; each part's own mode afterwards as it was."""
    before = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in before:
            part.training = mode
