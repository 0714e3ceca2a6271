"""Unseen answers to SelfAttention and CrossAttention: faults a weak check lets pass, and odd right ways."""

import torch
from torch import nn

from tests.bank import right, wrong

HIDDEN = float("-inf")


def _attend(q, k, v, attn_mask=None, scale=None):
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if attn_mask is None:
        return scores.softmax(-1) @ v
    empty = ~attn_mask.any(-1, keepdim=True)
    return (scores.masked_fill(~(attn_mask | empty), HIDDEN).softmax(-1) * attn_mask) @ v


class _Self(nn.Module):
    """The sound version; the answers below break it in one place."""

    def __init__(self, d_model, d_head, causal=False):
        super().__init__()
        self.causal = causal
        self.w_q, self.w_k, self.w_v = (nn.Linear(d_model, d_head) for _ in range(3))

    def seen(self, x, attn_mask):
        if not self.causal:
            return attn_mask
        past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        return past if attn_mask is None else attn_mask & past

    def forward(self, x, attn_mask=None):
        return _attend(self.w_q(x), self.w_k(x), self.w_v(x), self.seen(x, attn_mask))


# SelfAttention, wrong -----------------------------------------------------------------------------------------------


@wrong("SelfAttention", says=None)
class OneLayerTooMany(_Self):
    """Breaks "no output layer": it exists, is never used, and its parameters get no gradient."""

    def __init__(self, d_model, d_head, causal=False):
        super().__init__(d_model, d_head, causal)
        self.w_o = nn.Linear(d_head, d_head)


@wrong("SelfAttention", says=None)
class KeysWithoutBias(_Self):
    """Breaks "with bias": softmax cannot see the bias of the keys, so no value tells, the parameters do."""

    def __init__(self, d_model, d_head, causal=False):
        super().__init__(d_model, d_head, causal)
        self.w_k = nn.Linear(d_model, d_head, bias=False)


@wrong("SelfAttention", says=None)
class MaskInsteadOfCausal(_Self):
    """Breaks "both apply": a mask given by the caller replaces the causal one."""

    def seen(self, x, attn_mask):
        return super().seen(x, None) if attn_mask is None else attn_mask


@wrong("SelfAttention", says=None)
class KeepsTheFirstMask(_Self):
    """Breaks rule 6 (no memory): what may be seen is worked out once per length and kept."""

    def seen(self, x, attn_mask):
        kept = self.__dict__.setdefault("kept", {})
        if x.shape[1] not in kept:
            kept[x.shape[1]] = super().seen(x, attn_mask)
        return kept[x.shape[1]]


@wrong("SelfAttention", says=None)
class AlwaysSeesItself(_Self):
    """Breaks "both apply": the diagonal is opened even where attn_mask hides it, "to avoid NaN"."""

    def seen(self, x, attn_mask):
        seen = super().seen(x, attn_mask)
        return None if seen is None else seen | torch.eye(x.shape[1], dtype=torch.bool)


@wrong("SelfAttention", says=None)
class WritesIntoTheMask(_Self):
    """Breaks rule 6: `&=` puts the causal mask into the caller's mask."""

    def seen(self, x, attn_mask):
        seen = super().seen(x, attn_mask)
        if self.causal and attn_mask is not None and attn_mask.shape == seen.shape:
            attn_mask &= seen
        return seen


@wrong("SelfAttention", says=None)
class OneMaskForTheBatch(_Self):
    """Breaks rule 7 (masks differ between batch rows): hidden for one sentence is hidden for all."""

    def seen(self, x, attn_mask):
        seen = super().seen(x, attn_mask)
        return seen if seen is None or seen.ndim == 2 else seen.all(0, keepdim=True)


@wrong("SelfAttention", says=None)
class MaskWithAHeadAxis(_Self):
    """Breaks the shape: a mask of three axes is given a head axis, as if the scores had one."""

    def seen(self, x, attn_mask):
        seen = super().seen(x, attn_mask)
        return seen if seen is None or seen.ndim == 2 else seen.unsqueeze(1)


@wrong("SelfAttention", says=None)
class SwitchesToEval(_Self):
    """Breaks rule 6: the train/eval flag is changed by a call."""

    def forward(self, x, attn_mask=None):
        self.eval()
        return super().forward(x, attn_mask)


@wrong("SelfAttention", says=None)
class SinglePrecision(_Self):
    """Breaks rule 4: queries and keys meet in float32, and only the dtype comes back."""

    def forward(self, x, attn_mask=None):
        q, k, v = (layer(x).float() for layer in (self.w_q, self.w_k, self.w_v))
        return _attend(q, k, v, self.seen(x, attn_mask)).to(x.dtype)


