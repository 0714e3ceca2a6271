"""The checks of phase 5. SECTIONS, in the order of the notebook: importing one registers its exercises."""

PHASE = "phase5_training_and_inference"
SECTIONS = (
    *("losses", "optimiser", "steps", "greedy", "sampling", "beams"),
    *("cache", "stepping", "generating", "cost", "scaling"),
)
