"""The checks of phase 7. SECTIONS, in the order of the notebook: importing one registers its exercises."""

PHASE = "phase7_capstone"
SECTIONS = (*("costs", "overfitting", "evaluating", "resuming", "translating", "corpus", "measuring", "ranks"),)
