"""The trusted twins: one per exercise, made of torch's built-ins or of an independent formula.

`oracle.sdpa` is the answer that the check of `sdpa` compares with, and what `mine("sdpa")` falls back to. A module per
phase lists its twins in `__all__`; a class's copy of the course holds those of earlier phases only.
"""

import importlib
import pkgutil

for _name in sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("phase")):
    _twins = importlib.import_module(f"{__name__}.{_name}")
    globals().update({name: getattr(_twins, name) for name in _twins.__all__})