@wrong("SelfAttention", says=None)
class ComesWithItsWeights(_Self):
    """Breaks "→ (batch, seq_len, d_head)": a pair of output and queries."""

    def forward(self, x, attn_mask=None):
        return super().forward(x, attn_mask), self.w_q(x)


@wrong("SelfAttention", says=None)
class FusedAndForgetful(nn.Module):
    """Breaks rule 8: `load_weights` fills the matrix and leaves the biases as they were drawn."""

    def __init__(self, d_model, d_head, causal=False):
        super().__init__()
        self.causal, self.w_qkv = causal, nn.Linear(d_model, 3 * d_head)

    def load_weights(self, weights):
        with torch.no_grad():
            self.w_qkv.weight.copy_(torch.cat([weights[f"w_{name}.weight"] for name in "qkv"]))

    def forward(self, x, attn_mask=None):
        return _attend(*self.w_qkv(x).chunk(3, -1), _Self.seen(self, x, attn_mask))


@wrong("SelfAttention", says=None)
class OneTokenIsItsValue(_Self):
    """Breaks rule 7 at length 1: a single token gets its value even if the mask hides it."""

    def forward(self, x, attn_mask=None):
        if x.shape[1] == 1:
            return _attend(self.w_q(x), self.w_k(x), self.w_v(x))
        return super().forward(x, attn_mask)


# SelfAttention, right -----------------------------------------------------------------------------------------------


@right("SelfAttention", why="one convolution of width 1 over the sentence makes q, k and v; load_weights fills it")
class ByConvolution(nn.Module):
    def __init__(self, d_model, d_head, causal=False):
        super().__init__()
        self.causal, self.mix = causal, nn.Conv1d(d_model, 3 * d_head, 1)

    def load_weights(self, weights):
        with torch.no_grad():
            self.mix.weight.copy_(torch.cat([weights[f"w_{n}.weight"] for n in "qkv"]).unsqueeze(-1))
            self.mix.bias.copy_(torch.cat([weights[f"w_{n}.bias"] for n in "qkv"]))

    def forward(self, x, attn_mask=None):
        return _attend(*self.mix(x.mT).mT.chunk(3, -1), _Self.seen(self, x, attn_mask))


@right("SelfAttention", why="bias is the last row of one matrix, every token has a 1 at its end")
class HomogeneousTokens(nn.Module):
    def __init__(self, d_model, d_head, causal=False):
        super().__init__()
        self.causal, self.table = causal, nn.Parameter(torch.randn(3, d_model + 1, d_head))

    def load_weights(self, weights):
        rows = [torch.cat([weights[f"w_{n}.weight"].T, weights[f"w_{n}.bias"][None]]) for n in "qkv"]
        self.table.data.copy_(torch.stack(rows))

    def forward(self, x, attn_mask=None):
        ones = torch.ones_like(x[..., :1])
        q, k, v = torch.einsum("btm,nmd->nbtd", torch.cat([x, ones], -1), self.table)
        return _attend(q, k, v, _Self.seen(self, x, attn_mask))


@right("SelfAttention", why="a causal step takes the prefix of the sentence, so no causal mask is ever made")
class PrefixByPrefix(_Self):
    def forward(self, sentence, attn_mask=None):
        q, k, v = self.w_q(sentence), self.w_k(sentence), self.w_v(sentence)
        size = (*q.shape[:2], q.shape[1])
        mask = torch.ones(size, dtype=torch.bool) if attn_mask is None else attn_mask.expand(size)
        rows = []
        for t in range(q.shape[1]):
            end = t + 1 if self.causal else q.shape[1]
            rows.append(_attend(q[:, t : t + 1], k[:, :end], v[:, :end], mask[:, t : t + 1, :end]))
        return torch.cat(rows, 1)


class _Cross(nn.Module):
    """The sound version; the answers below break it in one place."""

    def __init__(self, d_model, d_memory, d_head):
        super().__init__()
        self.w_q = nn.Linear(d_model, d_head)
        self.w_k, self.w_v = nn.Linear(d_memory, d_head), nn.Linear(d_memory, d_head)

    def forward(self, x, memory, attn_mask=None):
        return _attend(self.w_q(x), self.w_k(memory), self.w_v(memory), attn_mask)


# CrossAttention, wrong ----------------------------------------------------------------------------------------------


@wrong("CrossAttention", says=None)
class FrozenMemory(_Cross):
    """Breaks "gradient of x, memory and all parameters": memory is detached, as if it were finished."""

    def forward(self, x, memory, attn_mask=None):
        return super().forward(x, memory.detach(), attn_mask)


