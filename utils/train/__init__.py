"""The trainer: `settings`, then a task, then `fit`; or `python -m utils.train` for all three."""

from utils.train.errors import TrainError
from utils.train.loop import Run, fit
from utils.train.parts import build
from utils.train.settings import TIERS, TrainConfig, settings
from utils.train.tasks import Language, Translation
from utils.train.texts import task_of

__all__ = [
    "TIERS",
    "Language",
    "Run",
    "TrainConfig",
    "TrainError",
    "Translation",
    "build",
    "fit",
    "settings",
    "task_of",
]
