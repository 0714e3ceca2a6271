"""The checks of phase 1. SECTIONS, in the order of the notebook: importing one registers its exercises."""

PHASE = "phase1_text_to_tensors"
SECTIONS = (
    "recurrence",
    "pairs",
    "encoding",
    "tokenizer",
    "batches",
    "embedding",
    "softmax",
    "positions",
    "shifts",
    "rotary",
)
