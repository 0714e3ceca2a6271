"""The checks of phase 4. SECTIONS, in the order of the notebook: importing one registers its exercises."""

PHASE = "phase4_blocks"
SECTIONS = (
    "norms",
    "backward",
    "feed_forward",
    "residual",
    "blocks",
    "decoder_block",
    "stacks",
    "model",
    "start",
    "counts",
    "debugging",
    "mending",
)
