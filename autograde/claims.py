"""What a child claims, checked for its form: nothing it says is believed, and none of its words can paint a page.

A submission owns the process that observes it, so a message may hold anything the codec knows. Here it must look
exactly like what `utils.observe.run` writes, or like the outputs of a cell; whether it is right is for the judge.
"""

import functools
import re
from dataclasses import dataclass

import torch
from nbformat import NotebookNode, from_dict

from utils.observe import Request, codec, limits, nothing_seen

MAX_LINE = 1_000  # characters of a text that must stay on one line
MAX_CLASSES = 200  # that an exception may inherit from
MAX_OUTPUTS = 200  # of a cell
MAX_WORDS = 100_000  # characters of text kept of one output,
MAX_SHOWN = 4_000_000  # of a picture, or of a page that may hold one,
MAX_NOTEBOOK = 20_000_000  # and of all outputs of a notebook
LARGE = 2**20  # bytes of a request that is not kept: it holds somebody's weights

_CALL = {"raised", "value", "grads", "weight_grads", "changed", "shares"}
_RAISED = {"type", "is", "message", "where"}
_PROBLEMS = {"type", "weights", "too much"}  # and "raised"; "ended" is for the trusted side to say
_DISTURBED = frozenset(limits._state())
_MODULE = "the module's own state or train/eval flag"
_ANSWER = "an earlier answer"


class BadClaim(Exception):
    """A message that no honest process sends; the reason repeats none of its words."""


# ---- observations --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Asked:
    """What a request says of the observation that answers it."""

    names: tuple  # of each call: the arguments
    leaves: tuple  # of each call: {argument: (shape, dtype)} of those that get a gradient
    module: bool  # it is one, or may be handed one
    gradients: bool
    watch: bool
    goes_on: bool  # after a refusal: an object is to work as before
    kept: bool  # earlier answers are looked at again


def observation(message, request=None):
    """The observation that a message holds, its texts made harmless. Raises BadClaim unless its form is right.

    request: what was asked, a Request or the bytes of one; without it, what was not asked cannot be told.
    """
    seen = _decoded(message, codec.MAX_SEEN)
    asked = None if request is None else _asked_in(request) if isinstance(request, bytes) else _asked(request)
    _must(type(seen) is dict and seen.keys() == nothing_seen().keys(), "an observation of another form")
    parameters, printed, caught = seen["parameters"], seen["printed"], seen["caught"]
    whole = type(parameters) is int and 0 <= parameters < 2**63
    _must(parameters is None or whole, "a number of parameters that is none")
    _must(type(printed) is str and len(printed) <= limits.MAX_PRINTED, "more print than is kept")
    _must(caught is None or (type(caught) is str and caught), "a banned name that is none")
    return {
        "calls": _calls(seen["calls"], seen["problem"], asked),
        "problem": _problem(seen["problem"]),
        "parameters": parameters,
        "printed": codec.printable(printed, "\n\t"),
        "disturbed": _names(seen["disturbed"], _DISTURBED),
        "caught": caught and _line(caught),
        "shapes": _shapes(seen["shapes"], asked),
    }


def _decoded(message, limit):
    try:
        return codec.decode(message, limit)
    except codec.CodecError as error:
        raise BadClaim(str(error)) from None


def _asked_in(message):
    return _kept(message) if len(message) < LARGE else _asked(Request(**codec.decode(message)))


@functools.lru_cache(maxsize=1024)  # every student is asked the same; bytes know their hash
def _kept(message):
    return _asked(Request(**codec.decode(message)))


def _asked(request):
    calls = [{**call["args"], **call["options"]} for call in request.calls]
    graded = request.cotangents is not None

    def leaves(call):
        tensors = {name: value for name, value in call.items() if isinstance(value, torch.Tensor) and graded}
        return {name: (value.shape, value.dtype) for name, value in tensors.items() if value.is_floating_point()}

    made = request.init or {"args": {}, "options": {}}  # an object may change later what it was made from
    handed = {*made["args"], *made["options"]}
    names = tuple(frozenset(call) | handed for call in calls)
    modules = request.kind == "module" or any(
        isinstance(part, codec.Fixture) for call in calls for part in call.values()
    )
    goes_on, kept = request.kind == "object", request.after == "keep"
    return _Asked(names, tuple(map(leaves, calls)), modules, graded, request.watch, goes_on, kept)


