"""Phase 6, families of models, by hurried hands: a size not handed on, a count that is off."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.bank import right, wrong
from utils import oracle

# ---------------------------------------------------------------- words hidden


def masked(upper=lambda n: n, copy=torch.clone, cuts=(0.8, 0.9), label=-100):
    def mask_tokens(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
        aside = torch.tensor([*special_ids, mask_id])
        words = torch.tensor([word for word in range(vocab_size) if word not in aside.tolist()])
        chosen = pad_mask & ~torch.isin(tokens, aside) & (torch.rand(tokens.shape, generator=generator) < p)
        u = torch.rand(tokens.shape, generator=generator)
        other = words[torch.randint(upper(len(words)), tokens.shape, generator=generator)]
        labels, inputs = torch.where(chosen, tokens, label), copy(tokens)
        inputs[chosen & (u < cuts[0])] = mask_id
        swapped = chosen & (u >= cuts[0]) & (u < cuts[1])
        inputs[swapped] = other[swapped]
        return inputs, labels

    return mask_tokens


for _name, _says, _ways in [
    ("last_word_never", "every word can be drawn: the upper end is left out already", dict(upper=lambda n: n - 1)),
    ("in_the_tokens", None, dict(copy=lambda tokens: tokens)),
    ("eighty_five", None, dict(cuts=(0.85, 0.95))),
    ("label_0", None, dict(label=0)),
]:
    _masker = masked(**_ways)
    _masker.__name__ = _name
    wrong("mask_tokens", says=_says)(_masker)


@right("mask_tokens", why="token by token, numbers drawn beforehand")
def token_by_token(tokens, pad_mask, mask_id, vocab_size, p, special_ids, generator):
    words = [word for word in range(vocab_size) if word not in {*special_ids, mask_id}]
    inputs, labels = tokens.clone(), torch.full_like(tokens, -100)
    luck = torch.rand((*tokens.shape, 2), generator=generator).tolist()
    other = torch.randint(len(words), tokens.shape, generator=generator).tolist()
    for row, column in pad_mask.nonzero().tolist():
        word, (chosen, way) = int(tokens[row, column]), luck[row][column]
        if word in words and chosen < p:
            labels[row, column] = word
            if way < 0.9:
                inputs[row, column] = mask_id if way < 0.8 else words[other[row][column]]
    return inputs, labels


# ---------------------------------------------------------------- a sentence in one vector


@wrong("mean_pool", says="nothing is added to the count: clamp it at 1")
def count_and_a_little(x, pad_mask):
    return (x * pad_mask[..., None]).sum(1) / (pad_mask.sum(1, keepdim=True) + 1e-6)


@wrong("mean_pool", says="nan_to_num hides a NaN, its gradient stays")
def hidden_nan(x, pad_mask):
    return torch.nan_to_num((x * pad_mask[..., None]).sum(1) / pad_mask.sum(1, keepdim=True))


@wrong("mean_pool")
def written_over(x, pad_mask):
    x[~pad_mask] = 0
    return x.sum(1) / pad_mask.sum(1, keepdim=True).clamp(min=1)


@right("mean_pool", why="row by row; an empty row is a sum of nothing")
def row_by_row(x, pad_mask):
    return torch.stack([row[real].sum(0) / max(1, int(real.sum())) for row, real in zip(x, pad_mask, strict=True)])


class _Verdict(nn.Module):
    """An EncoderClassifier in its parts; as it stands it is right."""

    def __init__(self, config, n_classes):
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = oracle.LearnedPositions(config.max_len, config.d_model)
        sizes = (config.n_layers, config.d_model, config.n_heads, config.d_ff)
        self.encoder = oracle.Encoder(*sizes, **self.told(config))
        self.classifier, self.p = nn.Linear(config.d_model, n_classes), config.dropout

    def told(self, config):
        return dict(norm_first=config.norm_first, dropout=config.dropout)

    def entered(self, x):
        return F.dropout(x, self.p, self.training)

    def pooled(self, y, pad_mask):
        return (y * pad_mask[..., None]).sum(1) / pad_mask.sum(1, keepdim=True).clamp(min=1)

    def forward(self, tokens, pad_mask):
        x = self.entered(self.positions(self.token_embedding(tokens)))
        return self.classifier(self.pooled(self.encoder(x, attn_mask=pad_mask[:, None, None]), pad_mask))


for _name, _says, _parts in [
    ("NormFirstAlways", "norm_first was not handed on", dict(told=lambda self, c: dict(dropout=c.dropout))),
    ("NothingHandedOn", "norm_first was not handed on", dict(told=lambda self, c: {})),
    (
        "DropoutNotHandedOn",
        "dropout was not handed on to the encoder",
        dict(told=lambda self, c: dict(norm_first=c.norm_first)),
    ),
    ("NoDropoutAtTheEntrance", "dropout follows the positions", dict(entered=lambda self, x: x)),
    (
        "DropsInEval",
        "dropout is for training: nn.Dropout, or training=self.training",
        dict(entered=lambda self, x: F.dropout(x, self.p)),
    ),
    (
        "DropsTheMean",
        "no dropout before the verdict",
        dict(pooled=lambda self, y, m: F.dropout(_Verdict.pooled(self, y, m), self.p, self.training)),
    ),
    (
        "LargestOfAll",
        "the mean, not the largest",
        dict(pooled=lambda self, y, m: y.masked_fill(~m[..., None], -torch.inf).amax(1).clamp(min=-1e9)),
    ),
]:
    wrong("EncoderClassifier", says=_says)(type(_name, (_Verdict,), _parts))
right("EncoderClassifier", why="functions for layers where there is nothing to learn")(_Verdict)


class _Decoder(nn.Module):
    """A GPT in its parts; as it stands it is right."""

    def __init__(self, config):
        super().__init__()
        self.config = c = config
        self.token_embedding = nn.Embedding(c.vocab_size, c.d_model)
        self.positions = oracle.LearnedPositions(c.max_len, c.d_model)
        sizes = (c.d_model, c.n_heads, c.d_ff)
        self.blocks = nn.ModuleList(oracle.EncoderBlock(*sizes, **self.told(c)) for _ in range(c.n_layers))
        for block in self.blocks if c.n_kv_heads not in (None, c.n_heads) else ():
            block.attention = oracle.GroupedQueryAttention(c.d_model, c.n_heads, c.n_kv_heads)
        self.norm = oracle.LayerNorm(c.d_model) if c.norm_first else nn.Identity()
        self.output = nn.Linear(c.d_model, c.vocab_size, bias=False)
        if c.tied:
            self.output.weight = self.token_embedding.weight

    def told(self, config):
        return dict(norm_first=config.norm_first, dropout=config.dropout)

    def embed(self, tokens, offset=0):
        return F.dropout(self.positions(self.token_embedding(tokens), offset), self.config.dropout, self.training)

    def head(self, x):
        return self.output(self.norm(x))

    def forward(self, tokens, pad_mask=None):
        n = tokens.shape[1]
        seen = torch.ones(n, n, dtype=torch.bool).tril()
        seen = seen if pad_mask is None else seen & pad_mask[:, None, None]
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, attn_mask=seen)
        return self.head(x)


for _name, _says, _parts in [
    ("PreNormAlways", "norm_first was not handed on", dict(told=lambda self, c: dict(dropout=c.dropout))),
    (
        "BlocksWithoutDropout",
        "dropout was not handed on to the blocks",
        dict(told=lambda self, c: dict(norm_first=c.norm_first)),
    ),
    (
        "NoDropoutAtTheEntrance",
        "dropout follows the positions",
        dict(embed=lambda self, tokens, offset=0: self.positions(self.token_embedding(tokens), offset)),
    ),
    (
        "DropsInEval",
        "dropout is for training: nn.Dropout, or training=self.training",
        dict(
            embed=lambda self, tokens, offset=0: F.dropout(
                self.positions(self.token_embedding(tokens), offset), self.config.dropout
            )
        ),
    ),
    (
        "DropsInTheHead",
        "no dropout in the head",
        dict(head=lambda self, x: self.output(F.dropout(self.norm(x), self.config.dropout, self.training))),
    ),
]:
    wrong("GPT", says=_says)(type(_name, (_Decoder,), _parts))
right("GPT", why="dropout as a function, the mask by tril")(_Decoder)


# ---------------------------------------------------------------- spans, experts, tiles


def hidden(last, order=sorted):
    def span_corrupt(tokens, spans, sentinel_ids):
        place, inputs, targets = 0, [], []
        if len(sentinel_ids) <= len(spans):
            raise ValueError("sentinels")
        for sentinel, (start, end) in zip(sentinel_ids, order(spans), strict=False):
            if not place <= start < end <= len(tokens):
                raise ValueError("spans")
            inputs, targets = [*inputs, *tokens[place:start], sentinel], [*targets, sentinel, *tokens[start:end]]
            place = end
        return [*inputs, *tokens[place:]], [*targets, last(sentinel_ids, len(spans))]

    return span_corrupt


def sorted_in_place(spans):
    spans.sort()
    return spans


for _name, _says, _ways in [
    ("the_very_last", "the last sentinel is the next one of the list", dict(last=lambda ids, n: ids[-1])),
    ("counts_down", "the last sentinel is the next one of the list", dict(last=lambda ids, n: ids[0] - n)),
    ("sorts_the_spans", None, dict(last=lambda ids, n: ids[n], order=sorted_in_place)),
]:
    _hider = hidden(**_ways)
    _hider.__name__ = _name
    wrong("span_corrupt", says=_says)(_hider)


def routed(
    chosen_if=None,
    served=lambda chosen, capacity: chosen.cumsum(0) <= capacity,
    count=lambda chosen, logits: chosen,
    learns=lambda weights: weights,
):
    def moe_route(logits, k, capacity=None):
        if not 1 <= k <= logits.shape[1] or (capacity is not None and capacity < 1):
            raise ValueError("k, or capacity")
        best = logits.topk(k)
        weights = learns(torch.zeros_like(logits).scatter(1, best.indices, best.values.softmax(-1)))
        chosen = F.one_hot(best.indices, logits.shape[1]).sum(1).bool() if chosen_if is None else chosen_if(weights)
        counted = count(chosen, logits).to(logits.dtype)
        if capacity is not None:
            weights = weights * served(chosen, capacity)
        share = counted.sum(0) / counted.sum()
        return weights, logits.shape[1] * (share * logits.softmax(-1).mean(0)).sum()

    return moe_route


for _name, _says, _ways in [
    ("weights_above_0", "chosen is chosen, though the weight rounds to 0", dict(chosen_if=lambda weights: weights > 0)),
    (
        "one_too_few",
        "the first `capacity` tokens are served: <=, not <",
        dict(served=lambda chosen, capacity: chosen.cumsum(0) < capacity),
    ),
    (
        "first_tokens_of_all",
        "an expert counts the tokens that chose it, not all",
        dict(served=lambda chosen, capacity: torch.arange(len(chosen))[:, None] < capacity),
    ),
    (
        "first_choices_counted",
        "all k choices of a token count for the balance",
        dict(count=lambda chosen, logits: F.one_hot(logits.argmax(1), logits.shape[1])),
    ),
    (
        "weights_cut_off",
        "the weights teach the router: do not cut them off",
        dict(learns=torch.Tensor.detach),
    ),
]:
    _router = routed(**_ways)
    _router.__name__ = _name
    wrong("moe_route", says=_says)(_router)
right("moe_route", why="one-hot counts, weights scattered")(routed())


def in_tiles(width=lambda q, v: q.shape[-1], more=0.0, told=lambda total: total):
    def tiled_attention(q, k, v, q_block, kv_block, causal=False):
        if min(q_block, kv_block) < 1:
            raise ValueError("block")
        outs, totals, shift = [], [], k.shape[-2] - q.shape[-2]
        for top in range(0, q.shape[-2], q_block):
            rows = q[..., top : top + q_block, :] / width(q, v) ** 0.5
            last = torch.arange(top, top + rows.shape[-2])[:, None] + shift
            best = rows.new_full((*rows.shape[:-1], 1), -torch.inf)
            total, out = torch.zeros_like(best), rows.new_zeros(*rows.shape[:-1], v.shape[-1])
            for left in range(0, k.shape[-2], kv_block):
                if causal and left > last[-1]:
                    break
                scores = rows @ k[..., left : left + kv_block, :].mT
                if causal:
                    scores = scores.masked_fill(torch.arange(left, left + scores.shape[-1]) > last, -torch.inf)
                new = torch.maximum(best, scores.amax(-1, keepdim=True))
                safe = new.masked_fill(new == -torch.inf, 0.0)
                shrink, p = (best - safe).exp(), (scores - safe).exp()
                total, best = total * shrink + p.sum(-1, keepdim=True), new
                out = out * shrink + p @ v[..., left : left + kv_block, :]
            outs.append(out / (total + more if more else total.masked_fill(total == 0, 1.0)))
            totals.append(told((best + total.log())[..., 0]))
        return torch.cat(outs, -2), torch.cat(totals, -1)

    return tiled_attention


for _name, _says, _ways in [
    ("width_of_values", "d_head is the width of queries, not of values", dict(width=lambda q, v: v.shape[-1])),
    ("sum_and_a_little", "nothing is added to the sum", dict(more=1e-6)),
    ("total_cut_off", "logsumexp has a gradient, too", dict(told=torch.Tensor.detach)),
]:
    _tiler = in_tiles(**_ways)
    _tiler.__name__ = _name
    wrong("tiled_attention", says=_says)(_tiler)
right("tiled_attention", why="a running maximum that carries its gradient")(in_tiles())
