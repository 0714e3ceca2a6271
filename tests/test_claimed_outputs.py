"""What a child claims as the outputs of its cells: valid for nbformat, bounded, and nothing in it moves or hides."""

import base64
import re

import nbformat
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_notebook

from autograde import claims
from autograde.claims import BadClaim
from tests.fuzz_codec import OUTPUTS
from tests.test_codec import texts, values
from utils.observe import codec

UNHURRIED = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(60)).decode()
JPEG = base64.encodebytes(b"\xff\xd8\xff" + bytes(90)).decode()


def shown(*outputs, **options):
    found = claims.cell_outputs(codec.encode({"outputs": list(outputs)}), **options)
    nbformat.validate(new_notebook(cells=[new_code_cell("1", outputs=found)]))
    return found


def stream(text, name="stdout"):
    return {"output_type": "stream", "name": name, "text": text}


def display(kind="display_data", **data):
    return {"output_type": kind, "data": {key.replace("_", "/"): part for key, part in data.items()}, "metadata": {}}


def error(*lines, ename="ValueError", evalue="no"):
    return {"output_type": "error", "ename": ename, "evalue": evalue, "traceback": list(lines)}


def test_honest_outputs_come_through_as_they_are():
    """Do text with colours, pictures, pages and errors stay what they were?"""
    red = "\x1b[31mred\x1b[0m and \x1b[1;38;5;208mbold\x1b[m: 3 × 4 = 12 — «ok» 🙂\n\ttab\n"
    pages = display(text_plain="<Figure>", text_html="<b>✓</b>\n", text_markdown="# a", text_latex="$x$")
    pictures = display("execute_result", text_plain=red, image_png=PNG, image_jpeg=JPEG)
    sent = [stream(red), stream("careful\n", "stderr"), pages, pictures, error(red, "ValueError: no")]
    found = shown(*sent)
    assert [one.get("text") for one in found[:2]] == [red, "careful\n"]
    assert found[2].data == pages["data"] and found[3].data == pictures["data"] and found[3].execution_count is None
    assert "\n".join(found[4].traceback) == red + "\nValueError: no" and found[4].ename == "ValueError"


def test_a_progress_bar_shows_its_end():
    """Is a line that was written over shown as it was left?"""
    text = "start\r\n 10%|█   |\r 99%|███ |\r100%|████|\nend\r"
    assert shown(stream(text))[0].text == "start\n100%|████|\nend"


PAINT = [
    "\x1b[2J",
    "\x1b[1;1H",
    "\x1b]0;title\x07",
    "\x1b[31",
    "\x9b31m",
    "\b\b",
    "\x00",
    "\u202e4/4",
    "\u2028",
    "\ud800",
]


@pytest.mark.parametrize("paint", PAINT, ids=ascii)
def test_what_moves_or_hides_is_named(paint):
    """Are cursor movements, titles, direction marks and broken characters written out wherever text is kept?"""
    text = f"before{paint}after"
    sent = [stream(text), display(text_plain=text, text_html=text, text_markdown=text, text_latex=text)]
    for output in shown(*sent, error(text, ename=text, evalue=text)):
        for part in claims._strings(output):
            assert paint not in part and part.isprintable() and part.encode(), part


def test_pictures_are_pictures():
    """Is everything that is not plain base64 of a PNG or JPEG left out, and its text kept?"""
    forged = ['iVBORw0KGgo="onerror="alert(1)', PNG + "<script>", "PHN2Zz4=", "", "/9j/ é", PNG + "==="]
    for picture in forged:
        assert shown(display(text_plain="<Figure>", image_png=picture))[0].data == {"text/plain": "<Figure>"}
    assert shown(display(text_plain="x", image_jpeg=PNG))[0].data == {"text/plain": "x"}


@pytest.mark.parametrize("kind", ["image/svg+xml", "application/javascript", "application/json", "text/x", "\x1b[2J"])
def test_other_kinds_of_output_are_left_out(kind):
    """Does an SVG (a page with scripts of its own) or any other kind leave its plain text, or a plain sentence?"""
    sent = display(text_plain="x")
    sent["data"][kind] = "<svg onload='alert(1)'/>"
    assert shown(sent)[0].data == {"text/plain": "x"}
    del sent["data"]["text/plain"]
    assert shown(sent)[0].data == {"text/plain": "(an output of a kind that is not kept)"}