def _calls(claim, problem, asked):
    _must(type(claim) is list and (asked is None or len(claim) <= len(asked.names)), "more calls than were asked for")
    calls = [_call(call, asked, index) for index, call in enumerate(claim)]
    refused = asked is None or asked.goes_on
    ended = [call["raised"] for call in calls[:-1] if call["raised"]]
    _must(all(refused and "ValueError" in raised["is"] for raised in ended), "a call after one that failed")
    if problem is None:
        complete = bool(calls) if asked is None else len(calls) == len(asked.names)
        _must(complete or (calls and calls[-1]["raised"]), "fewer calls than were asked for")
    return calls


def _call(claim, asked, index):
    _must(type(claim) is dict and claim.keys() == _CALL, "a call of another form")
    names = None if asked is None else asked.names[index]
    plain = (
        None
        if asked is None
        else {name.lstrip("*") for name in names} | {_MODULE} | ({_ANSWER} if asked.kept else set())
    )
    return {
        "raised": None if claim["raised"] is None else _exception(claim["raised"]),
        "value": claim["value"],
        "grads": _gradients(claim["grads"], asked, index),
        "weight_grads": _weight_gradients(claim["weight_grads"], asked),
        "changed": _names(claim["changed"], plain),
        "shares": _names(claim["shares"], names),
    }


def _exception(claim):
    _must(type(claim) is dict and claim.keys() == _RAISED, "an exception of another form")
    _must(all(type(claim[part]) is str for part in ("type", "message", "where")), "an exception that says no words")
    classes = claim["is"]
    fits = type(classes) is list and len(classes) <= MAX_CLASSES and all(type(name) is str for name in classes)
    _must(fits, "an exception of no class")
    name, message = _line(claim["type"], 200), claim["message"][:MAX_WORDS]
    late = name == limits.TookTooLong.__name__  # the judge quotes the first line, and of these all
    return {
        "type": name if name.strip(": ") else "an exception without a name",
        "is": classes,
        "message": _line(message) if late else codec.printable(message, "\n\t"),
        "where": _line(claim["where"], 300),
    }


def _problem(claim):
    if claim is None:
        return None
    _must(type(claim) is dict, "a problem of another form")
    kind = claim.get("kind")
    if kind == "raised":
        return {"kind": kind, **_exception({part: value for part, value in claim.items() if part != "kind"})}
    _must(claim.keys() == {"kind", "message"} and type(kind) is str and kind in _PROBLEMS, "a problem of another kind")
    _must(type(claim["message"]) is str, "a problem that says no words")
    return {"kind": kind, "message": _line(claim["message"])}


def _gradients(claim, asked, index):
    """Gradients of arguments: each of its argument's shape and dtype, and none that was not asked for."""
    if claim is None:
        return None
    _must(type(claim) is dict and all(map(_is_gradient, claim.values())), "gradients of another form")
    if asked is None:
        _must(all(type(name) is str for name in claim), "a gradient of nothing")
        return claim
    leaves = asked.leaves[index]
    _must(asked.gradients and claim.keys() == leaves.keys(), "other gradients than were asked for")
    for name, gradient in claim.items():
        fits = not isinstance(gradient, torch.Tensor) or (gradient.shape, gradient.dtype) == leaves[name]
        _must(fits, "a gradient that does not fit its argument")
    return claim


def _weight_gradients(claim, asked):
    if claim is None:
        return None
    _must(asked is None or (asked.module and asked.gradients), "gradients of weights that there are not")
    _must(type(claim) is dict and all(type(name) is str for name in claim), "gradients of other things than weights")
    named = {name: grad for name, grad in claim.items() if name != "every parameter"}
    known = type(claim.get("every parameter", True)) is bool and all(map(_is_gradient, named.values()))
    _must(known, "gradients of another form")
    return claim


def _is_gradient(value):  # a sparse one travels as Other
    return value is None or type(value) in (torch.Tensor, codec.Other)


def _names(claim, allowed):
    _must(type(claim) is list and all(type(name) is str for name in claim), "names that are none")
    _must(len(set(claim)) == len(claim), "a name said twice")
    if allowed is None:
        return [_line(name, 200) for name in claim]
    _must(allowed.issuperset(claim), "a name of nothing that was handed over")
    return claim


def _shapes(claim, asked):
    _must(type(claim) is list, "shapes that are none")
    for shape in claim:
        _must(type(shape) is tuple and len(shape) == 2, "a shape that is none")
        _must(all(type(size) is int and size >= 0 for size in shape), "a shape that is none")
    _must(claim == sorted(set(claim)), "shapes out of order")
    _must(not claim or asked is None or asked.watch, "shapes that nobody asked for")
    return claim


