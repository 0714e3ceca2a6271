"""The sizes of a model in one object, the same in every phase."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ModelConfig:
    """What a Transformer is built from. Decoder-only unless `src_vocab_size` is given.

    n_kv_heads      heads of keys and values; None means n_heads
    src_vocab_size  None: decoder-only; else encoder and decoder with n_layers each, vocab_size being the target's
    tied            the output layer is the (target) embedding table
    norm_first      pre-norm, with one last norm per stack; False: post-norm
    """

    vocab_size: int
    d_model: int
    n_heads: int
    n_layers: int
    d_ff: int
    max_len: int
    n_kv_heads: int | None = None
    src_vocab_size: int | None = None
    tied: bool = True
    norm_first: bool = True
    dropout: float = 0.0
