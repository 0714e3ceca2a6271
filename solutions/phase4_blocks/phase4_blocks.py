# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Phase 4 · Blocks
#
# Attention lets tokens read each other. What makes a Transformer of it is plainer: a layer that thinks, a way round
# each layer, and a norm that keeps the numbers in bounds. You build each, stack them, and end with a whole
# encoder-decoder model.
#
# | section | you build | minutes | path |
# |---|---|---|---|
# | [4.1 After attention](#4.1-After-attention) | – | 3 | core |
# | [4.2 One scale for every token](#4.2-One-scale-for-every-token) | `layer_norm` `LayerNorm` | 23 | core |
# | [4.3 The norm backwards](#4.3-The-norm-backwards) | `layer_norm_backward` | 28 | more |
# | [4.4 Without centring](#4.4-Without-centring) | `RMSNorm` | 10 | core |
# | [4.5 A soft switch](#4.5-A-soft-switch) | `gelu` | 12 | more |
# | [4.6 Each token by itself](#4.6-Each-token-by-itself) | `FeedForward` `SwiGLU` | 21 | core |
# | [4.7 A way round](#4.7-A-way-round) | `Residual` | 17 | core |
# | [4.8 The encoder block](#4.8-The-encoder-block) | `EncoderBlock` | 22 | core |
# | [4.9 The decoder block](#4.9-The-decoder-block) | `DecoderBlock` | 27 | core |
# | [4.10 Stacks](#4.10-Stacks) | `Encoder` `Decoder` | 20 | core |
# | [4.11 From words to words](#4.11-From-words-to-words) | `Transformer` | 27 | core |
# | [4.12 A quiet start](#4.12-A-quiet-start) | `init_weights` | 18 | more |
# | [4.13 What reaches the first block](#4.13-What-reaches-the-first-block) | `gradient_norms` | 16 | more |
# | [4.14 Count it](#4.14-Count-it) | `count_parameters` `residual_census` | 28 | more |
# | [4.15 Twelve questions](#4.15-Twelve-questions) | `reads_hidden` | 24 | more |
# | [4.16 Repair by checklist](#4.16-Repair-by-checklist) | `FusedSelfAttention` | 24 | more |
# | [4.17 Every number of the notes](#4.17-Every-number-of-the-notes) | – | 6 | more |
# | [4.18 Say it aloud](#4.18-Say-it-aloud) | three answers, recap | 10 | core |
#
# The core path is about three hours; minutes are estimates until learners have been timed. You can stop after any
# section. To come back, run the setup cell and the cells you have solved.

# %% [markdown]
# What you built before is used here. A part that is not finished there is lent by the course, and the setup cell says
# so. As always: **rows are tokens**, and **a mask is `True` where looking is allowed**.

# %% tags=["setup"]
import math

import torch
import torch.nn.functional as F
from torch import nn

from utils import check, notes, plots, widgets
from utils.config import ModelConfig
from utils.debugging import checklist
from utils.lesson import attempt, need, predict, reveal, show
from utils.mycode import mine

torch.set_printoptions(precision=3, sci_mode=False)

sinusoidal_positions = mine("sinusoidal_positions")
causal_mask, combine_masks, padding_mask = map(mine, ("causal_mask", "combine_masks", "padding_mask"))
attention_weights, MultiHeadAttention = map(mine, ("attention_weights", "MultiHeadAttention"))

# %% [markdown]
# ---
# ## 4.1 After attention
# *core · about 3 min*
#
# Suppose a model were nothing but attention. Each output is an average of values, so no output can lie outside what the
# values span. Stack a few such layers and see what becomes of eight different tokens:

# %%
torch.manual_seed(0)
x = torch.randn(8, 16)
for layer in range(5):
    spread = (x - x.mean(0)).norm() / x.norm()
    print(f"after {layer} layers of averaging, tokens differ by {spread:.3f} of their size")
    x = (x @ x.T / 8).softmax(-1) @ x

# %% [markdown]
# They grow alike: attention alone forgets who was who. (It is not "merely linear", though. The weights depend on the
# tokens, so doubling `x` does not double the output. What is missing is a nonlinearity *per token*.) Three parts mend
# this, and every Transformer has them:
#
# 1. a **feed-forward layer**, which works on each token by itself;
# 2. a **residual**: each part *adds* to the token instead of replacing it;
# 3. a **norm**, which keeps those sums from growing without end.

# %% [markdown]
# ---
# ## 4.2 One scale for every token
# *core · about 23 min*
#
# After a few sums one token may be large and another small, and a matrix that fits one misfits the other. Layer norm
# brings each token to mean 0 and variance 1, then lets two learned vectors rescale all tokens alike:
#
# > **(x − mean) / √(variance + ε) · γ + β**, over the features of one token
#
# Divide the variance by `d_model`, not by `d_model − 1`. And why is ε there, a small number such as 0.00001?

# %%
predict("constant-token", "All features of a token are 3.0. Without ε, layer norm gives…",
        ["zeros", "NaN", "ones"])

# %%
token = torch.full((4,), 3.0)
print((token - token.mean()) / token.var(correction=0).sqrt())
reveal("constant-token", "NaN", "0 / 0. Padding and dead features do produce such tokens.")

# %% [markdown]
# Half precision has a trap of its own: numbers end at 65,504, and 300² is beyond it.

# %%
print("300 squared in float16:", torch.tensor(300.0).half() ** 2)

# %% [markdown]
# ### Exercise 4.2a · `layer_norm` · core · about 12 min
# - **Build** the formula for any leading axes. Half precision is computed in float32 and returned as it came.
# - **Allowed** `mean`, `var`, `sqrt`. **Not allowed** torch's own norms.
# - **Done when** the check below passes. It looks at gradients, too.
#
# <details><summary>Hint 1 · where</summary>Which axis holds one token's features? Keep it as an axis of length 1, so
# that it broadcasts.</details>
# <details><summary>Hint 2 · what</summary><code>var</code> divides by n − 1 unless you say
# <code>correction=0</code>. ε is added before the root.</details>
# <details><summary>Hint 3 · how</summary>Refuse wrong shapes; <code>wide = x.float()</code> if x is half;
# <code>centred / (variance + eps).sqrt() * gamma + beta</code>; <code>.to(x.dtype)</code>.</details>

# %% exercise="layer_norm"
def layer_norm(x, gamma, beta, eps):
    """Bring every token to mean 0 and variance 1, then scale and shift.

    x (…, d_model); gamma, beta (d_model,); eps: added to the variance, under the root
    Returns shape and dtype of x; half precision is computed in float32.
    Raises ValueError if gamma or beta has another shape.
    Paper: Ba, Kiros and Hinton 2016, §3.
    """
    ### BEGIN SOLUTION
    if gamma.shape != x.shape[-1:] or beta.shape != x.shape[-1:]:
        raise ValueError(f"gamma and beta must have shape ({x.shape[-1]},)")
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    centred = wide - wide.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)  # (…, 1)
    out = centred / (variance + eps).sqrt() * gamma + beta
    return out.to(x.dtype)
    ### END SOLUTION

# %% check="layer_norm"
check(layer_norm, points=4)

# %% [markdown]
# **Look.** The notes norm one token by hand. Mean and deviations are right; then one slip travels on. Two assertions,
# mean 0 and variance 1, would have caught it:

# %% tags=["demo"]
with need("layer_norm"):
    ex = notes.example("000-layernorm-z1")
    token = torch.tensor(ex.inputs["x"]).double()
    normed = layer_norm(token, torch.ones(4).double(), torch.zeros(4).double(), 0.0)
    print(ex.compare(normed))
    printed = torch.tensor(notes.example("000-layernorm-z1-unit-variance").inputs["x"])
    print(f"theirs has variance {printed.var(correction=0):.3f}, yours {normed.var(correction=0):.3f}")

# %% tags=["demo"]
with need("layer_norm"):
    ones, zeros = torch.ones(4).double(), torch.zeros(4).double()
    gap = layer_norm(3 * token + 5, ones, zeros, 0.0) - layer_norm(token, ones, zeros, 0.0)
    print("LN(3x + 5) − LN(x) =", gap)

# %% [markdown] reflect="layer_norm"
# "γ and β let the network bring back what the norm removed": the last line shows what it cannot bring back. Whose γ is it,
# one token's or everyone's? Your sentence:

# %% [markdown]
# ### Exercise 4.2b · `LayerNorm` · core · about 8 min
# - **Build** the module: parameters `gamma` (ones) and `beta` (zeros), attribute `eps`.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Parameters are made in <code>__init__</code>, used in
# <code>forward</code>.</details>
# <details><summary>Hint 2 · what</summary>A plain tensor is not learned; wrap it in
# <code>nn.Parameter</code>.</details>
# <details><summary>Hint 3 · how</summary><code>return layer_norm(x, self.gamma, self.beta, self.eps)</code></details>

# %% exercise="LayerNorm"
class LayerNorm(nn.Module):
    """Layer norm with a learned scale and shift.

    x (…, d_model) -> the same shape and dtype. Parameters: gamma (ones), beta (zeros), both (d_model,).
    Promises: nothing is remembered between calls; train and eval give the same.
    """

    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        ### BEGIN SOLUTION
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.beta = nn.Parameter(torch.zeros(d_model))
        self.eps = eps
        ### END SOLUTION

    def forward(self, x):
        ### BEGIN SOLUTION
        return layer_norm(x, self.gamma, self.beta, self.eps)
        ### END SOLUTION

# %% check="LayerNorm"
check(LayerNorm, points=2)

# %%
predict("batch-or-layer", "Another sentence in the batch is replaced. The normed first sentence changes with…",
        ["batch norm", "layer norm", "both"])

# %% tags=["demo"]
with need("LayerNorm"):
    torch.manual_seed(0)
    batch, other = torch.randn(3, 8), torch.randn(3, 8)
    other[0] = batch[0]
    for name, norm in (("layer norm", LayerNorm(8)), ("batch norm", nn.BatchNorm1d(8))):
        print(f"{name}: first row changes by {(norm(batch)[0] - norm(other)[0]).abs().max():.3f}")
    reveal("batch-or-layer", "batch norm",
           "Layer norm sees one token; batch norm sees whoever sits beside it, padding included.")

# %% [markdown] reflect="LayerNorm"
# Batch statistics are not meaningless, as some notes have it. Name two things that make them awkward for text. Your
# sentence:

