"""What a check says: the score, the aspects, and the few lines a learner reads."""

from dataclasses import dataclass

from utils.checks.judge import ASPECTS

MARK = {True: "✓", False: "✗", None: "–"}


@dataclass(frozen=True)
class Report:
    """The verdict on one object.

    score    0..1, the earned share: nothing unless the values of the simplest cases are right, then each aspect whole
    aspects  {"shape": True, "values": False, "gradients": None, …}; None where the exercise has no such aspect
    likely   the known mistake that reproduces what was observed, or None
    message  the lines a learner reads
    """

    name: str
    score: float
    aspects: dict
    likely: str | None
    message: str

    @property
    def passed(self):
        return self.score == 1

    def text(self, points):
        """The message, with the points earned."""
        earned = f"{round(self.score * points, 2):g}/{points:g}"
        aspects = " ".join(f"{name} {MARK[ok]}" for name, ok in self.aspects.items() if ok is not None)
        if self.passed:
            return f"✓ {self.name} · {earned} · {aspects or self.message}"
        return f"{self.message}\n  so far    {earned} points" + (f" · {aspects}" if aspects else "")


def score_of(aspects, simplest, whole):
    """Points share from aspect verdicts. `simplest`: are the values of the cases right that all else rests on?"""
    applying = {name: share for name, share in ASPECTS.items() if aspects[name] is not None}
    if not simplest or (whole and not all(aspects[name] for name in applying)):
        return 0.0
    if all(aspects[name] for name in applying):
        return 1.0
    return sum(share for name, share in applying.items() if aspects[name]) / sum(applying.values())


def failure(name, where, finding, likely, hint, hidden=False, printed=""):
    """The lines for a failed case: name, expected, got, likely, hint. A hidden case shows no name and no numbers."""
    lines = [f"✗ {name} · {where}"]
    if hidden:
        lines.append(f"  differs   {', '.join(finding.spoils)}")
    else:
        lines += [f"  expected  {finding.expected}", f"  got       {finding.got}"]
    if likely:
        lines.append(f"  likely    {likely}")
    lines.append(f"  hint      {hint}")
    if printed.strip():
        shown = printed.strip().splitlines()
        lines += [f"  printed   {line[:110]}" for line in shown[:4]]
        lines += [f"            … {len(shown) - 4} more lines"] if len(shown) > 4 else []
    return "\n".join(lines)


def blank(name, section):
    """The lines for a stub that nobody has touched."""
    return (
        f"✗ {name} · not implemented yet\n  hint      Section {section}: fill in the cell above, run it, then this one."
    )
