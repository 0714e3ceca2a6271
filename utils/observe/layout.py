"""Where the parameters of a learner's module are found: by name, or by a part's own `load_weights`."""

from torch import nn


def addresses(module):
    """{name: parameter}, shared ones under each name; nn.LayerNorm's answer to gamma and beta, too."""
    found = dict(module.named_parameters(remove_duplicate=False))
    for prefix, part in module.named_modules():
        if type(part) is nn.LayerNorm and part.weight is not None:
            dot = f"{prefix}." if prefix else ""
            found |= {f"{dot}gamma": part.weight} | ({} if part.bias is None else {f"{dot}beta": part.bias})
    return found


def loaders(module):
    """{prefix: part} of the outermost parts, below the module itself, that have a load_weights of their own."""
    found = {}
    for name, part in module.named_modules():
        if name and hasattr(part, "load_weights") and not f"{name}.".startswith(tuple(found)):
            found[f"{name}."] = part
    return found
