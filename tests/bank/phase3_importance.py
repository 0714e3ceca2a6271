"""head_importance: wrong solutions and unusual right ones."""

import contextlib
import copy

import torch

from tests.bank import right, wrong


@contextlib.contextmanager
def switched_off(layer, part, axis=1, bias=False):
    """A slice of a layer's weight at 0, put back afterwards."""
    kept = {name: parameter.detach().clone() for name, parameter in layer.named_parameters()}
    with torch.no_grad():
        layer.weight.narrow(axis, part.start, part.stop - part.start).zero_()
        if bias and layer.bias is not None:
            layer.bias[part] = 0
    try:
        yield
    finally:
        with torch.no_grad():
            for name, parameter in layer.named_parameters():
                parameter.copy_(kept[name])


def slices(mha):
    width = mha.w_o.in_features // mha.n_heads
    return [slice(h * width, (h + 1) * width) for h in range(mha.n_heads)]


def measured(mha, x, loss, layer="w_o", difference=lambda without, whole: without - whole, **options):
    with torch.no_grad():
        whole, found = loss(mha(x)), []
        for part in slices(mha):
            with switched_off(getattr(mha, layer), part, **options):
                found.append(difference(loss(mha(x)), whole))
    return torch.stack(found)


# ---------------------------------------------------------------- wrong


@wrong("head_importance", says="the head then averages, it is not off")
def queries_silenced(mha, x, loss):
    return measured(mha, x, loss, layer="w_q", axis=0, bias=True)


@wrong("head_importance", says="the head then hands on its bias, it is not off")
def values_silenced(mha, x, loss):
    return measured(mha, x, loss, layer="w_v", axis=0)


@wrong("head_importance", says="a head owns columns of w_o")
def rows_of_the_output(mha, x, loss):
    return measured(mha, x, loss, axis=0)


@wrong("head_importance", says="positive means that the head helps")
def sign_turned(mha, x, loss):
    return measured(mha, x, loss, difference=lambda without, whole: whole - without)


@wrong("head_importance", says="keep the sign")
def absolute(mha, x, loss):
    return measured(mha, x, loss).abs()


@wrong("head_importance", says="that is the loss, not how much it rises")
def loss_alone(mha, x, loss):
    return measured(mha, x, loss, difference=lambda without, whole: without)


@wrong("head_importance", says="without the head, not with it alone")
def only_this_head(mha, x, loss):
    with torch.no_grad():
        whole, found = loss(mha(x)), []
        for part in slices(mha):
            keep = torch.zeros(mha.w_o.in_features, dtype=x.dtype)
            keep[part] = 1
            hook = mha.w_o.register_forward_pre_hook(lambda layer, args, keep=keep: (args[0] * keep,))
            found.append(loss(mha(x)) - whole)
            hook.remove()
    return torch.stack(found)


@wrong("head_importance", says="a slope is not an ablation: switch the head off")
def by_the_slope(mha, x, loss):
    gates = torch.ones(mha.n_heads, dtype=x.dtype, requires_grad=True)
    wide = gates.repeat_interleave(mha.w_o.in_features // mha.n_heads)
    hook = mha.w_o.register_forward_pre_hook(lambda layer, args: (args[0] * wide,))
    loss(mha(x)).backward()
    hook.remove()
    return gates.grad


@wrong("head_importance", says="mha must come back as it was")
def never_put_back(mha, x, loss):
    found = measured(mha, x, loss)
    with torch.no_grad():
        mha.w_o.weight[:, slices(mha)[-1]] = 0
    return found


@wrong("head_importance", says="one head at a time: put it back before the next one")
def one_more_each_time(mha, x, loss):
    """Heads go off one after the other and stay off until the end."""
    kept = mha.w_o.weight.detach().clone()
    with torch.no_grad():
        whole, found = loss(mha(x)), []
        for part in slices(mha):
            mha.w_o.weight[:, part] = 0
            found.append(loss(mha(x)) - whole)
        mha.w_o.weight.copy_(kept)
    return torch.stack(found)


@wrong("head_importance", says="mha must come back as it was")
def hook_left(mha, x, loss):
    found = measured(mha, x, loss)
    mha.register_forward_hook(lambda *args: None)
    return found


@wrong("head_importance")
def left_in_eval(mha, x, loss):
    mha.eval()
    return measured(mha, x, loss)


@wrong("head_importance", says="put it back in a finally: the loss may raise")
def not_put_back_after_an_error(mha, x, loss):
    kept = mha.w_o.weight.detach().clone()
    with torch.no_grad():
        whole, found = loss(mha(x)), []
        for part in slices(mha):
            mha.w_o.weight[:, part] = 0
            found.append(loss(mha(x)) - whole)
            mha.w_o.weight.copy_(kept)
    return torch.stack(found)


@wrong("head_importance")
def total(mha, x, loss):
    return measured(mha, x, loss).sum()


# ---------------------------------------------------------------- right


@right("head_importance", why="columns of w_o at 0, put back in a finally")
def columns_off(mha, x, loss):
    return measured(mha, x, loss)


@right("head_importance", why="a hook in front of w_o")
def by_a_hook(mha, x, loss):
    found = []
    with torch.no_grad():
        whole = loss(mha(x))
        for part in slices(mha):

            def silence(layer, args, part=part):
                merged = args[0].clone()
                merged[..., part] = 0
                return (merged,)

            handle = mha.w_o.register_forward_pre_hook(silence)
            try:
                found.append(loss(mha(x)) - whole)
            finally:
                handle.remove()
    return torch.stack(found)


@right("head_importance", why="a deep copy is taken apart, the original never touched")
def on_a_copy(mha, x, loss):
    whole = loss(mha(x)).detach()
    found = []
    for part in slices(mha):
        other = copy.deepcopy(mha)
        other.w_o.weight.data[:, part] = 0
        found.append((loss(other(x)) - whole).item())
    return torch.tensor(found, dtype=x.dtype)


@right("head_importance", why="functional_call with other weights; gradients stay attached")
def functional(mha, x, loss):
    found, whole = [], loss(mha(x))
    for part in slices(mha):
        keep = torch.ones(mha.w_o.in_features, dtype=x.dtype)
        keep[part] = 0
        out = torch.func.functional_call(mha, {"w_o.weight": mha.w_o.weight * keep}, (x,))
        found.append(loss(out) - whole)
    return torch.stack(found)
