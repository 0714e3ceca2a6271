"""QuantLinear: wrong solutions and unusual right ones."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.bank import right, wrong


def reduced(weight, bits, by_row=True):
    largest = weight.abs().amax(1, keepdim=True) if by_row else weight.abs().max().expand(len(weight), 1)
    scale = largest / (2 ** (bits - 1) - 1)
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return (weight / scale).round().to(torch.int8), scale.clone()


class _Layer(nn.Module):
    by_row = True

    def __init__(self, linear, bits=8):
        super().__init__()
        self.keep(linear, *reduced(linear.weight.detach(), bits, self.by_row))

    def keep(self, linear, q, scale):
        self.register_buffer("q", q)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", linear.bias.detach().clone() if linear.bias is not None else None)

    def forward(self, x):
        return F.linear(x, self.q.to(x.dtype) * self.scale.to(x.dtype), self.bias)


right("QuantLinear", why="F.linear on dequantised weights")(_Layer)


@wrong("QuantLinear", says="memory was not saved")
class KeepsWeights(_Layer):
    def keep(self, linear, q, scale):
        super().keep(linear, q, scale)
        self.weight = q * scale

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype), self.bias)


@wrong("QuantLinear", says="memory was not saved")
class KeepsWeightsInAList(_Layer):
    def keep(self, linear, q, scale):
        super().keep(linear, q, scale)
        self.cache = {"weights": [linear.weight.detach().clone()]}


@wrong("QuantLinear", says="memory was not saved")
class KeepsTheLayer(_Layer):
    def keep(self, linear, q, scale):
        super().keep(linear, q, scale)
        self.hidden = (linear,)


@wrong("QuantLinear", says="no parameters: buffers")
class KeepsTheLayerInside(_Layer):
    def keep(self, linear, q, scale):
        super().keep(linear, q, scale)
        self.linear = linear


@wrong("QuantLinear", says="no parameters: buffers")
class ScaleIsLearned(_Layer):
    def keep(self, linear, q, scale):
        super().keep(linear, q, scale)
        del self.scale
        self.scale = nn.Parameter(scale)


@wrong("QuantLinear", says="the bias was lost")
class NoBias(_Layer):
    def forward(self, x):
        return F.linear(x, self.q.to(x.dtype) * self.scale.to(x.dtype))


@wrong("QuantLinear", says="the bias is not scaled")
class ScaledBias(_Layer):
    def forward(self, x):
        return F.linear(x, self.q.to(x.dtype), self.bias) * self.scale[:, 0]


@wrong("QuantLinear", says="one scale for each output row")
class OneScale(_Layer):
    by_row = False


@wrong("QuantLinear", says="the scale was forgotten")
class NoScale(_Layer):
    def forward(self, x):
        return F.linear(x, self.q.to(x.dtype), self.bias)


@wrong("QuantLinear", says="bits was ignored")
class AlwaysEight(_Layer):
    def __init__(self, linear, bits=8):
        super().__init__(linear, 8)


@wrong("QuantLinear", says="the layer that was handed over was changed")
class WritesBack(_Layer):
    def keep(self, linear, q, scale):
        super().keep(linear, q, scale)
        with torch.no_grad():
            linear.weight.copy_(q * scale)


@wrong("QuantLinear")
class CutsTheGradient(_Layer):
    def forward(self, x):
        return super().forward(x.detach()) + 0 * x.sum()


@right("QuantLinear", why="the output is scaled, not the weight")
class ScalesTheOutput(_Layer):
    def forward(self, x):
        out = (x @ self.q.to(x.dtype).T) * self.scale.flatten()
        return out + self.bias if self.bias is not None else out


@right("QuantLinear", why="row after row")
class RowAfterRow(_Layer):
    def forward(self, x):
        rows = [(x * row.to(x.dtype)).sum(-1) * scale for row, scale in zip(self.q, self.scale[:, 0], strict=True)]
        out = torch.stack(rows, -1)
        return out if self.bias is None else out + self.bias


@right("QuantLinear", why="a bias of zeros where there is none")
class Plain(nn.Module):
    def __init__(self, linear, bits=8):
        super().__init__()
        q, scale = reduced(linear.weight.data, bits)
        self.register_buffer("q", q)
        self.register_buffer("scale", scale)
        bias = torch.zeros(len(q)) if linear.bias is None else linear.bias.data.clone()
        self.register_buffer("bias", bias)

    def forward(self, x):
        return torch.einsum("...i,oi->...o", x, self.q.to(x.dtype) * self.scale.to(x.dtype)) + self.bias.to(x.dtype)
