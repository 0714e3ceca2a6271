"""mean_pool and EncoderClassifier: wrong solutions and unusual right ones."""

import torch
from torch import nn

from tests.bank import right, wrong
from utils import oracle

# ---------------------------------------------------------------- mean_pool


@wrong("mean_pool", says="divide by the real tokens")
def padded_length(x, pad_mask):
    return x.masked_fill(~pad_mask[..., None], 0.0).sum(1) / x.shape[1]


@wrong("mean_pool", says="a sentence of padding gives zeros, not NaN")
def nan_for_nothing(x, pad_mask):
    return (x * pad_mask[..., None]).sum(1) / pad_mask.sum(1, keepdim=True)


@wrong("mean_pool", says="pads are in the mean")
def everything(x, pad_mask):
    return x.mean(1)


@wrong("mean_pool", says="that is the sum")
def total(x, pad_mask):
    return (x * pad_mask[..., None]).sum(1)


@wrong("mean_pool", says="True means real token")
def inverted(x, pad_mask):
    pads = ~pad_mask
    return (x * pads[..., None]).sum(1) / pads.sum(1, keepdim=True).clamp(min=1)


@wrong("mean_pool", says="pads are in the sum")
def sum_with_pads(x, pad_mask):
    return x.sum(1) / pad_mask.sum(1, keepdim=True).clamp(min=1)


@wrong("mean_pool")
def epsilon(x, pad_mask):
    return (x * pad_mask[..., None]).sum(1) / (pad_mask.sum(1, keepdim=True) + 1e-5)


@wrong("mean_pool")
def double_always(x, pad_mask):
    return (x.double() * pad_mask[..., None]).sum(1) / pad_mask.sum(1, keepdim=True).clamp(min=1)


@wrong("mean_pool")
def without_gradient(x, pad_mask):
    return (x.detach() * pad_mask[..., None]).sum(1) / pad_mask.sum(1, keepdim=True).clamp(min=1)


@wrong("mean_pool")
def until_the_first_pad(x, pad_mask):
    first = pad_mask.long().cumprod(1).bool()
    return (x * first[..., None]).sum(1) / first.sum(1, keepdim=True).clamp(min=1)


@wrong("mean_pool")
def keeps_the_axis(x, pad_mask):
    return (x * pad_mask[..., None]).sum(1, keepdim=True) / pad_mask.sum(1).clamp(min=1)[:, None, None]


@wrong("mean_pool")
def writes_into_x(x, pad_mask):
    x[~pad_mask] = 0
    return x.sum(1) / pad_mask.sum(1, keepdim=True).clamp(min=1)


@right("mean_pool", why="where and clamp")
def with_where(x, pad_mask):
    real = pad_mask[:, :, None]
    return torch.where(real, x, 0.0).sum(1) / real.sum(1).clamp(min=1)


@right("mean_pool", why="a product of matrices")
def as_a_product(x, pad_mask):
    weights = pad_mask.to(x.dtype)
    weights = weights / weights.sum(1, keepdim=True).clamp_min(1)
    return (weights[:, None, :] @ x)[:, 0]


@right("mean_pool", why="row by row")
def row_by_row(x, pad_mask):
    rows = [one[real].mean(0) if real.any() else one.sum(0) * 0 for one, real in zip(x, pad_mask, strict=True)]
    return torch.stack(rows)


@right("mean_pool", why="torch.where on the divisor")
def safe_divisor(x, pad_mask):
    count = pad_mask.sum(1)
    count = torch.where(count == 0, 1, count)
    return torch.einsum("bsd,bs->bd", x, pad_mask.to(x.dtype)) / count[:, None]


# ---------------------------------------------------------------- EncoderClassifier


