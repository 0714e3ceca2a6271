"""The checks of phase 6. SECTIONS, in the order of the notebook: importing one registers its exercises."""

PHASE = "phase6_families_and_systems"
SECTIONS = (
    *("masking", "classifier", "gpt", "spans", "patches", "experts", "tiles"),
    *("compression", "quantization", "nibbles", "windows", "exits", "speculation", "drafts", "serving", "design"),
)
