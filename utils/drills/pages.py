"""What both fronts say around a card: heading, hints, feedback, the page at the end. Markdown, and how it is shown."""

from datetime import timedelta

from utils.drills.schedule import day_of

KIND = {
    "recall": "in your own words",
    "choice": "choice",
    "numeric": "numbers",
    "code": "code",
    "shape": "shapes",
    "bug": "bug hunt",
    "design": "system design",
}
HINTS = {
    "recall": "Say it aloud or write it down, then look at the model answer and tick what you had.",
    "design": "Sketch your design, with numbers, then look at the model answer and tick what you had.",
    "choice": "Choose one: its number, then Enter.",
    "numeric": "A number; 2^20, 3e9, 2*12*64 and 4 MiB are read, too.",
    "shape": "The shape of each expression: 2 5, or () for a single number.",
    "bug": "The number of the fault, or a call that exposes it; a tuple of sizes stands for random numbers.",
    "code": "Write it. The same check as in the course decides; each failing try costs a little.",
}


def heading(session):
    """One line: where the card is from, its kind and level, the time on it, what else is waiting."""
    waiting = session.status()
    if session.asked is None:
        return waiting
    card = session.asked.card
    time = f"{clock(session.seconds())} of {card.minutes:g} min"
    return " · ".join([waiting, card.section, KIND[card.kind], card.level, time])


def clock(seconds):
    """Minutes and seconds, 4:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def reply_hint(asked):
    return HINTS[asked.card.kind]


def number_hint(asked):
    unit = asked.question.unit
    return f"a number, in {unit}" if unit else "a number"


def model_answer(session):
    return f"**A model answer**\n\n{session.model_answer()}"


def verdict(feedback):
    """(The verdict on a reply in one line, what else is said to it), Markdown."""
    first, _, rest = feedback.text.partition("\n")
    if first.startswith("```"):
        first, rest = "Not yet. Mend it and answer again.", feedback.text
    mark = "✓" if feedback.right else "◐" if feedback.score >= 0.5 else "✗"
    return f"{mark} {first}", rest.strip("\n")


def after(feedback, session):
    """What is said below the verdict: reasons, model answer, what an interviewer would ask next, when it comes back."""
    parts = list(filter(None, [verdict(feedback)[1]]))
    if not feedback.final:
        return "".join(parts)
    if feedback.answer.strip():
        parts.append(f"**A model answer**\n\n{feedback.answer}")
    if feedback.follow_ups:
        parts.append("**Next they would ask**\n\n" + "\n".join(f"- {one}" for one in feedback.follow_ups))
    parts.append(f"*{session.comes_back(feedback)} Enter: next card.*")
    return "\n\n".join(parts)


def when(due, moment):
    """A due time as people say it: in 10 minutes, tomorrow, in 3 days, in 2 months."""
    due = due.astimezone(moment.tzinfo)
    if due - moment < timedelta(hours=12) and day_of(due) == day_of(moment):
        return f"in {max(1, round((due - moment).total_seconds() / 60))} minutes"
    days = max(1, (day_of(due).date() - day_of(moment).date()).days)
    if days < 60:
        return "tomorrow" if days == 1 else f"in {days} days"
    return f"in {round(days / 30.4)} months"


def closing(session):
    """The page at the end of a session: what was done, and when to come back."""
    done = len(session.done)
    right = sum(score == 1 for _, score, _ in session.done)
    head = "# That is all for now" if session.deck else "# No card is open yet"
    lines = [head, f"{right} of {done} right." if done else "No card is waiting."]
    due = session.next_due()
    if due is not None:
        lines.append(f"The next card comes back {when(due, session.clock())}.")
    if not session.deck:
        lines.append(NOTHING_OPEN)
    return "\n\n".join(lines)


def spoken(text, urgent=False):
    """One line of Markdown as HTML that a screen reader says the moment it appears: at once, or after its sentence."""
    role = 'role="alert" aria-live="assertive"' if urgent else 'role="status" aria-live="polite"'
    return f"<div {role}>{html(text)}</div>" if text else ""


NOTHING_OPEN = (
    "Cards open when their exercise passes its check. To drill all of them today: "
    "`workbook drill --unlock-all`, or `drills(unlock_all=True)` in the notebook."
)


def html(text):
    """Markdown as HTML; HTML in it is shown, not obeyed."""
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