class _Classifier(nn.Module):
    """Right as it stands; each wrong solution changes one method."""

    def __init__(self, config, n_classes):
        super().__init__()
        self.width = config.d_model
        self.token_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.positions = oracle.LearnedPositions(config.max_len, config.d_model)
        sizes = (config.n_layers, config.d_model, config.n_heads, config.d_ff)
        self.encoder = oracle.Encoder(*sizes, norm_first=config.norm_first, dropout=config.dropout)
        self.classifier = nn.Linear(config.d_model, n_classes)
        self.drop = nn.Dropout(config.dropout)

    def enter(self, tokens):
        return self.drop(self.positions(self.token_embedding(tokens)))

    def mask(self, pad_mask):
        return pad_mask[:, None, None, :]

    def pool(self, y, pad_mask):
        return (y * pad_mask[..., None]).sum(1) / pad_mask.sum(1, keepdim=True).clamp(min=1)

    def forward(self, tokens, pad_mask):
        y = self.encoder(self.enter(tokens), attn_mask=self.mask(pad_mask))
        return self.classifier(self.pool(y, pad_mask))


@wrong("EncoderClassifier", says="pads are in the mean")
class MeanOfAll(_Classifier):
    def pool(self, y, pad_mask):
        return y.mean(1)


@wrong("EncoderClassifier", says="an encoder looks both ways")
class Causal(_Classifier):
    def mask(self, pad_mask):
        length = pad_mask.shape[1]
        return pad_mask[:, None, None, :] & torch.ones(length, length, dtype=torch.bool).tril()


@wrong("EncoderClassifier", says="average the real tokens")
class FirstToken(_Classifier):
    def pool(self, y, pad_mask):
        return y[:, 0]


@wrong("EncoderClassifier", says="average the real tokens")
class LastRealToken(_Classifier):
    def pool(self, y, pad_mask):
        return y[torch.arange(len(y)), pad_mask.sum(1) - 1]


@wrong("EncoderClassifier", says="attention must not read pads")
class PadsRead(_Classifier):
    def mask(self, pad_mask):
        return None


@wrong("EncoderClassifier", says="return logits")
class Probabilities(_Classifier):
    def forward(self, tokens, pad_mask):
        return super().forward(tokens, pad_mask).softmax(-1)


@wrong("EncoderClassifier", says="no √d_model here")
class Scaled(_Classifier):
    def enter(self, tokens):
        return self.drop(self.positions(self.token_embedding(tokens) * self.width**0.5))


@wrong("EncoderClassifier", says="positions are missing")
class NoPositions(_Classifier):
    def enter(self, tokens):
        return self.drop(self.token_embedding(tokens))


@wrong("EncoderClassifier")
class InputNotDropped(_Classifier):
    def enter(self, tokens):
        return self.positions(self.token_embedding(tokens))


@wrong("EncoderClassifier")
class LargestInsteadOfMean(_Classifier):
    def pool(self, y, pad_mask):
        return y.masked_fill(~pad_mask[..., None], -1e9).amax(1)


@wrong("EncoderClassifier")
class PooledWithoutGradient(_Classifier):
    def pool(self, y, pad_mask):
        return super().pool(y.detach(), pad_mask)


@wrong("EncoderClassifier")
class PreNormAlways(_Classifier):
    def __init__(self, config, n_classes):
        super().__init__(config, n_classes)
        for block in self.encoder.blocks:
            block.norm_first = True


@right("EncoderClassifier", why="the parts put together")
class PlainClassifier(_Classifier):
    pass


@right("EncoderClassifier", why="each token is classified, then the verdicts are averaged")
class VerdictsAveraged(_Classifier):
    def forward(self, tokens, pad_mask):
        y = self.encoder(self.enter(tokens), attn_mask=self.mask(pad_mask))
        share = pad_mask.to(y.dtype) / pad_mask.sum(1, keepdim=True).clamp(min=1)
        return torch.einsum("bsd,bs,cd->bc", y, share, self.classifier.weight) + self.classifier.bias


@right("EncoderClassifier", why="a mask of full size")
class FullMask(_Classifier):
    def mask(self, pad_mask):
        return pad_mask[:, None, None, :].expand(-1, 1, pad_mask.shape[1], -1)


@right("EncoderClassifier", why="names of its own and load_weights")
class OwnNames(nn.Module):
    def __init__(self, config, n_classes):
        super().__init__()
        self.inner = _Classifier(config, n_classes)

    def load_weights(self, weights):
        own = dict(self.inner.named_parameters())
        for name, value in weights.items():
            own[name].copy_(value)

    def forward(self, tokens, pad_mask):
        return self.inner(tokens, pad_mask)
