"""From a reply to a verdict: what each kind of card takes for an answer, and what it says to it.

What needs torch is imported on use, so that a drill opens at once.
"""

import ast
import operator
import random
import re
from dataclasses import dataclass

from utils.drills.card import Card, Question

SELF_JUDGED = ("recall", "design")  # the learner ticks what the answer held, after reading the model answer


class Unclear(ValueError):
    """A reply that cannot be judged; the text says why. Nothing is recorded, the card stays on the table."""


@dataclass(frozen=True)
class Asked:
    """A card on the table, as it is asked this time: numbers drawn, options shuffled, from the seed.

    options   of a choice or bug card, in the order shown; `right` is the place of the right one
    rubric    of a recall or design card: the texts to tick
    """

    card: Card
    seed: int
    prompt: str
    options: tuple = ()
    right: int | None = None
    because: tuple = ()
    question: Question | None = None

    @property
    def rubric(self):
        return tuple(point["for"] for point in self.card.rubric)


@dataclass(frozen=True)
class Verdict:
    """score 0 to 1; text: what is said to the reply, Markdown; final: is the card done with it?"""

    score: float
    text: str
    final: bool = True

    @property
    def right(self):
        return self.score == 1


def ask(card, seed):
    """The card as it is asked with this seed: the same seed asks the same."""
    draw = random.Random(seed)
    if card.kind == "numeric":
        question = card.make(draw)
        return Asked(card, seed, f"{question.prompt}\n\n{_how(question)}", question=question)
    if card.kind in ("choice", "bug"):
        options = card.options if card.kind == "choice" else (card.fault, *card.others)
        because = card.because if card.kind == "choice" else ("",) * 4
        order = draw.sample(range(len(options)), len(options))
        shown = dict(options=tuple(options[n] for n in order), because=tuple(because[n] for n in order))
        return Asked(card, seed, _with_code(card), right=order.index(card.right or 0), **shown)
    return Asked(card, seed, _with_code(card) if card.kind == "shape" else card.prompt)


def _how(question):
    """In which unit, and how exactly, a numeric card is answered."""
    exact = f"up to {100 * question.tolerance:g} % off is right" if question.tolerance else "it must be exact"
    return f"Answer in {question.unit}: {exact}." if question.unit else f"Answer with a number: {exact}."


def _with_code(card):
    return f"{card.prompt}\n\n```python\n{card.code.rstrip()}\n```" if card.code else card.prompt


def judge(asked, reply):
    """The Verdict on a reply. Raises Unclear for one that is no answer at all.

    reply, by kind: recall, design: the places of the ticked points; choice: a place in options; bug: the same, or a
    call that exposes the fault; numeric: what was typed; shape: one line per ask; code: the source.
    """
    return JUDGES[asked.card.kind](asked, reply)


def _ticked(asked, reply):
    rubric = asked.card.rubric
    places = set(reply)
    if not places <= set(range(len(rubric))):
        raise Unclear(f"Tick some of the {len(rubric)} points, or none.")
    earned = sum(rubric[place]["points"] for place in places)
    total = sum(point["points"] for point in rubric)
    missed = [f"- {point['for']}" for place, point in enumerate(rubric) if place not in places]
    text = f"{earned:g} of {total:g} points." + ("\n\nStill missing:\n" + "\n".join(missed) if missed else "")
    return Verdict(earned / total, text)


def solved(asked):
    """What would have been right, Markdown: for somebody who does not know. The model answer comes after it."""
    card = asked.card
    if card.kind == "numeric":
        return f"It is {_truth(asked.question)}. {asked.question.working}"
    if card.kind == "shape":
        rows = (f"- `{ask_}` is `{wanted}`" for ask_, wanted in zip(card.asks, card.answers, strict=True))
        return "\n".join(["These are the shapes:", "", *rows])
    if card.kind == "choice":
        return f"**{asked.options[asked.right]}**: {asked.because[asked.right]}"
    if card.kind == "code":
        return f"Section {card.section} builds it step by step, with hints."
    return card.fault if card.kind == "bug" else "Now you have read it."


def _truth(question):
    return f"{question.answer:,.6g}{f' {question.unit}' if question.unit else ''}".replace(",", " ")


def option_typed(asked, typed):
    """The place of the option whose number was typed. Raises Unclear if there is none."""
    number = typed.strip().rstrip(".)")
    if not number.isdecimal() or not 1 <= int(number) <= len(asked.options):
        call = ", or a call" if asked.card.kind == "bug" else ""
        raise Unclear(f"Type the number of an option, 1 to {len(asked.options)}{call}.")
    return int(number) - 1


def _chosen(asked, reply):
    if type(reply) is not int or not 0 <= reply < len(asked.options):
        raise Unclear(f"Choose one of the {len(asked.options)} options.")
    if asked.card.kind == "bug":
        said = "That is the fault." if reply == asked.right else f"It is another one: {asked.card.fault}"
        return Verdict(float(reply == asked.right), said)
    lines = [
        f"- **{'right' if place == asked.right else 'wrong'}** · {option}: {why}"
        for place, (option, why) in enumerate(zip(asked.options, asked.because, strict=True))
    ]
    head = "Right." if reply == asked.right else "Not this one."
    return Verdict(float(reply == asked.right), "\n".join([head, "", *lines]))