def test_long_outputs_are_cut_and_say_so():
    """Is text cut to 100,000 characters with a note, and a page or picture that is too large left out?"""
    found = shown(stream("x" * 250_000), error(*["y" * 60_000] * 3), display(text_plain="z", text_html="h" * 4_000_001))
    assert found[0].text == "x" * 100_000 + "\n… (150000 more characters)\n"
    assert sum(map(len, found[1].traceback)) < 100_100 and "more characters" in found[1].traceback[-2]
    assert found[2].data == {"text/plain": "z"}
    big = PNG[:-1] + "A" * 3_000_000
    assert shown(display(image_png=big))[0].data["image/png"] == big


def test_outputs_are_limited_in_number_and_all_in_all():
    """Does a flood end with one sentence, for a cell and for a notebook?"""
    found = shown(*[stream("x\n")] * 300)
    assert len(found) == 201 and "left out" in found[-1].text
    found = shown(*[stream("x" * 90)] * 9, room=500)
    assert len(found) < 6 and "left out" in found[-1].text and claims.size_of(found[:-1]) <= 500
    assert claims.size_of(shown(stream("x" * 90))) >= 90


BAD = [
    None,
    [],
    {},
    {"outputs": {}},
    {"outputs": "stream"},
    {"outputs": [1]},
    {"outputs": [{}]},
    {"outputs": [{"output_type": "update_display_data"}]},
    {"outputs": [{"output_type": []}]},
    {"outputs": [stream(b"x")]},
    {"outputs": [stream(["a", "b"])]},
    {"outputs": [stream("x", "stdin")]},
    {"outputs": [stream("x", float("nan"))]},
    {"outputs": [{"output_type": "display_data"}]},
    {"outputs": [display(text_plain=["x"])]},
    {"outputs": [{"output_type": "display_data", "data": {1: "x"}}]},
    {"outputs": [error(1)]},
    {"outputs": [error("x", ename=None)]},
    {"outputs": [error("x") | {"traceback": "x"}]},
]


@pytest.mark.parametrize("reply", BAD, ids=str)
def test_forged_replies_are_refused(reply):
    """Is a reply that no honest child gives refused, in words that are ours?"""
    with pytest.raises(BadClaim, match="^[a-z ]+$"):
        claims.cell_outputs(codec.encode(reply))


kinds = st.sampled_from(["text/plain", "text/html", "image/png", "image/svg+xml"]) | texts
marks = texts | st.sampled_from([*PAINT, PNG, "\x1b[31mred"])
parts = {
    "output_type": st.sampled_from(["stream", "display_data", "execute_result", "error"]),
    "name": st.sampled_from(["stdout", "stderr"]),
    "text": marks,
    "data": st.dictionaries(kinds, marks, max_size=3),
    "metadata": values,
    "ename": marks,
    "evalue": marks,
    "traceback": st.lists(marks, max_size=3),
}
replies = st.fixed_dictionaries({"outputs": st.lists(st.fixed_dictionaries(parts), max_size=4)})


@UNHURRIED
@given(replies)
def test_any_reply_of_the_right_form_is_shown(reply):
    """Are the outputs valid, with nothing in them but plain characters, line ends, tabs and colours?"""
    for output in shown(*reply["outputs"]):
        for text in claims._strings(output):
            plain = re.sub("\x1b\\[[0-9;]*m|[\n\t]", "", text)
            assert codec.printable(plain) == plain


@UNHURRIED
@given(values | st.fixed_dictionaries({"outputs": st.lists(st.dictionaries(st.sampled_from(list(parts)), values))}))
def test_any_other_reply_is_shown_or_refused(reply):
    """Does no reply at all raise anything but BadClaim?"""
    try:
        found = claims.cell_outputs(codec.encode(reply))
    except BadClaim:
        return
    nbformat.validate(new_notebook(cells=[new_code_cell("1", outputs=found)]))


def test_the_outputs_of_the_fuzz_are_honest():
    """Do mutated outputs start from ones that come through?"""
    assert [one.output_type for one in shown(*OUTPUTS["outputs"])] == ["stream", "display_data", "error"]