# %% [markdown]
# ---
# ## 4.3 The norm backwards
# *more · about 28 min*
#
# Write `z` for the normed token, `s` for its deviation `√(variance + ε)`, and `g = grad_out · γ`. It is tempting to say
# that `x` was divided by `s`, so the slope is `g / s`. But mean and variance are made of `x` as well. Compare:

# %%
torch.manual_seed(0)
x = torch.randn(6).double().requires_grad_()
up = torch.randn(6).double()
slope, = torch.autograd.grad(F.layer_norm(x, (6,), eps=0.0), x, up)
print("g / s   ", up / x.detach().std(correction=0))
print("measured", slope)
z = ((x - x.mean()) / x.std(correction=0)).detach()
print(f"the measured slope sums to {slope.sum():.1e}, its share along z is {(slope * z).sum():.1e}")

# %% [markdown]
# Two sums vanish: moving all features alike changes nothing (the mean is taken out), and stretching changes nothing
# (the variance is taken out). So `g` loses two of its parts, its mean and its share along `z`:
#
# > **dx = ( g − mean(g) − z · mean(g · z) ) / s**
#
# ### Exercise 4.3 · `layer_norm_backward` · more · about 25 min
# - **Build** `dx`, `dgamma`, `dbeta` by hand. `gamma` and `beta` serve every token, so their gradients are sums over all
#   tokens.
# - **Not allowed** autograd.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Means run over one token's features; sums for <code>dgamma</code> and
# <code>dbeta</code> run over everything else.</details>
# <details><summary>Hint 2 · what</summary><code>out = z · gamma + beta</code>, so <code>dgamma</code> collects
# <code>grad_out · z</code>.</details>
# <details><summary>Hint 3 · how</summary>Recompute z and s as in the forward pass. To sum over all tokens:
# <code>(grad_out * z).reshape(-1, d_model).sum(0)</code>.</details>

# %% exercise="layer_norm_backward"
def layer_norm_backward(grad_out, x, gamma, eps):
    """The gradients of layer_norm, by hand.

    grad_out, x (…, d_model); gamma (d_model,)
    Returns dx (…, d_model), dgamma and dbeta (d_model,). Arguments stay as they were.
    """
    ### BEGIN SOLUTION
    d_model = x.shape[-1]
    centred = x - x.mean(-1, keepdim=True)
    s = (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    z, g = centred / s, grad_out * gamma
    dx = (g - g.mean(-1, keepdim=True) - z * (g * z).mean(-1, keepdim=True)) / s
    dgamma = (grad_out * z).reshape(-1, d_model).sum(0)
    return dx, dgamma, grad_out.reshape(-1, d_model).sum(0)
    ### END SOLUTION

# %% check="layer_norm_backward"
check(layer_norm_backward, points=5)

# %% tags=["demo"]
with need("layer_norm_backward"):
    dx, _, _ = layer_norm_backward(up, x.detach(), torch.ones(6).double(), 0.0)
    print(f"largest difference from torch: {(dx - slope).abs().max():.1e}")

# %% [markdown] reflect="layer_norm_backward"
# A token that is ten times larger gets a `dx` ten times smaller. Why, and what does that do for training? Your sentence:

# %% [markdown]
# ---
# ## 4.4 Without centring
# *core · about 10 min*
#
# Llama and its relatives leave the mean alone and divide by the root of the mean *square*. One sum fewer, no β:
#
# > **x / √(mean(x²) + ε) · γ**

# %%
predict("rms-shift", "Add 5 to every feature of a token. RMSNorm of it…",
        ["stays the same", "changes"])

# %% [markdown]
# ### Exercise 4.4 · `RMSNorm` · core · about 8 min
# - **Build** the module: one parameter `gamma` (ones). Half precision as in `layer_norm`.
# - **Not allowed** torch's own norms.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Start from your LayerNorm and take lines away.</details>
# <details><summary>Hint 2 · what</summary>No mean is subtracted: not in the numerator, not under the root.</details>
# <details><summary>Hint 3 · how</summary><code>x * torch.rsqrt(x.square().mean(-1, keepdim=True) +
# self.eps)</code></details>

# %% exercise="RMSNorm"
class RMSNorm(nn.Module):
    """Bring every token to root mean square 1.

    x (…, d_model) -> the same shape and dtype. Parameter: gamma (ones), and no other.
    Paper: Zhang and Sennrich 2019, §4.
    """

    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        ### BEGIN SOLUTION
        self.gamma = nn.Parameter(torch.ones(d_model))
        self.eps = eps
        ### END SOLUTION

    def forward(self, x):
        ### BEGIN SOLUTION
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        out = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (out * self.gamma).to(x.dtype)
        ### END SOLUTION

# %% check="RMSNorm"
check(RMSNorm, points=2)

# %% tags=["demo"]
with need("RMSNorm"):
    token = torch.tensor([2.14, 1.42, -0.30, 2.15])
    print("as it is ", RMSNorm(4)(token).detach())
    print("plus 5   ", RMSNorm(4)(token + 5).detach())
    print("times 3  ", RMSNorm(4)(3 * token).detach())
    reveal("rms-shift", "changes", "It forgets the size of a token, not its mean.")

# %% [markdown] reflect="RMSNorm"
# A checkpoint has one vector for each norm, and no β anywhere. Which norm is it, and what else would you look at to be sure?

# %% [markdown]
# ---
# ## 4.5 A soft switch
# *more · about 12 min*
#
# ReLU cuts every negative number to 0, and its slope jumps. GELU multiplies `x` by the share of a normal law that lies
# below it, `Φ(x)`: nearly 1 far right, nearly 0 far left. What happens to −0.5?

# %%
predict("gelu-half", "GELU(−0.5) is…", ["0", "a little below 0", "−0.5"])

# %% [markdown]
# The answer is `x · Φ(x)`, and there are two forms of `Φ`. Weights trained with one should be run with the same one.
#
# - exact: `Φ(x) = ½ (1 + erf(x / √2))`
# - older and faster: `Φ(x) ≈ ½ (1 + tanh(√(2/π) · (x + 0.044715 x³)))`
#
# ### Exercise 4.5 · `gelu` · more · about 10 min
# - **Build** both forms: `approximate="none"` is exact, `"tanh"` the other.
# - **Not allowed** torch's GELU.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Both forms end in <code>x · share</code>; only the share
# differs.</details>
# <details><summary>Hint 2 · what</summary><code>torch.erf</code> is there. Mind the √2 inside it and the ½
# outside.</details>
# <details><summary>Hint 3 · how</summary><code>0.5 * x * (1 + torch.erf(x / math.sqrt(2)))</code>; then the tanh
# line; then a ValueError.</details>

# %% exercise="gelu"
def gelu(x, approximate="none"):
    """x times the share of a standard normal law below x.

    x: any shape; approximate: "none" for the exact form, "tanh" for the approximation
    Returns shape and dtype of x. Raises ValueError for another form.
    Paper: Hendrycks and Gimpel 2016, §2.
    """
    ### BEGIN SOLUTION
    if approximate == "none":
        return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    raise ValueError('approximate must be "none" or "tanh"')
    ### END SOLUTION

# %% check="gelu"
check(gelu, points=3)

# %% tags=["demo"]
with need("gelu"):
    points = torch.linspace(-4, 4, 401)
    show(plots.activations(points, {"ReLU": F.relu(points), "GELU": gelu(points), "SiLU": F.silu(points)},
                           gelu(points, "tanh") - gelu(points)),
         "Left: ReLU is 0 left of zero; GELU and SiLU dip below it, GELU to −0.17 near −0.75. "
         "Right: the two forms of GELU differ by less than 0.0005.")
    reveal("gelu-half", "a little below 0", f"It is {gelu(torch.tensor(-0.5)):.3f}.")

# %% tags=["demo"]
with need("gelu"):
    ex = notes.example("000-gelu-values")
    print(ex.compare(gelu(torch.tensor(ex.inputs["x"]).double()), "gelu"))

# %% [markdown] reflect="gelu"
# The notes print 0 for every negative `x`. Whose row is that, and which one number would you look at first in a table of GELU?
# Your sentence:

# %% [markdown]
# ---
# ## 4.6 Each token by itself
# *core · about 21 min*
#
# Attention moves information between tokens. The feed-forward layer (FFN) works on what has arrived, one token at a
# time, the same weights for all: out to `d_ff` features (often 4 · d_model), through a nonlinearity, and back.
#
# > **w_2( act( w_1(x) ) )**

# %%
predict("two-linears", "Leave the activation out. The two matrices together can do…",
        ["more than one matrix", "exactly what one matrix can", "less than one matrix"])

# %%
w_1, w_2 = torch.randn(6, 24), torch.randn(24, 6)
x = torch.randn(5, 6)
print(f"two matrices against one: {((x @ w_1) @ w_2 - x @ (w_1 @ w_2)).abs().max():.1e}")
reveal("two-linears", "exactly what one matrix can", "Two linear maps in a row are one.")

# %% [markdown]
# ### Exercise 4.6a · `FeedForward` · core · about 10 min
# - **Build** `w_1`, `w_2` (with bias), an activation between them, dropout after the activation.
# - `activation` is `"relu"`, `"gelu"`, `"silu"` or a function of a tensor; anything else raises. `F.relu`, `F.gelu` and `F.silu`
#   are allowed here.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Choose the function once, in <code>__init__</code>.</details>
# <details><summary>Hint 2 · what</summary>A dict from name to function; <code>callable(activation)</code> tells a
# function from a name.</details>
# <details><summary>Hint 3 · how</summary><code>self.w_2(self.dropout(self.activation(self.w_1(x))))</code></details>

# %% exercise="FeedForward"
class FeedForward(nn.Module):
    """Two linear layers with a bend between them, the same for every token.

    x (…, d_model) -> the same shape. Weights: w_1 nn.Linear(d_model, d_ff), w_2 nn.Linear(d_ff, d_model).
    activation: "relu", "gelu", "silu" or a function; dropout acts on the hidden layer, after it.
    Raises ValueError for another activation. Paper: Vaswani et al. 2017, §3.3.
    """

    def __init__(self, d_model, d_ff, activation="gelu", dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        known = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}
        if not callable(activation) and activation not in known:
            raise ValueError(f"activation must be a function or one of {', '.join(known)}")
        self.activation = activation if callable(activation) else known[activation]
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)
        ### END SOLUTION

    def forward(self, x):
        ### BEGIN SOLUTION
        return self.w_2(self.dropout(self.activation(self.w_1(x))))  # M -> F -> M
        ### END SOLUTION

