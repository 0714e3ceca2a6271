"""Plays for objects that one call does not show: an optimiser over many steps, a decoder and what it asks its model.

`SCRIPTS[name](obj)` is a function of plain arguments that plays with the learner's object and returns plain data; it is
observed in the object's place. A script knows no answer.
"""

from utils.observe import scripts_capstone, scripts_decoding, scripts_measuring, scripts_training

SCRIPTS = {
    **scripts_training.SCRIPTS,
    **scripts_decoding.SCRIPTS,
    **scripts_capstone.SCRIPTS,
    **scripts_measuring.SCRIPTS,
}
WITH_OPTIMISER = ("optimiser", "train step", "keeping", "resuming", "one batch")
