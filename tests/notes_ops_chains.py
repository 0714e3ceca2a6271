"""Recompute results from the first inputs on, rounding nothing, where the notes start again from rounded numbers."""

import numpy as np

from tests.notes_ops import exact, sinusoids

EMBEDDINGS = {"the": [0.21, -0.55, 0.83, 0.12], "cat": [0.67, 0.33, -0.41, 0.89], "sat": [-0.12, 0.71, 0.56, -0.34]}
RAW_SCORES = [[2.1, 3.8, 1.2], [1.5, 5.2, 2.8], [1.9, 2.4, 3.6]]
VALUES = [[0.5, -0.3, 0.2, 0.8], [0.9, 0.6, -0.1, 0.4], [-0.2, 0.8, 0.7, -0.5]]
CROSS_QUERY = [0.82, -0.15, 0.93, 0.44]
CROSS_KEYS = [[0.31, 0.72, 0.18, 0.55], [0.88, 0.41, -0.2, 0.93], [-0.15, 0.66, 0.71, -0.28]]
WHOLE_SCORES = [[12, 6, 9], [4, 2, 2], [8, 4, 6]]
WHOLE_VALUES = [[2, 2], [1, 1], [1, 2]]
ONE_QUERY = {"k": [[1, 0], [0, 1], [1, 1], [1, 1]], "v": [[1, 0], [0, 1], [2, 2], [1, 1]]}


def unrounded_results():
    """Return, for every id with an unrounded result, the result and its name."""
    inputs = np.array(list(EMBEDDINGS.values())) + sinusoids(range(3), 4)
    weights = (exact(RAW_SCORES) / 2).softmax(-1)
    across = exact(CROSS_KEYS) @ exact(CROSS_QUERY) / 2
    whole = exact(WHOLE_SCORES) / 2**0.5
    below = whole - whole.amax(-1, keepdim=True)
    one = (exact(ONE_QUERY["k"]).sum(-1) / 2**0.5).softmax(-1)
    results = {f"000-x-enc-{word}": ("result", row) for word, row in zip(EMBEDDINGS, inputs, strict=True)}
    results |= {f"001-sum-row{row + 1}": ("sum", below[row].exp().sum()) for row in range(3)}
    return results | {
        "000-x-enc-matrix": ("result", inputs),
        "000-attention-row-sums": ("row_sums", weights.sum(-1)),
        "000-weighted-v-cat": ("result", weights[1] @ exact(VALUES)),
        "000-cross-attn-scaled": ("result", across),
        "000-cross-attn-softmax": ("softmax", across.softmax(-1)),
        "001-output": ("result", whole.softmax(-1) @ exact(WHOLE_VALUES)),
        "002-sdpa-softmax": ("softmax", one),
        "002-sdpa-output": ("result", one @ exact(ONE_QUERY["v"])),
    }