def _number(asked, reply):
    question, value = asked.question, number(reply, asked.question.unit)
    truth = _truth(question)
    if question.agrees(value):
        return Verdict(1.0, f"Right: {truth}. {question.working}")
    slip = question.slip(value)
    likely = f"\n\n**Likely**: {slip}" if slip else ""
    return Verdict(0.0, f"It is {truth}.{likely}\n\n{question.working}")


def _shapes(asked, reply):
    lines = [line for line in reply.strip().splitlines() if line.strip()] if isinstance(reply, str) else list(reply)
    card = asked.card
    if len(lines) != len(card.asks):
        asks = ", ".join(f"`{one}`" for one in card.asks)
        raise Unclear(f"One shape for each of the {len(card.asks)} expressions, please: {asks}")
    rows, right = [], 0
    for ask_, line, wanted in zip(card.asks, lines, card.answers, strict=True):
        got = shape(line)
        right += got == wanted
        rows.append(f"- `{ask_}` is `{wanted}`" + ("" if got == wanted else f", and you said `{got}`"))
    return Verdict(right / len(lines), "\n".join([f"{right} of {len(lines)} right.", "", *rows]))


def _bug(asked, reply):
    if type(reply) is int:
        return _chosen(asked, reply)
    from utils.drills.workbench import expose

    report = expose(asked.card, reply)
    if report.passed:
        return Verdict(0.0, "With this call it does exactly what it should. Look for another one.", final=False)
    return Verdict(1.0, f"That exposes it.\n\n```text\n{report.message}\n```\n\n{asked.card.fault}")


def _code(asked, reply):
    from utils.drills.workbench import judge_code

    report, twist = judge_code(asked.card, reply)
    if not report.passed:
        return Verdict(report.score * 0.5, f"```text\n{report.message}\n```", final=False)
    if twist is None:
        return Verdict(1.0, "It passes its check.")
    question = f"It passes its check.\n\n**Twist**: {asked.card.twist.question}"
    if twist.passed:
        return Verdict(1.0, f"{question}\n\nYours does that, too.")
    return Verdict(0.75, f"{question}\n\n```text\n{twist.message}\n```", final=False)


JUDGES = {
    "recall": _ticked,
    "design": _ticked,
    "choice": _chosen,
    "numeric": _number,
    "shape": _shapes,
    "bug": _bug,
    "code": _code,
}

# ---- what is typed -------------------------------------------------------------------------------

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
SIZES = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "%": 0.01}
SIZE = r"(ki|mi|gi|ti|k|m|g|t|%)(?:b|bytes?)?"


def number(text, unit=""):
    """The number that was typed: 1 048 576, 1,024, 2^20, 3e9, 2*12*64, 1/8, 4 Mi, 12 %. Raises Unclear.

    unit: what is asked for; it may be typed, too, and sizes (Ki, M, %) are turned into it
    """
    said = str(text).strip().lower().replace("−", "-").replace("·", "*").replace("×", "*")
    said = said.removesuffix(unit.lower()) if unit else said
    size = re.search(rf"(?<=[\d.)])\s*{SIZE}$", said) if said == str(text).strip().lower() or not unit else None
    said = re.sub(r"(?<=\d)[ _,\u202f\u00a0](?=\d{3}(\D|$))", "", said[: size.start()] if size else said)
    try:
        value = float(_value(ast.parse(said.strip().lstrip("≈~= ").replace("^", "**"), mode="eval").body))
    except (SyntaxError, ValueError, ArithmeticError, TypeError, MemoryError, RecursionError):
        example = "Write `1024`, `2^20`, `3e9`, `2*12*64` or `1/8`."
        typed = str(text).strip()
        said = f"`{typed}` is not read as a number." if typed else "Nothing is typed yet."
        raise Unclear(f"{said} {example}") from None
    wanted = re.fullmatch(SIZE, unit.lower())
    return value * SIZES[size[1]] / (SIZES[wanted[1]] if wanted else 1) if size else value


def _value(node):
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow) and (abs(right) > 400 or abs(left) > 1e6):
            raise ValueError
        return OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_value(node.operand))
    raise ValueError


def shape(text):
    """The shape that was typed: (2, 5), 2 5, 2x5, torch.Size([2, 5]); () or "scalar" for none. Raises Unclear."""
    said = str(text).strip().lower()
    if re.fullmatch(r"scalar|\(\s*\)|\[\s*\]|torch\.size\(\[\s*\]\)", said):
        return ()
    if not re.fullmatch(r"(torch\.size)?[\s\[(]*\d+(\s*[\s,x×]\s*\d+)*[\s,\])]*", said):
        raise Unclear(f"`{str(text).strip()}` is not read as a shape. Write `(2, 5)`, or `()` for a single number.")
    return tuple(int(size) for size in re.findall(r"\d+", said))
