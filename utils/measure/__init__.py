"""Judge a trained model and measure the machine it ran on: numbers in, numbers or a page out.

What a learner builds in phase 7 comes in as an argument or through `parts.part`; nothing here knows its answers.
"""

from utils.measure.attention import crossover
from utils.measure.card import report_card
from utils.measure.clock import MeasureError
from utils.measure.device import bandwidth, described, device_of, peak_matmul
from utils.measure.oral import oral_exam
from utils.measure.scaling import sweep
from utils.measure.text import compressors
from utils.measure.translation import alignment_rate, bleu, cross_attention, exact_match, share_of, translate
from utils.measure.writing import generation

__all__ = [
    "MeasureError",
    "alignment_rate",
    "bandwidth",
    "bleu",
    "compressors",
    "cross_attention",
    "crossover",
    "described",
    "device_of",
    "exact_match",
    "generation",
    "oral_exam",
    "peak_matmul",
    "report_card",
    "share_of",
    "sweep",
    "translate",
]
