"""A learner's work as tests write it: two exercises of phase 2, right or blank, saved into a notebook."""

import json

GOOD = """
def sdpa(q, k, v, attn_mask=None):
    if k.shape[-2] != v.shape[-2]:
        raise ValueError("k and v differ in kv_len")
    return attention_weights(q, k, attn_mask) @ v
"""
WEIGHTS = """
def attention_weights(q, k, attn_mask=None):
    if q.shape[-1] != k.shape[-1]:
        raise ValueError("d_head of q and k differ")
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        raise ValueError("attn_mask must be bool")
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    if attn_mask is None:
        return scores.softmax(-1)
    scores = scores.masked_fill(~attn_mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1).masked_fill(~attn_mask, 0.0)
"""
UNSCALED = GOOD.replace("attention_weights(q, k", "attention_weights(q * q.shape[-1] ** 0.5, k")
BLANK = 'def sdpa(q, k, v, attn_mask=None):\n    """Mix."""\n    raise NotImplementedError()'


def save(course, *cells, place="my_work", phase="phase2_attention"):
    path = course / place / phase / f"{phase}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells]}), encoding="utf8")
    return path