@wrong("CrossAttention", says=None)
class RemembersItsMemory(_Cross):
    """Breaks rule 6 (no memory): keys and values of the first memory of a size serve all later ones."""

    def forward(self, x, memory, attn_mask=None):
        kept = self.__dict__.setdefault("kept", {})
        if memory.shape not in kept:
            kept[memory.shape] = self.w_k(memory), self.w_v(memory)
        return _attend(self.w_q(x), *kept[memory.shape], attn_mask)


@wrong("CrossAttention", says=None)
class ScaledByTheMemory(_Cross):
    """Breaks the scale 1/√d_head (as in SelfAttention): divides by √d_memory."""

    def forward(self, x, memory, attn_mask=None):
        scale = memory.shape[-1] ** -0.5
        return _attend(self.w_q(x), self.w_k(memory), self.w_v(memory), attn_mask, scale)


@wrong("CrossAttention", says=None)
class MeanIfAllIsHidden(_Cross):
    """Breaks rule 7 (an empty row gives zeros): with all memory hidden comes the mean of the values."""

    def forward(self, x, memory, attn_mask=None):
        if attn_mask is not None:
            attn_mask = attn_mask | ~attn_mask.any(-1, keepdim=True)
        return super().forward(x, memory, attn_mask)


@wrong("CrossAttention", says=None)
class OneQueryLosesItsAxis(_Cross):
    """Breaks "(batch, q_len, d_head)" for one query: the axis is squeezed away."""

    def forward(self, x, memory, attn_mask=None):
        return super().forward(x, memory, attn_mask).squeeze(1)


@wrong("CrossAttention", says=None)
class MemoryKeysWithoutBias(_Cross):
    """Breaks "with bias": softmax cannot see the bias of the keys, so no value tells, the parameters do."""

    def __init__(self, d_model, d_memory, d_head):
        super().__init__(d_model, d_memory, d_head)
        self.w_k = nn.Linear(d_memory, d_head, bias=False)


@wrong("CrossAttention", says=None)
class BiasOfTheValuesLost(_Cross):
    """Breaks "with bias": w_v has one, but forward multiplies by the weight alone."""

    def forward(self, x, memory, attn_mask=None):
        return _attend(self.w_q(x), self.w_k(memory), memory @ self.w_v.weight.T, attn_mask)


@wrong("CrossAttention", says=None)
class PaddingMasksOnly(_Cross):
    """Breaks "Mask to (batch, q_len, kv_len)": the mask of the first query serves all queries."""

    def forward(self, x, memory, attn_mask=None):
        return super().forward(x, memory, None if attn_mask is None else attn_mask[..., :1, :])


@wrong("CrossAttention", says=None)
class CausalFromTheEnd(_Cross):
    """Breaks "nothing causal" only where the memory is shorter than the sentence."""

    def forward(self, x, memory, attn_mask=None):
        q_len, kv_len = x.shape[1], memory.shape[1]
        if q_len > kv_len:
            past = torch.ones(q_len, kv_len, dtype=torch.bool).tril()
            attn_mask = past if attn_mask is None else attn_mask & past
        return super().forward(x, memory, attn_mask)


# CrossAttention, right ----------------------------------------------------------------------------------------------


@right("CrossAttention", why="queries are carried into the memory's space, values are projected after mixing")
class NeverMakesKeys(_Cross):
    def forward(self, x, memory, attn_mask=None):
        q = self.w_q(x) / self.w_q.out_features**0.5
        scores = (q @ self.w_k.weight) @ memory.mT + q @ self.w_k.bias[:, None]
        if attn_mask is None:
            weights = scores.softmax(-1)
        else:
            empty = ~attn_mask.any(-1, keepdim=True)
            weights = scores.masked_fill(~(attn_mask | empty), HIDDEN).softmax(-1) * attn_mask
        return (weights @ memory) @ self.w_v.weight.T + weights.sum(-1, keepdim=True) * self.w_v.bias


@right("CrossAttention", why="parameters stand in a list, stored (in, out); load_weights turns them")
class StoredTheOtherWay(nn.Module):
    def __init__(self, d_model, d_memory, d_head):
        super().__init__()
        self.tables = nn.ParameterList([torch.randn(d, d_head) for d in (d_model, d_memory, d_memory)])
        self.shifts = nn.Parameter(torch.zeros(3, d_head))

    @torch.no_grad()
    def load_weights(self, weights):
        for i, name in enumerate("qkv"):
            self.tables[i].copy_(weights[f"w_{name}.weight"].mT)
            self.shifts[i].copy_(weights[f"w_{name}.bias"])

    def forward(self, x, memory, attn_mask=None):
        inputs = zip((x, memory, memory), self.tables, self.shifts, strict=True)
        return _attend(*(tokens @ table + shift for tokens, table, shift in inputs), attn_mask)
