"""The checks of phase 7. SECTIONS, in the order of the notebook: importing one registers its exercises."""

PHASE = "phase7_capstone"
SECTIONS = (
    *("overfitting", "evaluating", "resuming", "corpus", "ranks"),  # training
    *("costs", "measuring", "translating"),
)
