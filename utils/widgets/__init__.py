"""Figures to play with: thin ipywidgets around plots, and the same picture for those without a front end.

A module per phase lists its figures in `__all__`.
"""

import importlib
import pkgutil

for _name in sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("phase")):
    _figures = importlib.import_module(f"{__name__}.{_name}")
    globals().update({name: getattr(_figures, name) for name in _figures.__all__})
