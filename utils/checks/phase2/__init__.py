"""The checks of phase 2. SECTIONS, in the order of the notebook: importing one registers its exercises."""

PHASE = "phase2_attention"
SECTIONS = ("softmax", "dot_product", "variance", "masks", "backward", "modules", "repair", "leaks", "cost")
