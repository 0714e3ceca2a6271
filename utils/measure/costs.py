"""What a token must cost at least: operations, bytes moved, and the speeds that follow from them.

Operations come from `flops_per_token`, which has its definition in phase 7. Without a text (seq_len 0) only the
matrices are left in it, so their entries come from there, too.
"""

from types import SimpleNamespace

from utils import oracle
from utils.train.settings import gpt_config

OPERATIONS_PER_ENTRY = 6  # forward once, backward twice, two operations each


def matrix_entries(config, flops_per_token):
    """Entries of all matrices that multiply, the output layer's included."""
    return flops_per_token(config, 0)["palm"] / OPERATIONS_PER_ENTRY


def training_traffic(config):
    """Estimated bytes of activations moved per token in a compiled bf16 step.

    Forward writes and reads about 36 numbers of width d_model in each layer, backward twice as many, two bytes each;
    and the logits are read and written a few times.
    """
    return 216 * config.d_model * config.n_layers + 18 * config.vocab_size


def roofline(flops, peak, traffic, bandwidth):
    """Seconds of one token if nothing overlaps: first all operations, then all traffic."""
    return flops / peak + traffic / bandwidth


def decode_traffic(config, entries, batch, seq_len, weight_bytes, cache_bytes):
    """Bytes that one step of decoding must read: the weights once, each sentence's keys and values."""
    return entries * weight_bytes + oracle.kv_cache_bytes(config, batch, seq_len, cache_bytes)


def model_config(report):
    """The ModelConfig of a run of track b, from its report."""
    return gpt_config(SimpleNamespace(**report["settings"]), report["text"]["vocabulary"][0])
