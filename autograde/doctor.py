"""Which tier of walls this machine gives, what a lower one lacks, and that none is taken in silence.

found = doctor.tier()                      # tries everything: some seconds
with doctor.walled(phase) as (sandbox, banner):   # a started sandbox of the tier that is wanted, tried in short
"""

import contextlib
import os
from typing import NamedTuple

from rich.markup import escape
from rich.table import Table

from autograde import repair

STATUS = {"full": 0, "partial": 1, "none": 3}
ORDER = ("none", "partial", "full")

# what the lower tiers do not hold, and doctor says so
LACKS = {
    "partial": {
        "disk": "a submission can fill the disk below its own folder until its time is over",
        "forks": "on macOS there is no limit of its own on processes",
        "memory": "on macOS there is no limit on memory",
        "processes": "on macOS other processes can be listed",
        "survivors": "on macOS a process that leaves its group outlives its session",
    },
}
BANNERS = {
    "partial": (
        "PARTIAL SANDBOX: no namespaces here. Submissions run among your own processes, behind Landlock or "
        "sandbox-exec; they can see which files exist, and fill your disk. "
        "`autograde doctor` tells how to get the full one."
    ),
    "none": "NO SANDBOX: submissions run with your own rights. You said that you trust every one of them.",
}


class Found(NamedTuple):
    """The tier, the probes that were made in it, and how to get the full one (None if this is it)."""

    tier: str
    probes: list
    repair: repair.Repair | None


def tier(system=None, attempt=None):
    """Try the tiers from the top. attempt(tier) -> probes; system: what a diagnosis looks at (both for tests)."""
    system = system or repair.System.here()
    if system.platform == "win32":
        return Found("none", [], repair.diagnose("", system))
    if attempt is None:
        from autograde.probes import probe as attempt  # not on Windows: it lacks half of what this needs

    full = attempt("full")
    if good_enough("full", full):
        return Found("full", full, None)
    mend = repair.diagnose("; ".join(f"{one.name}: {one.detail}" for one in full if not one.held), system)
    partial = attempt("partial")
    if good_enough("partial", partial):
        return Found("partial", partial, mend)
    return Found("none", partial, mend)


def good_enough(name, probes):
    """Does everything hold that has to hold in that tier?"""
    may_fail = LACKS.get(name, {})
    if os.uname().sysname != "Darwin":
        may_fail = {"disk"} & set(may_fail)
    return bool(probes) and all(one.held or one.name in may_fail for one in probes)


# ---- never in silence ----------------------------------------------------------------------------


class TierTooLow(repair.SandboxError):
    """The walls here are lower than the ones that are wanted; the message says how to get those."""


def require(pinned, found, mend="", trusted=False):
    """May a tier be used? Returns the banner to show on every page and run, "" for full; raises TierTooLow otherwise.

    pinned: the lowest tier the course's configuration accepts; trusted: --i-trust-these-submissions was given, and
    nothing else opens the tier "none".
    """
    for name in (pinned, found):
        if name not in ORDER:
            raise ValueError(f"there is no tier {name!r}: {', '.join(reversed(ORDER))}")
    if found == "full":
        return ""
    if trusted or (found == "partial" and pinned != "full"):
        return BANNERS[found]
    raise TierTooLow(_refusal(pinned, found, mend))


def _refusal(pinned, found, mend):
    if found == "partial":
        ways = 'or accept these walls: c.MarkInSandbox.tier = "partial" in nbgrader_config.py'
    else:
        ways = "or say --i-trust-these-submissions, if each of them may do what you may do"
    wanted = "full" if pinned == "none" else pinned
    lines = [f"This machine gives the tier {found!r}, and {wanted!r} is needed: nothing was graded.", str(mend), ways]
    return "\n\n".join(line for line in lines if line)


@contextlib.contextmanager
def walled(phase=None, limits=None, pinned="full", trusted=False):
    """(a started sandbox, its banner): of the highest tier that holds. Raises TierTooLow before it goes too low."""
    from autograde.sandbox import Sandbox

    mend = ""
    for name in reversed(ORDER):
        banner = require(pinned, name, mend, trusted)
        with contextlib.ExitStack() as stack:
            try:
                sandbox = stack.enter_context(Sandbox(phase, limits, name))
                confirm(sandbox)
            except repair.SandboxError as error:
                if name == "none":
                    raise
                mend = mend or repair.diagnose(str(error), repair.System.here())
                continue
            yield sandbox, banner
            return


def confirm(sandbox):
    """The cheap check of every run: do network, files and processes hold? Raises SandboxError if not."""
    from autograde.probes import quick

    if sandbox.tier == "none":
        return
    found = quick(sandbox)
    if not good_enough(sandbox.tier, found):
        holes = "; ".join(f"{one.name}: {one.detail}" for one in found if not one.held)
        raise repair.SandboxError(f"the {sandbox.tier} sandbox has a hole here: {holes}")


# ---- for people ----------------------------------------------------------------------------------


def report(console, found=None):
    """Print what was tried, the tier and the repair. Returns the exit status: 0 full, 1 partial, 3 none."""
    found = found or tier()
    if found.probes:
        console.print(table(found))
    console.print(f"tier: [bold]{found.tier}[/bold]", highlight=False)
    if found.tier in BANNERS:
        console.print(BANNERS[found.tier], markup=False, highlight=False)
    if found.repair:
        console.print(f"\n{found.repair}", markup=False, highlight=False, soft_wrap=True)
    return STATUS[found.tier]


def table(found):
    """What was tried, one row each."""
    tried = "partial" if found.tier == "none" else found.tier
    shown = Table("tried", "", "seen", title=f"walls of the tier {tried!r}", title_justify="left")
    for one in found.probes:
        mark = "[green]✓ held[/green]" if one.held else "[red]✗ open[/red]"
        lacking = "" if one.held else LACKS.get(found.tier, {}).get(one.name, "")
        shown.add_row(one.name, mark, escape(f"{one.detail} ({lacking})" if lacking else one.detail))
    return shown