def _line(text, length=MAX_LINE):
    shown = codec.printable(text[:length])
    return shown if len(text) <= length else shown + "…"


def _must(holds, otherwise):
    if not holds:
        raise BadClaim(otherwise)


# ---- outputs of a cell ---------------------------------------------------------------------------

# What a page may show. No image/svg+xml: it is a page of its own, with scripts and links. What else IPython sends
# beside these stands for the same thing in plain text.
_PICTURES = {"image/png": "iVBORw0KGgo", "image/jpeg": "/9j/"}  # and how one begins in base64
_PAGES = {"text/html", "text/markdown", "text/latex"}
_BASE64 = re.compile(r"[A-Za-z0-9+/\n]*+={0,2}\n?")
_COLOUR = re.compile("(\x1b\\[[0-9;]{0,40}m)")
_LEFT_OUT = "(More output than a notebook keeps: the rest is left out.)"


def cell_outputs(message, room=MAX_NOTEBOOK):
    """The outputs of a cell that a message holds, as valid nodes of nbformat. Raises BadClaim unless its form is right.

    room: characters that the notebook may still take; see `size_of`.
    """
    reply = _decoded(message, codec.MAX_BYTES)
    _must(type(reply) is dict and type(reply.get("outputs")) is list, "outputs of another form")
    kept = []
    for claim in reply["outputs"]:
        _must(type(claim) is dict, "an output of another form")
        output = _OUTPUTS.get(_text(claim, "output_type"), _unknown)(claim)
        room -= size_of([output])
        if room < 0 or len(kept) == MAX_OUTPUTS:
            kept.append(_node("stream", name="stdout", text=_LEFT_OUT + "\n"))
            break
        kept.append(output)
    return kept


def size_of(outputs):
    """The characters of some outputs, to be taken off the room of a notebook."""
    return sum(len(part) for output in outputs for part in _strings(output))


def _strings(node):
    if isinstance(node, str):
        yield node
    elif isinstance(node, (dict, list)):
        for part in node.values() if isinstance(node, dict) else node:
            yield from _strings(part)


def _text(claim, key):
    text = claim.get(key)
    _must(type(text) is str, "an output without words")
    return text


def _node(kind, **parts) -> NotebookNode:
    """An output, as nbformat.v4.new_output makes it; that one looks at its schema each time, which costs much."""
    return from_dict({"output_type": kind, **parts})


def _unknown(claim):
    raise BadClaim("an output of an unknown kind")


def _stream(claim):
    name = _text(claim, "name")
    _must(name in ("stdout", "stderr"), "a stream of another name")
    return _node("stream", name=name, text=_coloured(_text(claim, "text")))


def _display(claim):
    data = claim.get("data")
    _must(type(data) is dict and all(type(part) is str for part in (*data, *data.values())), "an output without data")
    shown = {kind: _part(kind, text) for kind, text in data.items()}
    shown = {kind: text for kind, text in shown.items() if text is not None}
    data = shown or {"text/plain": "(an output of a kind that is not kept)"}
    count = {"execution_count": None} if claim["output_type"] == "execute_result" else {}
    return _node(claim["output_type"], data=data, metadata={}, **count)


def _part(kind, text):
    """What is kept of one representation of an output, or None."""
    if kind == "text/plain":
        return _coloured(text)
    if len(text) > MAX_SHOWN:
        return None
    if kind in _PAGES:
        return codec.printable(text, "\n\t")
    return text if text.startswith(_PICTURES.get(kind, "no picture")) and _BASE64.fullmatch(text) else None


def _error(claim):
    lines = claim.get("traceback")
    _must(type(lines) is list and all(type(line) is str for line in lines), "an error without a traceback")
    traceback = _coloured("\n".join(lines)).split("\n")
    return _node(
        "error",
        ename=_line(_text(claim, "ename"), 200),
        evalue=codec.printable(_text(claim, "evalue")[:MAX_LINE], "\n\t"),
        traceback=traceback,
    )


_OUTPUTS = {"stream": _stream, "display_data": _display, "execute_result": _display, "error": _error}


def _coloured(text):
    """`text` as a terminal leaves it, with its colours and nothing else that moves or hides."""
    cut = f"\n… ({len(text) - MAX_WORDS} more characters)\n" if len(text) > MAX_WORDS else ""
    lines = text[:MAX_WORDS].replace("\r\n", "\n").split("\n")
    text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)  # a progress bar writes over itself
    parts = _COLOUR.split(text)
    parts[::2] = (codec.printable(part, "\n\t") for part in parts[::2])
    return "".join(parts) + cut