# %% check="FeedForward"
check(FeedForward, points=3)

# %% tags=["demo"]
with need("FeedForward"):
    layer = FeedForward(512, 2048)
    print(notes.example("000-ffn-shapes").compare(layer.w_1(torch.zeros(512)).shape, "hidden"))
    print(notes.example("003-ffn-params").compare(sum(p.numel() for p in layer.parameters()) / 1e6))

# %% [markdown] reflect="FeedForward"
# **Where does knowledge sit?** Two thirds of a block's weights are in its FFN. Read a row of `w_1` as a key and a column of `w_2`
# as a value: a token that fits the key has the value added to it. Geva et al. (2021) found hidden features that fire for one
# phrase or topic; Meng et al. (2022) changed a single fact by editing one `w_2`. But Hase et al. (2023) could edit about as
# well in layers where tracing finds no fact. So: much of it, probably, and not only there. What can an FFN never find out by
# itself? Your sentence:

# %% [markdown]
# **A gate.** Newer models replace the activation by a *gate*: one matrix proposes, another decides how much passes.
# `silu(z) = z · sigmoid(z)`. This is no drop-in activation, since it has three matrices; `d_ff` is usually made ⅔ as wide.
#
# ### Exercise 4.6b · `SwiGLU` · core · about 8 min
# - **Build** `w_down( silu(w_gate(x)) · w_up(x) )`, three linear layers **without** bias.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Two layers read x, one writes the result.</details>
# <details><summary>Hint 2 · what</summary>Only the gate goes through silu; the product is entry by
# entry.</details>
# <details><summary>Hint 3 · how</summary><code>self.w_down(F.silu(self.w_gate(x)) * self.w_up(x))</code></details>

# %% exercise="SwiGLU"
class SwiGLU(nn.Module):
    """A gated feed-forward layer.

    x (…, d_model) -> the same shape. Weights, all without bias:
    w_gate, w_up nn.Linear(d_model, d_ff), w_down nn.Linear(d_ff, d_model).
    Paper: Shazeer 2020, eq. 6.
    """

    def __init__(self, d_model, d_ff):
        super().__init__()
        ### BEGIN SOLUTION
        self.w_gate = nn.Linear(d_model, d_ff, bias=False)
        self.w_up = nn.Linear(d_model, d_ff, bias=False)
        self.w_down = nn.Linear(d_ff, d_model, bias=False)
        ### END SOLUTION

    def forward(self, x):
        ### BEGIN SOLUTION
        return self.w_down(F.silu(self.w_gate(x)) * self.w_up(x))
        ### END SOLUTION

# %% check="SwiGLU"
check(SwiGLU, points=2)

# %% tags=["demo"]
with need("FeedForward", "SwiGLU"):
    for name, layer in (("FeedForward(512, 2048)", FeedForward(512, 2048)), ("SwiGLU(512, 1365)", SwiGLU(512, 1365))):
        print(f"{name:24}{sum(p.numel() for p in layer.parameters()):,} parameters")

# %% [markdown] reflect="SwiGLU"
# Exchange `w_gate` and `w_up`: same number of weights, other function. What would you look at to tell which is which in
# somebody's checkpoint? Your sentence:

# %% [markdown]
# ---
# ## 4.7 A way round
# *core · about 17 min*
#
# Stack many plain layers, and the deeper network does worse, even on what it was trained on: each layer has to learn first to
# hand on what came in. So let each layer *add* to its input instead of replacing it: `x + F(x)`. What came in is kept, and a
# layer may begin as a small correction.
#
# The slope is `1 + F′(x)`: the path around the layer passes every gradient on. "So the gradient is at least 1", say the notes.
# Is it?

# %%
predict("at-least-one", "`F(x) = −x`. The slope of `x + F(x)` is…", ["at least 1", "0", "−1"])

# %%
x = torch.tensor(2.0, requires_grad=True)
print("slope of x + (-x):", torch.autograd.grad(x + -x, x)[0].item())
reveal("at-least-one", "0", "There is a path of slope 1; the branch may cancel it.")

# %% [markdown]
# And does the sum keep numbers in bounds? 24 blocks of random matrices, with and without a norm in the branch:

# %%
torch.manual_seed(0)
plain = normed = torch.randn(512, 128)
for _ in range(24):
    w = torch.randn(128, 128) / 128**0.5
    plain, normed = plain + plain @ w, normed + F.layer_norm(normed, (128,)) @ w
print(f"variance of the stream: {plain.var():,.0f} without norm, {normed.var():.1f} with")
print(notes.example("002-residual-prevents-explosion").compare(bool(plain.var() < 100), "explosion_prevented"))

# %% [markdown]
# Each plain block doubles the variance. With a norm in the branch, each adds about 1. *Where* that norm stands has two
# answers, so write the equation instead of "before" or "after":
#
# - **pre-norm**: `x + F(norm(x))`. The stream itself is never normed. GPT-2 and most since.
# - **post-norm**: `norm(x + F(x))`. The paper of 2017 and BERT. Deep stacks of it usually need a *warm-up*: a learning rate that
#   begins small and is raised over the first steps. Pre-norm often does without.
#
# ### Exercise 4.7 · `Residual` · core · about 15 min
# - **Build** both, with dropout on the branch right before it is added. All other arguments go to the sub-layer.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>What is added is x itself in both orders.</details>
# <details><summary>Hint 2 · what</summary><code>forward(self, x, *args, **kwargs)</code> hands on what it does not
# know.</details>
# <details><summary>Hint 3 · how</summary>pre: <code>x + drop(sublayer(norm(x), *args, **kwargs))</code>; post:
# <code>norm(x + drop(sublayer(x, *args, **kwargs)))</code></details>

