"""One token in, logits out, in buffers that never change their size: what a CUDA graph can record and play again."""

import torch
import torch.nn.functional as F
from torch import nn


class StaticDecoder(nn.Module):
    """A pre-norm GPT of the course with a cache of fixed length; `place` says how far it is filled.

    forward(token): token (batch, 1) -> logits (batch, vocab_size), and `place` moves on. Its numbers are the model's.
    """

    def __init__(self, model, batch, max_len):
        super().__init__()
        config, weight = model.config, model.token_embedding.weight
        if not config.norm_first:
            raise ValueError("only pre-norm models are decoded here")
        self.model, self.width = model, config.d_model // config.n_heads
        heads = config.n_kv_heads or config.n_heads
        shape = (config.n_layers, batch, heads, max_len, self.width)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(shape, dtype=weight.dtype, device=weight.device))
        self.register_buffer("place", torch.zeros(1, dtype=torch.int64, device=weight.device))
        self.register_buffer("places", torch.arange(max_len, device=weight.device))

    def restart(self):
        """Forget everything; the buffers stay where they are."""
        self.place.zero_()

    def forward(self, token):
        model = self.model
        x = model.token_embedding(token) + model.positions.table[self.place]  # (B, 1, M)
        seen = (self.places <= self.place)[None, None, None]  # (1, 1, 1, max_len)
        for layer, block in enumerate(model.blocks):
            x = x + self._attended(block.attention, _norm(block.norm1, x), layer, seen)
            x = x + block.ffn.w_2(F.gelu(block.ffn.w_1(_norm(block.norm2, x))))
        logits = F.linear(_norm(model.norm, x), model.output.weight)
        self.place += 1
        return logits[:, 0]

    def _attended(self, attention, x, layer, seen):
        q, k, v = (
            project(x).unflatten(-1, (-1, self.width)).transpose(1, 2)  # (B, H, 1, D)
            for project in (attention.w_q, attention.w_k, attention.w_v)
        )
        for table, new in ((self.keys, k), (self.values, v)):
            table[layer].index_copy_(2, self.place, new)
        mixed = F.scaled_dot_product_attention(
            q, self.keys[layer], self.values[layer], attn_mask=seen, enable_gqa=q.shape[1] != k.shape[1]
        )
        return attention.w_o(mixed.transpose(1, 2).flatten(2))


def _norm(norm, x):
    """torch's kernel, in the dtype of x: the course's own computes in float32, which takes three kernels more."""
    return F.layer_norm(x, norm.gamma.shape, norm.gamma, norm.beta, norm.eps)


class Int8Linear(nn.Module):
    """Weights as int8 with a scale for each row; a compiler fuses the conversion into the product."""

    def __init__(self, linear):
        super().__init__()
        weight = linear.weight.detach()
        scale = weight.float().abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
        self.register_buffer("q", (weight.float() / scale).round().to(torch.int8))
        self.register_buffer("scale", scale[:, 0].to(weight.dtype))
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach())

    def forward(self, x):
        out = F.linear(x, self.q.to(x.dtype)) * self.scale
        return out if self.bias is None else out + self.bias


def to_int8(model):
    """Change the linear layers of the blocks in place; the table, which is also the output layer, stays."""
    for block in model.blocks:
        for parent in (block.attention, block.ffn):
            for name, layer in list(parent.named_children()):
                if isinstance(layer, nn.Linear):
                    setattr(parent, name, Int8Linear(layer))
    return model


def greedy(step, token, n_tokens):
    """Write n_tokens with step(token) -> logits. Returns (batch, n_tokens)."""
    said = []
    for _ in range(n_tokens):
        token = step(token).argmax(-1, keepdim=True)
        said.append(token.clone())
    return torch.cat(said, 1)


class Recorded:
    """A step as a CUDA graph: one call from Python starts all its kernels. Feeds its own choice back in."""

    def __init__(self, decoder, batch):
        self.decoder = decoder
        self.token = torch.zeros(batch, 1, dtype=torch.int64, device=decoder.place.device)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):  # libraries set themselves up at the first calls, which cannot be recorded
                self._step()
        torch.cuda.current_stream().wait_stream(aside)
        decoder.restart()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._step()
        decoder.restart()

    def _step(self):
        self.token.copy_(self.decoder(self.token).argmax(-1, keepdim=True))

    def write(self, first, n_tokens):
        """Start anew with the token `first` and write n_tokens. Returns (batch, n_tokens)."""
        self.decoder.restart()
        self.token.copy_(first)
        said = []
        for _ in range(n_tokens):
            self.graph.replay()
            said.append(self.token.clone())
        return torch.cat(said, 1)


def floor_seconds(n_kernels, device):
    """Seconds that a graph of so many next-to-empty kernels takes: no step with as many can be faster."""
    number = torch.zeros(1, device=device)
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        number.add_(1)
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(n_kernels):
            number.add_(1)
    from utils.measure.clock import seconds

    return seconds(graph.replay, torch.device(device), inside=20)


def kernels_of(run):
    """How many operations a call starts that are not mere views, counted by the dispatcher."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
        found = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            Counter.found += not func.is_view
            return func(*args, **(kwargs or {}))

    with Counter():
        run()
    return Counter.found
