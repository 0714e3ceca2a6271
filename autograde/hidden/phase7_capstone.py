"""Hidden cases of phase 7."""

from dataclasses import replace

_TRAINING = {}

_MEASURING = {}

HIDDEN = {
    name: tuple(replace(one, hidden=True) for one in cases) for name, cases in {**_TRAINING, **_MEASURING}.items()
}