# %% exercise="Residual"
class Residual(nn.Module):
    """A sub-layer with a way round it.

    x (…, d_model) -> the same shape. Attributes: sublayer, norm (a LayerNorm).
    norm_first: x + drop(sublayer(norm(x), …)), else norm(x + drop(sublayer(x, …))).
    """

    def __init__(self, sublayer, d_model, norm_first=True, dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        self.sublayer, self.norm = sublayer, LayerNorm(d_model)
        self.norm_first = norm_first
        self.dropout = nn.Dropout(dropout)
        ### END SOLUTION

    def forward(self, x, *args, **kwargs):
        ### BEGIN SOLUTION
        if self.norm_first:
            return x + self.dropout(self.sublayer(self.norm(x), *args, **kwargs))
        return self.norm(x + self.dropout(self.sublayer(x, *args, **kwargs)))
        ### END SOLUTION

# %% check="Residual"
check(Residual, points=4)

# %% [markdown]
# **Look.** The vector trace of the notes: *cat* after attention, then after the FFN. Both sums hold.

# %% tags=["demo"]
with need("layer_norm"):
    ex = notes.example("000-vector-trace-attn-and-residuals")
    a, b = (torch.tensor(ex.inputs[name]).double() for name in "ab")
    print(ex.compare(a + b))
    last = notes.example("000-vector-trace-final-ln")
    token = torch.tensor(last.inputs["x"]).double()
    print(last.compare(layer_norm(token, torch.ones(4).double(), torch.zeros(4).double(), 0.0)))

# %% [markdown] reflect="Residual"
# In the notes' trace attention reads the raw rows, though the block is drawn as pre-norm. What should it have read? Your
# sentence:

# %% [markdown]
# ---
# ## 4.8 The encoder block
# *core · about 22 min*
#
# Two branches, two norms, two sums:
#
# > **x ← x + attention(norm1(x))**
# > **x ← x + ffn(norm2(x))**  (pre-norm)
#
# The second sum starts from what the first left. Nothing here is causal: an encoder looks both ways, and hides padding
# only.

# %%
show(plots.block_diagram(),
     "Two columns. Encoder block: norm, self-attention, plus, norm, FFN, plus. Decoder block: the same with "
     "causal self-attention, then a third branch, cross-attention, which reads memory, in between.")

# %%
predict("ffn-mixes", "Only the FFN branch is run, without attention. Changing token 3 changes…",
        ["all tokens", "tokens 3 and later", "token 3 alone"])

# %% [markdown]
# ### Exercise 4.8 · `EncoderBlock` · core · about 20 min
# - **Build** the block from `norm1`, `attention` (your MultiHeadAttention), `norm2`, `ffn` (your FeedForward, gelu), pre-norm
#   or post-norm.
# - `dropout` goes to the attention, to the FFN, and on each branch before its sum.
# - From phase 3: `MultiHeadAttention(d_model, n_heads, bias=True, dropout=0.0)`, called as `attention(x, memory=None,
#   attn_mask=None)`. So hand on `dropout=…` and `attn_mask=…` **by keyword**. It returns one tensor.
# - The check fills in weights by name, so the four parts need the names above. (Other names or your own layout: give the class a
#   method `load_weights(weights)` that takes a dict such as `{"attention.w_q.weight": …}` and copies each where it belongs.)
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Write one branch as in Residual; the other is the same with other
# parts.</details>
# <details><summary>Hint 2 · what</summary>Call attention by keyword: <code>attn_mask=attn_mask</code>; the second place is
# memory.</details>
# <details><summary>Hint 3 · how</summary>if norm_first: <code>x = x + drop(attention(norm1(x), attn_mask=attn_mask))</code>,
# then <code>x + drop(ffn(norm2(x)))</code>; else the norms around the sums.</details>

# %% exercise="EncoderBlock"
class EncoderBlock(nn.Module):
    """Self-attention, then a feed-forward layer, each normed and added.

    x (batch, seq_len, d_model); attn_mask bool, broadcasts to (batch, n_heads, seq_len, seq_len), or None
    Returns the shape of x. Parts: norm1, attention, norm2, ffn.
    Paper: Vaswani et al. 2017, §3.1. Differs: pre-norm by default, gelu.
    """

    def __init__(self, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        self.norm1, self.norm2 = LayerNorm(d_model), LayerNorm(d_model)
        self.attention = MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.ffn = FeedForward(d_model, d_ff, dropout=dropout)
        self.norm_first, self.dropout = norm_first, nn.Dropout(dropout)
        ### END SOLUTION

    def forward(self, x, attn_mask=None):
        ### BEGIN SOLUTION
        if self.norm_first:
            x = x + self.dropout(self.attention(self.norm1(x), attn_mask=attn_mask))
            return x + self.dropout(self.ffn(self.norm2(x)))
        x = self.norm1(x + self.dropout(self.attention(x, attn_mask=attn_mask)))
        return self.norm2(x + self.dropout(self.ffn(x)))
        ### END SOLUTION

# %% check="EncoderBlock"
check(EncoderBlock, points=6)

# %% tags=["demo"]
with need("EncoderBlock", "FeedForward"):
    torch.manual_seed(0)
    x, maps = torch.randn(1, 5, 12), {}
    for title, part in (("FFN alone", FeedForward(12, 20)), ("the whole block", EncoderBlock(12, 3, 20))):
        slopes = torch.autograd.functional.jacobian(part, x)  # (1, T, M, 1, T, M)
        maps[title] = slopes.square().sum((0, 2, 3, 5)).sqrt()
    show(plots.influence_maps(maps),
         "Two grids of input against output places. The FFN has dots on the diagonal only; the block everywhere.")
    reveal("ffn-mixes", "token 3 alone", "Only attention carries anything from token to token.")

# %% [markdown] reflect="EncoderBlock"
# Someone hides padded *queries* instead of keys. What would still be wrong, and for whom? Your sentence:

# %% [markdown]
# ---
# ## 4.9 The decoder block
# *core · about 27 min*
#
# A decoder block has **three** sub-layers in this order: causal self-attention, cross-attention over the encoder's
# output (`memory`), FFN. Three norms, three sums, two attentions. Each sum starts from what the one before left, and the
# last counts as well.

# %%
predict("who-norms-memory", "In pre-norm, the memory that a decoder block reads is normed by…",
        ["the block's norm2", "the encoder's last norm", "nobody"])

# %% [markdown]
# ### Exercise 4.9 · `DecoderBlock` · core · about 25 min
# - **Build** the block from `norm1 self_attention norm2 cross_attention norm3 ffn`.
# - Self-attention is **always causal**; `attn_mask` restricts it further. `memory_mask` acts on cross-attention only.
#   Memory is used as it comes.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Start from your EncoderBlock; a branch is added in the middle, and the first
# gets a mask of its own.</details>
# <details><summary>Hint 2 · what</summary><code>combine_masks(causal_mask(seq_len), attn_mask)</code> for the first;
# <code>memory=memory, attn_mask=memory_mask</code> for the second.</details>
# <details><summary>Hint 3 · how</summary>Three lines per order. Queries of cross-attention are
# <code>norm2(x)</code> in pre-norm, x in post-norm.</details>

# %% exercise="DecoderBlock"
class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention, feed-forward: each normed and added.

    x (batch, q_len, d_model); memory (batch, kv_len, d_model), used as it comes
    attn_mask bool, to (batch, n_heads, q_len, q_len): hides more than the future; memory_mask to (…, q_len, kv_len)
    Returns the shape of x. Parts: norm1, self_attention, norm2, cross_attention, norm3, ffn.
    Paper: Vaswani et al. 2017, §3.1. Differs: pre-norm by default, gelu.
    """

    def __init__(self, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        self.norm1, self.norm2, self.norm3 = (LayerNorm(d_model) for _ in range(3))
        self.self_attention = MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.cross_attention = MultiHeadAttention(d_model, n_heads, dropout=dropout)
        self.ffn = FeedForward(d_model, d_ff, dropout=dropout)
        self.norm_first, self.dropout = norm_first, nn.Dropout(dropout)
        ### END SOLUTION

    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        ### BEGIN SOLUTION
        past = combine_masks(causal_mask(x.shape[1]).to(x.device), attn_mask)

        def read(x):
            return self.cross_attention(x, memory=memory, attn_mask=memory_mask)

        if self.norm_first:
            x = x + self.dropout(self.self_attention(self.norm1(x), attn_mask=past))
            x = x + self.dropout(read(self.norm2(x)))
            return x + self.dropout(self.ffn(self.norm3(x)))
        x = self.norm1(x + self.dropout(self.self_attention(x, attn_mask=past)))
        x = self.norm2(x + self.dropout(read(x)))
        return self.norm3(x + self.dropout(self.ffn(x)))
        ### END SOLUTION

# %% check="DecoderBlock"
check(DecoderBlock, points=7)

# %% tags=["demo"]
with need("DecoderBlock"):
    torch.manual_seed(0)
    block, x, memory = DecoderBlock(12, 3, 20), torch.randn(1, 5, 12), torch.randn(1, 3, 12)
    own, read = torch.autograd.functional.jacobian(block, (x, memory))
    show(plots.influence_maps({"its own sentence": own.square().sum((0, 2, 3, 5)).sqrt(),
                               "the memory": read.square().sum((0, 2, 3, 5)).sqrt()}),
         "Left: five by five, dots on and below the diagonal. Right: five by three, dots everywhere.")
    reveal("who-norms-memory", "the encoder's last norm", "That is why a pre-norm stack ends with one.")

# %% [markdown] reflect="DecoderBlock"
# Draw the three masks of a translation model from memory: which hides padding, which hides the future, and of which
# sentence? Your sentence:

# %% [markdown]
# ---
# ## 4.10 Stacks
# *core · about 20 min*
#
# Blocks on top of each other, each with weights of its own. (A decoder-only model, such as GPT, has no memory to read: its block
# is your EncoderBlock with a causal mask.) One line goes wrong so often that you should see it once:

# %%
predict("times-three", "`nn.ModuleList([block] * 3)` holds…",
        ["three blocks", "one block, three times", "three copies"])

# %%
block = nn.Linear(4, 4)
repeated = nn.ModuleList([block] * 3)
print("parameters:", sum(p.numel() for p in repeated.parameters()), "instead of", 3 * 20)
reveal("times-three", "one block, three times", "A list can hold the same object three times.")

# %% [markdown]
# A pre-norm stream is never normed on its way, so it needs **one last norm** at the end. Post-norm ends normed already.
#
# ### Exercise 4.10a · `Encoder` · core · about 10 min
# - **Build** `blocks` and `norm` (a LayerNorm if `norm_first`, else `nn.Identity()`). Every block gets the same mask.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>An <code>nn.ModuleList</code> of blocks; a loop in
# <code>forward</code>.</details>
# <details><summary>Hint 2 · what</summary>Make each block anew: a comprehension does.</details>
# <details><summary>Hint 3 · how</summary><code>nn.ModuleList(EncoderBlock(…) for _ in range(n_layers))</code>, with
# <code>norm_first</code> and <code>dropout</code> handed on.</details>

# %% exercise="Encoder"
class Encoder(nn.Module):
    """n_layers encoder blocks, and one last norm if they are pre-norm.

    x (batch, seq_len, d_model); attn_mask as in EncoderBlock, the same for every block
    Returns the shape of x. Parts: blocks, norm.
    """

    def __init__(self, n_layers, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        sizes = (d_model, n_heads, d_ff, norm_first, dropout)
        self.blocks = nn.ModuleList(EncoderBlock(*sizes) for _ in range(n_layers))
        self.norm = LayerNorm(d_model) if norm_first else nn.Identity()
        ### END SOLUTION

    def forward(self, x, attn_mask=None):
        ### BEGIN SOLUTION
        for block in self.blocks:
            x = block(x, attn_mask=attn_mask)
        return self.norm(x)
        ### END SOLUTION

# %% check="Encoder"
check(Encoder, points=3)

# %% tags=["demo"]
with need("Encoder"):
    torch.manual_seed(0)
    encoder, x = Encoder(24, 64, 4, 128), torch.randn(1, 10, 64)
    with torch.no_grad():
        print(f"leaving the encoder: variance {encoder(x).var():.2f}")
        for block in encoder.blocks:
            x = block(x)
    print(f"before its last norm: variance {x.var():.2f}")

# %% [markdown] reflect="Encoder"
# Which later part would suffer if that last norm were missing? (Who reads the memory, and expects what?) Your sentence:

# %% [markdown]
# ### Exercise 4.10b · `Decoder` · core · about 8 min
# - **Build** the same for decoder blocks. Every block reads the **same** memory, and gets both masks.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Your Encoder with another block and two more arguments.</details>
# <details><summary>Hint 2 · what</summary>Only <code>x</code> changes from block to block.</details>
# <details><summary>Hint 3 · how</summary><code>x = block(x, memory, attn_mask=attn_mask,
# memory_mask=memory_mask)</code></details>

# %% exercise="Decoder"
class Decoder(nn.Module):
    """n_layers decoder blocks over one memory, and one last norm if they are pre-norm.

    x, memory, attn_mask, memory_mask as in DecoderBlock. Returns the shape of x. Parts: blocks, norm.
    """

    def __init__(self, n_layers, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        sizes = (d_model, n_heads, d_ff, norm_first, dropout)
        self.blocks = nn.ModuleList(DecoderBlock(*sizes) for _ in range(n_layers))
        self.norm = LayerNorm(d_model) if norm_first else nn.Identity()
        ### END SOLUTION

    def forward(self, x, memory, attn_mask=None, memory_mask=None):
        ### BEGIN SOLUTION
        for block in self.blocks:
            x = block(x, memory, attn_mask=attn_mask, memory_mask=memory_mask)
        return self.norm(x)
        ### END SOLUTION

# %% check="Decoder"
check(Decoder, points=3)

# %% tags=["demo"]
with need("Decoder"):
    torch.manual_seed(0)
    decoder, memory = Decoder(3, 12, 3, 20), torch.randn(1, 4, 12, requires_grad=True)
    decoder(torch.randn(1, 5, 12), memory)[..., 0].sum().backward()
    print("gradient at each place of the memory:", memory.grad.norm(dim=-1)[0])

# %% [markdown] reflect="Decoder"
# "Keys and values of the encoder are computed once and used by every decoder block." What is shared, and what is not? Your
# sentence:

# %% [markdown]
# ---
# ## 4.11 From words to words
# *core · about 27 min*
#
# Around the stacks: two embedding tables, positions, an output layer.
#
# - **In**: `√d_model · E[tokens] + positions`. The root is in the paper, and few notes mention it. Guess what it is for:

# %%
predict("root-in", "A table starts with deviation `1/√512`. Added to positions as it is, an embedding would be…",
        ["drowned by the positions", "about equal", "much larger"])

# %%
table = torch.randn(100, 512) / 512**0.5
print(f"length of an embedding {table.norm(dim=-1).mean():.2f}, "
      f"times the root {(512**0.5 * table).norm(dim=-1).mean():.1f}, "
      f"of a position {sinusoidal_positions(10, 512).norm(dim=-1).mean():.1f}")
reveal("root-in", "drowned by the positions", "Scaled by √512 both have about the same length.")

# %% [markdown]
# That is how the paper starts its tables. `nn.Embedding` starts with deviation **1**, and then the root drowns the *positions*. So
# a model with the root wants small tables: `init_weights` of 4.12, or one line before training, as below.
#
# - **Out**: the same target table once more, `y @ E.T`: each logit says how well `y` fits a word's own vector. That is a
#   transpose, no inverse. Softmax belongs to the loss, so return **logits**.
#
# ### Exercise 4.11 · `Transformer` · core · about 25 min
# - **Build** it from `src_embedding`, `tgt_embedding`, `encoder`, `decoder`. Dropout also acts on the embedded input.
# - Source pads are hidden twice: in the encoder **and** in cross-attention. Positions have no parameters.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Both inputs are embedded in the same way, each with its own table. Write that
# once.</details>
# <details><summary>Hint 2 · what</summary>Your <code>padding_mask</code> makes (B, 1, 1, T) from (B, T). It wants a mask: keep None as None
# yourself.</details>
# <details><summary>Hint 3 · how</summary><code>memory = encoder(embed(src), attn_mask=src_mask)</code>, <code>y =
# decoder(embed(tgt), memory, attn_mask=tgt_mask, memory_mask=src_mask)</code>, <code>y @
# tgt_embedding.weight.T</code></details>

# %% exercise="Transformer"
class Transformer(nn.Module):
    """The encoder-decoder model: source tokens and target tokens to logits.

    src (batch, src_len), tgt (batch, tgt_len) int64; pad masks of the same shapes, bool, True = real token, or None
    Returns logits (batch, tgt_len, tgt_vocab). Parts: src_embedding, tgt_embedding, encoder, decoder.
    The output layer is the target's table, without bias. Paper: Vaswani et al. 2017, §3, §3.4.
    """

    def __init__(self, src_vocab, tgt_vocab, d_model, n_heads, d_ff, n_layers, norm_first=True, dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        sizes = (n_layers, d_model, n_heads, d_ff, norm_first, dropout)
        self.src_embedding = nn.Embedding(src_vocab, d_model)
        self.tgt_embedding = nn.Embedding(tgt_vocab, d_model)
        self.encoder, self.decoder = Encoder(*sizes), Decoder(*sizes)
        self.dropout = nn.Dropout(dropout)
        ### END SOLUTION

    def forward(self, src, tgt, src_pad_mask=None, tgt_pad_mask=None):
        ### BEGIN SOLUTION
        def embed(tokens, table):
            x = math.sqrt(table.embedding_dim) * table(tokens)  # (B, T, M)
            return self.dropout(x + sinusoidal_positions(*x.shape[1:]).to(x))

        src_mask = None if src_pad_mask is None else padding_mask(src_pad_mask)
        tgt_mask = None if tgt_pad_mask is None else padding_mask(tgt_pad_mask)
        memory = self.encoder(embed(src, self.src_embedding), attn_mask=src_mask)
        y = embed(tgt, self.tgt_embedding)
        y = self.decoder(y, memory, attn_mask=tgt_mask, memory_mask=src_mask)
        return y @ self.tgt_embedding.weight.T  # (B, T, V)
        ### END SOLUTION

# %% check="Transformer"
check(Transformer, points=6)

# %% [markdown]
# **Look.** Can it learn anything? Six words in, the same six out in reverse. The tables start small. A quarter of a minute.

# %% tags=["demo"]
with need("Transformer"):
    torch.manual_seed(0)
    model, start = Transformer(12, 12, 48, 4, 96, 1), torch.zeros(32, 1, dtype=torch.long)
    for table in (model.src_embedding, model.tgt_embedding):
        nn.init.normal_(table.weight, std=48**-0.5)  # nn.Embedding starts with 1: far too large with the root
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=2e-3), []
    for _ in range(250):
        src = torch.randint(1, 12, (32, 6))
        answer = src.flip(1)
        logits = model(src, torch.cat([start, answer[:, :-1]], 1))
        losses.append(F.cross_entropy(logits.flatten(0, 1), answer.flatten()))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    for step in (0, 100, 150, 249):
        print(f"step {step:3}: loss {losses[step]:.3f}")
    print(f"a guess among 12 words costs ln 12 = {math.log(12):.3f}")
    print("in", src[0].tolist(), "· largest logit at each place", logits[0].argmax(-1).tolist())

# %% [markdown]
# **Follow one sentence.** "The cat sat" with its two marks is five tokens; of the answer, the start mark and *Le* are there.
# The last row of logits, after a softmax, says what may come next. To take the largest is one rule among several: phase 5.

# %% tags=["demo"]
with need("Transformer"):
    torch.manual_seed(0)
    model = Transformer(src_vocab=8, tgt_vocab=6, d_model=16, n_heads=4, d_ff=64, n_layers=2)
    for name in ("src_embedding", "encoder", "tgt_embedding", "decoder"):
        part = getattr(model, name)
        part.register_forward_hook(lambda part, args, out, name=name: print(f"{name:14}{tuple(out.shape)}"))
    logits = model(torch.tensor([[1, 4, 5, 6, 2]]), torch.tensor([[1, 3]]))
    print(f"{'logits':14}{tuple(logits.shape)}, next word: {logits[0, -1].softmax(-1).detach()}")

# %% [markdown] reflect="Transformer"
# An even guess costs ln 12, yet step 0 costs more. The input's embedding runs through to the output on the skips, and the output
# layer is that same table: which word does an untrained model expect, then? And why is that always wrong here? Your sentence:

# %% [markdown]
# ---
# ## 4.12 A quiet start
# *more · about 18 min*
#
# Every block adds two branches to the stream. If each adds variance 1, then `n_layers` blocks add about `2 · n_layers` to the
# variance 1 that came in. GPT-2 starts the matrices that *write* into the stream smaller, by a factor, so that all together add
# about 1.

# %%
predict("quiet", "With 2 · n branches whose sum should have variance 1, each branch's deviation should be…",
        ["1 / (2n)", "1 / √n", "1 / √(2n)"])

# %% [markdown]
# ### Exercise 4.12 · `init_weights` · more · about 15 min
# - **Build** it in place: matrices of `nn.Linear` and `nn.Embedding`, and a parameter called `table`, normal with deviation
#   `std`; the linear layers `w_o`, `w_2`, `w_down`: `std / √(2 · n_layers)`. Biases and `beta` 0, `gamma` 1.
# - A tied matrix is one matrix: it is drawn with `std`.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary><code>model.named_modules()</code> gives every part with its
# path.</details>
# <details><summary>Hint 2 · what</summary>The last piece of the path is the name to look at. Changing weights in place
# needs <code>torch.no_grad()</code> or <code>nn.init</code>.</details>
# <details><summary>Hint 3 · how</summary>Go over <code>model.named_parameters()</code>: split the name at its last dot
# into owner and kind; <code>owner.endswith(("w_o", "w_2", "w_down"))</code>.</details>

# %% exercise="init_weights"
def init_weights(model, std, n_layers):
    """Give a model its first weights, in place.

    std: deviation of matrices; those that write into the stream (w_o, w_2, w_down) get std / sqrt(2 n_layers)
    Biases and beta become 0, gamma 1. Uses torch's global random state.
    From: Radford et al. 2019 (GPT-2), §2.3.
    """
    ### BEGIN SOLUTION
    for name, parameter in model.named_parameters():  # a tied one appears once
        owner, _, kind = name.rpartition(".")
        if kind in ("bias", "beta"):
            nn.init.zeros_(parameter)
        elif kind == "gamma":
            nn.init.ones_(parameter)
        else:
            writes = owner.rpartition(".")[2] in ("w_o", "w_2", "w_down")
            nn.init.normal_(parameter, std=std / math.sqrt(2 * n_layers) if writes else std)
    ### END SOLUTION

# %% check="init_weights"
check(init_weights, points=4)

# %% tags=["demo"]
with need("init_weights", "Encoder"):
    torch.manual_seed(0)
    for n_layers in (2, 12, 48):
        found = []
        for n in (n_layers, 0.5):  # 2 · 0.5 is 1: without the factor
            encoder, x = Encoder(n_layers, 64, 4, 256), torch.randn(1, 10, 64)
            init_weights(encoder, 0.125, n)  # 0.125 = 1/√64 keeps the variance of 64 features
            with torch.no_grad():
                for block in encoder.blocks:
                    x = block(x)
            found.append(x.var().item())
        print(f"{n_layers:2} layers: variance of the stream at the end {found[0]:.2f}, without the factor {found[1]:.1f}")
    reveal("quiet", "1 / √(2n)", "Variances add up, deviations do not.")

# %% [markdown] reflect="init_weights"
# The paper's factor is for pre-norm. Would a post-norm stack need it? Your sentence:

# %% [markdown]
# ---
# ## 4.13 What reaches the first block
# *more · about 16 min*
#
# Pre or post: does it matter? Measure what arrives at each block's weights when a loss at the end is pulled.

# %%
predict("pre-post", "24 blocks, fresh weights, three draws. The first block gets more than the last in every draw of…",
        ["pre-norm", "post-norm", "both"])

# %% [markdown]
# ### Exercise 4.13 · `gradient_norms` · more · about 12 min
# - **Build** the measurement: run x through the blocks, take `out[..., 0].sum()`, and return for each block the L2 norm of the
#   gradient over all its parameters together.
# - Leave no trace: `.grad`, weights and train/eval flags stay as they were.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary><code>torch.autograd.grad</code> returns gradients and touches no
# <code>.grad</code>.</details>
# <details><summary>Hint 2 · what</summary>The norm over several tensors is the root of the sum of all
# squares.</details>
# <details><summary>Hint 3 · how</summary>per block: <code>grads = torch.autograd.grad(loss, list(block.parameters()),
# retain_graph=True)</code>, then <code>math.sqrt(sum(g.square().sum().item() for g in grads))</code></details>

# %% exercise="gradient_norms"
def gradient_norms(blocks, x):
    """How much of a loss reaches the weights of each block.

    blocks: list of modules, run in order as block(x); x (batch, seq_len, d_model)
    Returns a list of floats, first block first: the L2 norm of the gradient of out[..., 0].sum().
    Promises: .grad, weights and flags stay as they were.
    """
    ### BEGIN SOLUTION
    out = x
    for block in blocks:
        out = block(out)
    loss = out[..., 0].sum()
    norms = []
    for block in blocks:
        grads = torch.autograd.grad(loss, list(block.parameters()), retain_graph=True)
        norms.append(math.sqrt(sum(grad.square().sum().item() for grad in grads)))
    return norms
    ### END SOLUTION

# %% check="gradient_norms"
check(gradient_norms, points=3)

# %% tags=["demo"]
with need("gradient_norms", "EncoderBlock"):
    ratios, found = {"pre-norm": [], "post-norm": []}, {}
    for name, norm_first in (("pre-norm", True), ("post-norm", False)):
        for seed in (5, 4, 3):
            torch.manual_seed(seed)
            x = torch.randn(2, 8, 32)
            blocks = [EncoderBlock(32, 4, 64, norm_first) for _ in range(24)]
            for w in (p for block in blocks for p in block.parameters() if p.dim() > 1):
                nn.init.normal_(w, std=w.shape[1]**-0.5)  # each matrix keeps the variance
            found[name] = gradient_norms(blocks, x)
            ratios[name].append(found[name][0] / found[name][-1])
        print(f"{name:9} first block / last block:", *(f"{ratio:.2f}" for ratio in ratios[name]))
    show(plots.gradient_curves(found),
         "Gradient of each of 24 blocks on a log axis, for pre-norm and post-norm, in the last of three draws; the ratio of "
         "first to last block is printed above for each draw.")
    reveal("pre-post", "pre-norm", "Each pre-norm branch adds to the gradient on its way back. In post-norm every norm on the "
           "stream takes some off again, and chance decides. Neither order starves the first block here.")

# %% [markdown]
# **Play.** Move the depth, and the size of the weights. At which setting do the two orders hardly differ? Where would one
# learning rate for all blocks be far too large for some?

# %% tags=["demo"]
with need("gradient_norms", "EncoderBlock"):
    widgets.depth_explorer(EncoderBlock, gradient_norms)

# %% [markdown] reflect="gradient_norms"
# "In post-norm, gradients vanish in the early blocks." What do three draws say, and what would you measure before you believe
# it or not?

# %% [markdown]
# ---
# ## 4.14 Count it
# *more · about 28 min*
#
# "A block has 12 · d² parameters": 4 matrices of attention, and an FFN that is four times as wide. A good estimate to carry in
# your head: each weight costs a multiply-add for each token, whatever the token says, so a block's time is known beforehand. What
# does the estimate leave out?

# %%
predict("twelve", "GPT-2 small (12 layers, width 768) by `12 · L · d²` is 85 million. Its real size is about…",
        ["85 million", "124 million", "163 million"])

# %%
print(ModelConfig(vocab_size=50257, d_model=768, n_heads=12, n_layers=12, d_ff=3072, max_len=1024))

# %% [markdown]
# ### Exercise 4.14a · `count_parameters` · more · about 20 min
# - **Build** the exact count from a config, without building a model. Keys: `embedding positions attention ffn norm output
#   total`.
# - `src_vocab_size` None: decoder-only, with a learned position table of `max_len` rows. Else the `Transformer` above, whose
#   positions cost nothing.
# - `n_kv_heads` narrows `w_k` and `w_v`; None means `n_heads`. `vocab_size` is the target's. Each stack has `n_layers` blocks.
# - `output` is 0 when `tied`, else a table without bias. Attention and FFN have biases, and they count. `norm_first` brings one
#   last norm for each stack.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Write down one block first: attention, FFN, norms. Then how many of each there
# are.</details>
# <details><summary>Hint 2 · what</summary>Per pair of encoder and decoder block: 3 attentions, 2 FFNs, 5 norms. One
# more norm per stack if norm_first.</details>
# <details><summary>Hint 3 · how</summary><code>linear(i, o) = i * o + o</code>; keys are <code>d_model // n_heads *
# n_kv_heads</code> wide; a norm has 2 · d_model.</details>

# %% exercise="count_parameters"
def count_parameters(config):
    """Count the parameters of a model from its sizes.

    config: a ModelConfig
    Returns a dict of ints: embedding, positions, attention, ffn, norm, output, total.
    """
    ### BEGIN SOLUTION
    def linear(inputs, outputs):
        return inputs * outputs + outputs

    d_model, both = config.d_model, config.src_vocab_size is not None
    d_kv = d_model // config.n_heads * (config.n_kv_heads or config.n_heads)
    attention = 2 * linear(d_model, d_model) + 2 * linear(d_model, d_kv)
    ffn = linear(d_model, config.d_ff) + linear(config.d_ff, d_model)
    attentions, ffns, norms, stacks = (3, 2, 5, 2) if both else (1, 1, 2, 1)
    counts = {
        "embedding": (config.vocab_size + (config.src_vocab_size or 0)) * d_model,
        "positions": 0 if both else config.max_len * d_model,
        "attention": config.n_layers * attentions * attention,
        "ffn": config.n_layers * ffns * ffn,
        "norm": (config.n_layers * norms + (stacks if config.norm_first else 0)) * 2 * d_model,
        "output": 0 if config.tied else config.vocab_size * d_model,
    }
    return counts | {"total": sum(counts.values())}
    ### END SOLUTION

# %% check="count_parameters"
check(count_parameters, points=2)

# %% tags=["demo"]
with need("count_parameters"):
    gpt2 = ModelConfig(vocab_size=50257, d_model=768, n_heads=12, n_layers=12, d_ff=3072, max_len=1024)
    counts = count_parameters(gpt2)
    for name, count in counts.items():
        print(f"{name:10}{count:>13,}{count / counts['total']:>7.1%}")
    reveal("twelve", "124 million", "Embeddings alone are 39 million; untied, they would count twice: 163 million.")

# %% [markdown] reflect="count_parameters"
# At which width do embeddings stop mattering, if the vocabulary stays at 50,000? Your sentence:

# %% [markdown]
# ### Exercise 4.14b · `residual_census` · more · about 4 min
# - **Build** the number of residual additions in each stack and in all.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Count the plus signs in the picture of 4.8.</details>
# <details><summary>Hint 2 · what</summary>One per sub-layer.</details>
# <details><summary>Hint 3 · how</summary>Two per encoder block, three per decoder block; a dict with
# <code>encoder</code>, <code>decoder</code>, <code>total</code>.</details>

# %% exercise="residual_census"
def residual_census(n_encoder, n_decoder):
    """How many residual additions an encoder-decoder model makes.

    Returns a dict of ints: encoder, decoder, total.
    """
    ### BEGIN SOLUTION
    encoder, decoder = 2 * n_encoder, 3 * n_decoder
    return {"encoder": encoder, "decoder": decoder, "total": encoder + decoder}
    ### END SOLUTION

# %% check="residual_census"
check(residual_census, points=1)

# %% tags=["demo"]
with need("residual_census"):
    print(notes.example("000-census").compare(residual_census(6, 6)["total"], "total"))
    print(notes.example("003-42-layers-paper").compare(6 + 6))

# %% [markdown] reflect="residual_census"
# 12 blocks, 30 additions, 42 "layers" (each norm, attention and FFN): all are counts of one model. What does a count need?
# Your sentence:

# %% [markdown]
# ---
# ## 4.15 Twelve questions
# *more · about 24 min*
#
# A model with a bug trains, only worse. So ask it. `checklist` puts twelve questions to any attention, block or model:
# each is a property that right ones have, whatever their weights. First your newest block:

# %% tags=["demo"]
with need("EncoderBlock"):
    checklist(EncoderBlock(12, 3, 20))

# %% [markdown]
# **✓** holds, **✗** does not, **–** does not apply. Each finds bugs that the others miss:
#
# | | question | a bug it finds |
# |---|---|---|
# | 1 | shape, dtype, twice the same | dropout that ignores `eval()` |
# | 2 | each sentence by itself | batch and heads mixed in a `view` |
# | 3 | weights sum to one | softmax over queries |
# | 4 | hidden tokens weigh nothing | a mask after the softmax |
# | 5 | the future stays unseen | a triangle one step off |
# | 6 | padding changes nothing | a mean over pads |
# | 7 | a row that sees nothing | NaN from −∞ alone |
# | 8 | order | positions left out |
# | 9 | scores of size 1 | √d_model for √d_head |
# | 10 | gradients reach everything | a stray `detach` |
# | 11 | first loss is ln V | weights too large |
# | 12 | learns one batch | two softmaxes |

# %%
predict("which-line", "Two attentions: one hides pads after the softmax, one forgets `w_o`. The checklist catches…",
        ["both", "the first alone", "the second alone"])

# %%
torch.manual_seed(0)
w_q, w_k, w_v = torch.randn(3, 12, 12).double() / 12**0.5


def hides_too_late(x, mask):
    weights = (x @ w_q @ (x @ w_k).mT / 12**0.5).softmax(-1)
    return (weights if mask is None else weights * mask[:, 0]) @ x @ w_v


checklist(hides_too_late, width=12)

# %% [markdown]
# It was a function this time; `call=` takes anything that can be asked as `call(x, mask)`. And the attention without `w_o`?
# It has every one of these properties: it is a *right* attention, of another kind than the one you wanted. Properties find what
# is broken. For what is missing you need a comparison with a reference, as in 4.8.

# %%
reveal("which-line", "the first alone", "Nothing is broken in an attention without w_o.")

# %% tags=["demo"]
with need("Transformer"):
    torch.manual_seed(0)
    checklist(Transformer(9, 11, 12, 3, 20, 2))

# %% [markdown]
# Your model is right, and line 11 fails: `nn.Embedding` starts with deviation 1, and the output layer is that table. So it
# starts out sure of itself, and wrong. (In 4.11 the training cell made the tables smaller first. `init_weights` of 4.12 does.)

# %% [markdown]
# ### Exercise 4.15 · `reads_hidden` · more · about 15 min
# - **Build** question 4 yourself: does any row depend on a token that its mask hides? Your own test, as `leaks_future` was.
# - `attention(x, attn_mask)`: `x` (batch, seq_len, 8), `attn_mask` (batch, 1, seq_len, seq_len) bool; batch 1 to 4, seq_len 1
#   to 8. A row's **own** token does not count, hidden or not: its query is made of it.
# - **Not allowed** the checklist.
# - **Done when** the check below passes: it runs your test on right and wrong attentions.
#
# <details><summary>Hint 1 · where</summary>Change one token, and look which rows move. Which rows may?</details>
# <details><summary>Hint 2 · what</summary>Use random masks that differ from sentence to sentence and from row to row, one row with
# nothing to see, and several batch sizes: a mask may meet the wrong axis only where two sizes agree.</details>
# <details><summary>Hint 3 · how</summary><code>moved = (attention(other, mask) - before).abs().amax(-1) &gt; 1e-9</code> is (batch,
# seq_len); set <code>moved[:, place] = False</code>; then <code>(moved &amp; ~mask[:, 0, :, place]).any()</code>.</details>

# %% exercise="reads_hidden"
def reads_hidden(attention):
    """Does any row depend on another token that its mask hides?

    attention: maps x (batch, seq_len, 8) and attn_mask (batch, 1, seq_len, seq_len) bool, True = may attend,
    to (batch, seq_len, d_out); batch 1 to 4, seq_len 1 to 8, any float dtype, no chance
    Returns bool, True = it reads what is hidden.
    Promises: attention and the global random state stay as they were.
    """
    ### BEGIN SOLUTION
    generator = torch.Generator().manual_seed(0)
    for batch in (1, 2, 3, 4):
        x = torch.randn(batch, 8, 8, dtype=torch.float64, generator=generator)
        mask = torch.rand(batch, 1, 8, 8, generator=generator) < 0.5
        mask[:, :, 5] = False  # a row with nothing to see
        with torch.no_grad():
            before = attention(x, mask)
            for place in range(8):
                other = x.clone()
                other[:, place] += 3
                moved = (attention(other, mask) - before).abs().amax(-1) > 1e-9  # (B, T)
                moved[:, place] = False  # its own query
                if (moved & ~mask[:, 0, :, place]).any():
                    return True
    return False
    ### END SOLUTION

# %% check="reads_hidden"
check(reads_hidden, points=4)

# %% tags=["demo"]
with need("reads_hidden"):
    layer = MultiHeadAttention(8, 2).double()
    print("yours reads what is hidden:", reads_hidden(lambda x, mask: layer(x, attn_mask=mask)))
    w_q, w_k, w_v = torch.randn(3, 8, 8).double() / 8**0.5
    print("hides_too_late does:       ", reads_hidden(hides_too_late))

# %% [markdown] reflect="reads_hidden"
# Your test draws random masks and tokens. What could an attention do that it would never notice? Your sentence:

# %% [markdown]
# ---
# ## 4.16 Repair by checklist
# *more · about 24 min*
#
# Here is a layer of several heads in one matrix, with the faults of a second listing in the notes. (Theirs is a sketch: half its
# names are never defined.) Its mask is one table for each sentence, 0 where looking is allowed and −1e9 where not. Read it and mark
# what you doubt **before** running on.

# %%
class BrokenHeads(nn.Module):
    def __init__(self, width, n_heads, d_head, dropout=0.1):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_head
        self.qkv = nn.Linear(width, 3 * width)  # queries, keys, values of all heads
        self.out = nn.Linear(width, width)

    def forward(self, x, blocked=None):
        batch, seq_len, width = x.shape
        heads = self.qkv(x).view(batch, seq_len, 3, self.n_heads, self.d_head)
        q, k, v = heads.permute(2, 0, 3, 1, 4)  # each (B, H, T, D)
        scores = q @ k.transpose(2, 3) / math.sqrt(self.d_head)
        if blocked is not None:
            scores = scores + blocked  # (B, H, T, T) + (B, T, T)
        mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, seq_len, width))


torch.manual_seed(0)
attempt("12 features, 3 heads of 4", lambda: BrokenHeads(12, 3, 4)(torch.randn(2, 5, 12)).shape)
attempt("12 features, 3 heads of 5", lambda: BrokenHeads(12, 3, 5)(torch.randn(2, 5, 12)).shape)

# %% [markdown]
# The first fault is loud: `d_head` must be `width / n_heads`, and nobody said so. (The worked example of the same notes has
# width 4 and one head of 2.) Now the mask. Three heads:

# %%
predict("batch-of-three", "Padding differs from sentence to sentence. The mask is (batch, 5, 5), the scores (batch, 3, 5, 5). "
        "A batch of 3 sentences…", ["crashes", "is right", "runs, and is wrong"])

# %%
layer = BrokenHeads(12, 3, 4).double()
x = torch.randn(3, 5, 12).double()
blocked = torch.zeros(3, 5, 5).double()
blocked[0, :, 3:] = -1e9  # the first sentence has two pads
for batch in (1, 2, 3):
    attempt(f"a batch of {batch}", lambda batch=batch: layer(x[:batch], blocked[:batch]).shape)
alone, together = layer(x[:1], blocked[:1]), layer(x, blocked)
print(f"sentence 0, alone and in the batch of 3, differs by {(alone - together[:1]).abs().max():.3f}")
reveal("batch-of-three", "runs, and is wrong",
       "Axes are matched from the right: the mask of sentence b lands on head b.")

# %% [markdown]
# The worst bugs are those that broadcast. What would have found it? Ask the checklist, which tries three sentences:

# %%
def ask(x, mask):
    return layer(x, None if mask is None else -1e9 * (~mask[:, 0]).to(x.dtype))


checklist(layer, call=ask, width=12)

# %%
layer_16, x_16 = BrokenHeads(12, 3, 4).half(), torch.randn(1, 5, 12).half()
all_blocked = torch.full((1, 5, 5), -1e9)
print("−1e9 in float16 is", all_blocked.half()[0, 0, 0].item())
print("every key blocked, float16:", layer_16(x_16, all_blocked.half())[0, 0, :3].tolist())
print("every key blocked, float32:", (torch.randn(5) + all_blocked[0, 0]).softmax(-1))

# %% [markdown]
# So −1e9 is no way to avoid NaN: in half precision it *is* −∞, and elsewhere an empty row reads pads. A boolean mask and zeros
# for empty rows are one rule for every precision. And `dropout` is promised and absent; no check of numbers in eval mode can
# see that.

# %% [markdown]
# ### Exercise 4.16 · `FusedSelfAttention` · more · about 20 min
# - **Build** the repaired layer: `w_qkv` from `d_model` to `3 · n_heads · d_head`, rows in order q, k, v and head after head in
#   each; `w_o` back to `d_model`. `d_head=None` is `d_model / n_heads`, which must divide: else ValueError.
# - `attn_mask` (batch, seq_len, seq_len) bool, **one table for each sentence**. An empty row gives zeros before `w_o`.
# - Dropout acts on the weights, in training only. **Not allowed** torch's own attention.
# - **Done when** the check below passes.
#
# <details><summary>Hint 1 · where</summary>Five faults: two sizes, the axis of the mask, −1e9, dropout.</details>
# <details><summary>Hint 2 · what</summary>Your <code>attention_weights</code> scales, hides and survives empty rows; it wants a mask
# that broadcasts to (batch, n_heads, seq_len, seq_len).</details>
# <details><summary>Hint 3 · how</summary><code>.view(batch, seq_len, 3, n_heads, -1).permute(2, 0, 3, 1, 4)</code>;
# <code>attn_mask[:, None]</code>; after mixing <code>.transpose(1, 2).flatten(2)</code>.</details>

# %% exercise="FusedSelfAttention"
class FusedSelfAttention(nn.Module):
    """Self-attention of several heads, with queries, keys and values from one matrix.

    x (batch, seq_len, d_model); attn_mask (batch, seq_len, seq_len) bool, True = may attend, or None
    Returns the shape of x. Weights: w_qkv nn.Linear(d_model, 3 * n_heads * d_head), rows in order q, k, v, each head after
    head; w_o nn.Linear(n_heads * d_head, d_model). Dropout on the weights.
    Raises ValueError if d_head is None and n_heads does not divide d_model.
    """

    def __init__(self, d_model, n_heads, d_head=None, dropout=0.0):
        super().__init__()
        ### BEGIN SOLUTION
        if d_head is None and d_model % n_heads:
            raise ValueError(f"n_heads {n_heads} does not divide d_model {d_model}: give d_head")
        self.n_heads = n_heads
        self.d_head = d_head or d_model // n_heads
        self.w_qkv = nn.Linear(d_model, 3 * n_heads * self.d_head)
        self.w_o = nn.Linear(n_heads * self.d_head, d_model)
        self.dropout = nn.Dropout(dropout)
        ### END SOLUTION

    def forward(self, x, attn_mask=None):
        ### BEGIN SOLUTION
        fused = self.w_qkv(x).view(*x.shape[:2], 3, self.n_heads, self.d_head)
        q, k, v = fused.permute(2, 0, 3, 1, 4)  # each (B, H, T, D)
        visible = None if attn_mask is None else attn_mask[:, None]  # (B, 1, T, T)
        mixed = self.dropout(attention_weights(q, k, visible)) @ v  # (B, H, T, D)
        return self.w_o(mixed.transpose(1, 2).flatten(2))  # (B, T, M)
        ### END SOLUTION

# %% check="FusedSelfAttention"
check(FusedSelfAttention, points=6)

# %% tags=["demo"]
with need("FusedSelfAttention"):
    repaired = FusedSelfAttention(12, 3, 5)
    checklist(repaired, call=lambda x, mask: repaired(x, None if mask is None else mask[:, 0].expand(len(x), -1, -1)))

# %% [markdown] reflect="FusedSelfAttention"
# Which of the five faults would a test with a batch of one have found? And which would no test in eval mode? Your sentence:

# %% [markdown]
# ---
# ## 4.17 Every number of the notes
# *more · about 6 min*
#
# The rest of the worked numbers, through what you built where there is anything to build. `you ✓`: yours is what comes out;
# `sum ✓`: plain arithmetic does; `notes ✗`: theirs is not, and the code behind it names the erratum (`notes.erratum("A5")`
# tells its story).

# %%
def tally(mine, who="you"):
    """One line per number: does it agree with the recomputation, and did the notes?"""
    for name, value in mine.items():
        value, key = value if isinstance(value, tuple) else (value, None)
        ex = notes.example(name)
        verdict = ex.compare(value, key)
        you, they = ("✓" if agrees else "✗"
                     for agrees in (verdict.agrees, verdict.agrees_with_notes))
        print(f"{name:36}{who} {you}  notes {they}  {' '.join(slip.id for slip in ex.errata)}")


def numbers(name, key):
    return torch.tensor(notes.example(name).inputs[key], dtype=torch.float64)

# %% tags=["demo"]
with need("layer_norm", "gelu"):
    ones, zeros = torch.ones(4).double(), torch.zeros(4).double()
    tally({"000-residual-1": numbers("000-residual-1", "a") + numbers("000-residual-1", "b"),
           "000-residual-2": numbers("000-residual-2", "a") + numbers("000-residual-2", "b"),
           "000-layernorm-z1-unit-variance": (numbers("000-layernorm-z1-unit-variance", "x").var(correction=0), "variance"),
           "000-vector-trace-final-ln-moments":
               (numbers("000-vector-trace-final-ln-moments", "x").var(correction=0), "variance"),
           "002-layernorm-steps": (layer_norm(numbers("002-layernorm-steps", "x"), ones, zeros, 1e-5).var(correction=0),
                                   "variance"),
           "002-ffn-relu": F.relu(numbers("002-ffn-relu", "x"))})
    far = torch.linspace(-6, 6, 120_001).double()
    gap = (gelu(far) - gelu(far, "tanh")).abs().max().item()
    tally({"000-gelu-tanh-form": (gap < 1e-3, "close")})
    for name in ("000-ln-recovers", "003-ln-restores"):
        x, a, b = numbers(name, "x"), notes.example(name).inputs["a"], notes.example(name).inputs["b"]
        same = torch.allclose(layer_norm(a * x + b, ones, zeros, 0.0), layer_norm(x, ones, zeros, 0.0))
        tally({name: (not same, "scale_and_shift_recoverable")})

# %% tags=["demo"]
with need("FeedForward", "DecoderBlock", "Encoder", "residual_census", "count_parameters"):
    def size(part):
        return sum(p.numel() for p in part.parameters())

    slopes = 1 + numbers("000-gradient-at-least-1", "F_prime")
    tally({"000-gradient-at-least-1": (bool((slopes >= 1).all()), "always_at_least_1"),
           "004-residual-derivative-1": (bool((slopes == 1).all()), "always_exactly_1"),
           "000-sublayers-12-layer": residual_census(12, 0)["total"],
           "003-attention-params": (size(MultiHeadAttention(512, 8)) / 1e6, "millions"),
           "003-ffn-params": (size(FeedForward(512, 2048)) / 1e6, "millions"),
           "003-decoder-layer-params": ((size(DecoderBlock(512, 8, 2048)) - 6 * 512) / 1e6, "millions"),
           "004-residual-stack": len(Encoder(6, 8, 2, 8).blocks)})
    gpt2 = dict(vocab_size=50257, d_model=768, n_heads=12, n_layers=12, d_ff=3072, max_len=1024)
    tied, untied = (count_parameters(ModelConfig(**gpt2, tied=tied))["total"] for tied in (True, False))
    base = count_parameters(ModelConfig(37_000, 512, n_heads=8, n_layers=6, d_ff=2048, max_len=512, tied=False))
    tally({"004-weight-tying": (tied < untied, "reduces"),
           "003-vocab-params": (10**7 <= base["output"] < 10**8, "tens_of_millions")})
    for name in ("002-ffn-shapes", "003-ffn-shapes", "004-ffn-shapes"):
        tally({name: (FeedForward(512, 2048)(torch.zeros(512)).shape, "output")})

# %%
z = numbers("000-output-softmax", "z")
tally({"000-output-softmax": (z.softmax(-1), "softmax"),
       "000-output-softmax-sum": numbers("000-output-softmax-sum", "w").sum(),
       "003-logit-shapes": list((torch.ones(3, 4) @ torch.ones(4, 5)).shape),
       "003-42-layers": 6 * 3 + 6 * 4,  # by their own rule: three in an encoder block, four in a decoder block
       "004-gpt2-vocab": 256 + 50_000 + 1}, who="sum")
scores = attention_weights(torch.ones(3, 512), torch.ones(4, 512))
tally({"002-decoder-shapes": (list(scores.shape), "scores")})
attend, x = MultiHeadAttention(16, 4), torch.randn(2, 5, 16)
gap = (attend(2 * x) - 2 * attend(x)).abs().max().item()
tally({name: (gap < 1e-4, "linear_in_X") for name in ("000-no-ffn-is-linear", "002-attention-mostly-linear")})
shapes = {"token_embeddings": nn.Embedding(11, 16)(torch.zeros(2, 5, dtype=torch.long)).shape,
          "ffn_hidden": nn.Linear(16, 64)(x).shape, "logits": (x @ torch.ones(16, 11)).shape}
for key, shape in shapes.items():
    print(f"004-table2-shapes, {key}: {notes.example('004-table2-shapes').compare(list(shape), key).agrees}")

# %% [markdown]
# Five entries cannot be recomputed: the notes print an FFN's inside and output and a row of logits, but neither matrix nor
# bias (`000-ffn-hidden`, `000-ffn-output`, `002-ffn-hidden`, `002-ffn-output`, `000-output-logits`). The last one even starts
# from the wrong vector: the encoder's, with an earlier slip in it.

# %% [markdown]
# ---
# ## 4.18 Say it aloud
# *core · about 10 min*
#
# Three questions that interviewers ask. Write as you would speak: five to eight sentences. A person grades these.

# %% [markdown]
# **Question 1. Why residual connections and why layer norm? Where does the norm stand?**
#
# | points | for |
# |---|---|
# | 1 | the path: slope 1 + F′, a branch adds to what is there; no lower bound on the gradient |
# | 1 | the sum grows, the norm keeps it in bounds; per token, independent of the batch |
# | 1 | pre: x + F(norm(x)), needs one last norm; post: norm(x + F(x)) |
# | 1 | what the order changes in training: which one usually needs a warm-up |

# %% [markdown] written="residual-and-norm" points=4
# ### BEGIN SOLUTION
# A residual adds what a layer computes to its input, so the slope of the block is one plus that of the branch. The
# identity path hands every gradient on to earlier layers, and a layer may start as a small correction. That is a path, not a
# guarantee: "the gradient is at least 1" is wrong, since the branch can cancel it. The sums grow, though: without norms, 24
# random blocks multiply the variance by millions. Layer norm brings each token to mean 0 and variance 1 over its own
# features, without looking at the batch, so it is the same in training and in use. Pre-norm is x + F(norm(x)): the stream
# stays open from end to end and needs one last norm. Post-norm is norm(x + F(x)), as in 2017 and in BERT; every gradient then
# passes through every norm, and deep stacks usually want a warm-up of the learning rate.
# ### END SOLUTION

# %% [markdown]
# **Question 2. Walk through an encoder block and a decoder block.**
#
# | points | for |
# |---|---|
# | 1 | encoder: self-attention with padding hidden, FFN; a norm and a sum each |
# | 1 | decoder: three sub-layers in order, two of them attentions |
# | 1 | which mask hides what in each attention |
# | 1 | memory: the encoder's output, the same for every block, projected by each block's own matrices |

# %% [markdown] written="walk-through" points=4
# ### BEGIN SOLUTION
# An encoder block has two sub-layers. Self-attention lets every token read every real token, in both directions, with padded
# keys hidden; then a feed-forward layer works on each token by itself, out to about four times the width and back. Each is
# wrapped: norm, sub-layer, dropout, add. A decoder block has three. Its self-attention is causal, so a place sees itself and
# its past, and the target's padding is hidden, too. Then cross-attention: queries from the decoder, keys and values from the
# encoder's output, whose padding is hidden, and nothing causal. Then the feed-forward layer. That makes three norms and three
# sums. All decoder blocks read the same memory, but each has its own key and value matrices.
# ### END SOLUTION

# %% [markdown]
# **Question 3. Why a feed-forward layer, why four times as wide, and where does knowledge sit?**
#
# | points | for |
# |---|---|
# | 1 | division of labour: attention moves, the FFN computes, token by token |
# | 1 | the nonlinearity: without it two matrices are one; attention is not linear in the tokens |
# | 1 | width: room for many features; 4 is a convention, two thirds of a block's weights |
# | 1 | knowledge: evidence that facts sit in FFN weights, and that this is debated |

# %% [markdown] written="feed-forward" points=4
# ### BEGIN SOLUTION
# Attention carries information between tokens; the feed-forward layer works on what has arrived, the same way at every place.
# Its nonlinearity matters: two linear maps in a row are one, and averages of values alone make tokens more and more alike. It
# is not true that attention is linear in the tokens, because its weights depend on them; it is linear in the values only.
# Going out to four times the width gives room for many features that a bend can switch on and off. Four is a convention, and
# gated layers with three matrices use about two and two thirds. Two thirds of a block's weights are there, and several studies
# find facts in them, read like keys and values. Others dispute how far one can locate a fact, so I would say "much of it,
# probably, and not only there".
# ### END SOLUTION

# %% [markdown]
# ### The phase on one screen

# %%
show(plots.block_diagram(),
     "Encoder and decoder block side by side: norms, attentions, FFN, plus signs, and memory leading from one to the other.")

# %% [markdown]
# **What you can now say in an interview:**
#
# - A block is attention, FFN, and around each a norm and a sum. Encoder two, decoder three.
# - Layer norm: one token, mean 0, variance 1, ε under the root. `dx` loses its mean and its share along z.
# - A residual's slope is `1 + F′`: a path, no lower bound. The norm keeps the sum in bounds.
# - Pre-norm: `x + F(norm(x))` and one last norm. Post-norm: `norm(x + F(x))`.
# - The FFN sees one token at a time and holds two thirds of a block's `12 · d²` weights.
# - Tied output is the table's transpose. Logits come out, no probabilities.
#
# Phase 5: train it.
