"""The checks of phase 3. SECTIONS, in the order of the notebook: importing one registers its exercises."""

PHASE = "phase3_multi_head"
SECTIONS = ("splitting", "multi_head", "packed", "grouped", "dropout", "looking", "alibi")
