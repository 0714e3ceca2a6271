"""The page at the end of a mock interview: what to study next, and the points by kind and phase. Markdown."""

from collections import defaultdict

from utils.drills.pages import KIND, clock
from utils.syllabus import headings
from utils.workspace import PHASES

SHOWN = 5  # sections named on the sheet
BACK = (
    "What was not known comes back in the drill, if its exercise has passed. All cards, passed or not: "
    "`workbook drill --unlock-all`, or `drills(unlock_all=True)` in the notebook."
)


def sheet(interview):
    """The score sheet of an interview that is over."""
    answered = [(asked.card, score, seconds) for asked, score, seconds in interview.done]
    left = len(interview.plan) - len(answered) - len(interview.skipped)
    counts = [(len(answered), "answered"), (len(interview.skipped), "skipped"), (left, "not reached")]
    counted = ", ".join(f"{number} {what}" for number, what in counts if number) or "no card"
    lines = [f"# Score sheet: {interview.level}", "", f"{counted[0].upper()}{counted[1:]}."]
    if answered:
        total = sum(score for _, score, _ in answered) / len(answered)
        lines[-1] += f" {total:.0%} of the points of what was answered."
    if not answered and not interview.skipped:
        return "\n".join(lines)
    lines += ["", "## Study next", "", *study_next(interview), ""]
    lines += [BACK] if any(score < 1 for _, score, _ in answered) else []
    phase = sorted(answered, key=lambda one: one[0].phase)
    lines += _table("kind", answered, lambda card: KIND[card.kind]) if answered else []
    lines += (
        _table("phase", phase, lambda card: f"{card.phase} {list(PHASES.values())[card.phase - 1]}") if phase else []
    )
    return "\n".join(lines)


def _table(head, answered, name):
    rows = defaultdict(list)
    for card, score, seconds in answered:
        rows[name(card)].append((card, score, seconds))
    lines = ["", f"| {head} | cards | points | time | planned |", "|---|--:|--:|--:|--:|"]
    for key, group in rows.items():
        share = sum(score for _, score, _ in group) / len(group)
        planned_minutes = sum(card.minutes for card, *_ in group)
        time = clock(sum(seconds for *_, seconds in group))
        lines.append(f"| {key} | {len(group)} | {share:.0%} | {time} | {planned_minutes:g} min |")
    return lines


def study_next(interview):
    """Lines on the sections where most was lost, skipped cards included; on being too slow, if nothing else."""
    lost = defaultdict(float)
    slow = []
    for asked, score, seconds in interview.done:
        lost[asked.card.phase, asked.card.section] += (1 - score) * asked.card.minutes
        if seconds > 90 * asked.card.minutes:
            slow.append(asked.card)
    for card in interview.skipped:
        lost[card.phase, card.section] += card.minutes
    worst = sorted((one for one in lost if lost[one]), key=lambda one: -lost[one])[:SHOWN]
    lines = [_place(list(PHASES)[phase - 1], section) for phase, section in worst]
    if slow:
        lines.append(f"- speed: {len(slow)} of {len(interview.done)} cards took half again their time or more")
    return lines or ["- nothing in particular: try the next level"]


def _place(phase, section):
    """A section with its title, and the notebook that has it."""
    title = headings(phase).get(section, "")
    return f"- section {section}{f' · {title}' if title else ''} ({phase})"
