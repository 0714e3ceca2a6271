"""Pictures. Pure functions: data in, matplotlib Figure out; no state, nothing shown.

A module per phase lists its pictures in `__all__`; `plots.attention_map` reaches them all. `plots.canvas` is what they
share.
"""

import importlib
import pkgutil

for _name in sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("phase")):
    _pictures = importlib.import_module(f"{__name__}.{_name}")
    globals().update({name: getattr(_pictures, name) for name in _pictures.__all__})
