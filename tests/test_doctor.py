"""`autograde doctor`: which walls hold here, why others do not, and that no lower tier is taken in silence."""

import io
import os
import subprocess
import sys

import pytest
from rich.console import Console

from autograde import doctor, probes, sandbox
from autograde.course import ROOT
from autograde.probes import Probe
from autograde.repair import Repair, System, diagnose

UBUNTU = {"ID": "ubuntu", "ID_LIKE": "debian", "NAME": "Ubuntu"}
RESTRICTED = {"kernel.apparmor_restrict_unprivileged_userns": 1, "user.max_user_namespaces": 90000}
UID_MAP = "start: the sandbox did not start: bwrap: setting up uid map: Permission denied"
LOOPBACK = "bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted"
NO_NAMESPACE = "bwrap: No permissions to create new namespace, likely because the kernel does not allow …"
PROC = "bwrap: Can't mount proc on /newroot/proc: Operation not permitted"
LOAD_PROFILE = "sudo apparmor_parser -r /etc/apparmor.d/bwrap"

# what was seen -> what has to be typed
DIAGNOSES = {
    "Debian without bubblewrap": ("", System(release={"ID": "debian"}, bwrap=None), "sudo apt install bubblewrap"),
    "Mint": ("", System(release={"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, bwrap=None), "sudo apt install"),
    "Fedora": ("", System(release={"ID": "fedora"}, bwrap=None), "sudo dnf install bubblewrap"),
    "Rocky": ("", System(release={"ID": "rocky", "ID_LIKE": "rhel centos fedora"}, bwrap=None), "sudo dnf install"),
    "Arch": ("", System(release={"ID": "arch"}, bwrap=None), "sudo pacman -S bubblewrap"),
    "Alpine": ("", System(release={"ID": "alpine"}, bwrap=None), "sudo apk add bubblewrap"),
    "openSUSE": ("", System(release={"ID": "opensuse-tumbleweed"}, bwrap=None), "sudo zypper install bubblewrap"),
    "an old bubblewrap": ("bwrap: Unknown option --perms", System(release=UBUNTU), "sudo apt install bubblewrap"),
    "AppArmor, uid map": (UID_MAP, System(release=UBUNTU, settings=RESTRICTED), LOAD_PROFILE),
    "AppArmor, loopback": (LOOPBACK, System(release=UBUNTU, settings=RESTRICTED), LOAD_PROFILE),
    "AppArmor's own profile for bwrap": (
        "start: no walls: [Errno 13] unshare: Permission denied",
        System(release=UBUNTU, settings=RESTRICTED, restricting_profile=True),
        "sudo apparmor_parser -R /etc/apparmor.d/bwrap-userns-restrict",
    ),
    "Debian's switch": (
        NO_NAMESPACE,
        System(release={"ID": "debian"}, settings={"kernel.unprivileged_userns_clone": 0}),
        "echo 'kernel.unprivileged_userns_clone=1' | sudo tee /etc/sysctl.d/90-autograde.conf && sudo sysctl --system",
    ),
    "no namespaces allowed": (
        "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
        System(settings={"user.max_user_namespaces": 0}),
        "user.max_user_namespaces=10000",
    ),
    "Docker": (NO_NAMESPACE, System(container=True), "docker run --security-opt seccomp=unconfined"),
    "Docker, on Ubuntu": (PROC, System(container=True, settings=RESTRICTED), "--security-opt systempaths=unconfined"),
    "WSL 1": (NO_NAMESPACE, System(kernel="4.4.0-19041-Microsoft", release=UBUNTU), "wsl --set-version Ubuntu 2"),
    "WSL 2": ("", System(kernel="5.15-microsoft-standard-WSL2", release=UBUNTU, bwrap=None), "sudo apt install"),
    "Windows": ("", System(platform="win32", bwrap=None), "wsl --install"),
    "macOS": ("", System(platform="darwin", bwrap=None), "limactl start"),
}


@pytest.mark.parametrize("what", DIAGNOSES)
def test_what_is_wrong_is_told_with_the_command_that_mends_it(what):
    """From what a failed start wrote, and from what machine this is, does the right command follow?"""
    reason, system, command = DIAGNOSES[what]
    assert command in diagnose(reason, system).command


def test_the_profile_names_the_bubblewrap_that_is_used():
    """Is the AppArmor profile for the very program that was refused, and does it allow namespaces?"""
    found = diagnose(UID_MAP, System(release=UBUNTU, settings=RESTRICTED, bwrap="/opt/bin/bwrap"))
    assert "profile bwrap /opt/bin/bwrap flags=(unconfined) {\n  userns," in found.command
    assert "setting up uid map: Permission denied" in found.why and "did not start" not in found.why


@pytest.mark.parametrize("reason", ["files: the canary was read", "start: Segmentation fault"])
def test_what_we_do_not_know_is_not_guessed(reason):
    """Is a reason of an unknown kind shown as it is, without a command?"""
    found = diagnose(reason, System(release=UBUNTU))
    assert not found.command and reason.removeprefix("start: ") in found.why


def test_this_machine_is_looked_at():
    """Does System.here() read this machine without a program's help?"""
    here = System.here()
    assert here.platform == sys.platform and here.kernel == os.uname().release


# ---- which tier ----------------------------------------------------------------------------------

HELD = [Probe("start", True, "a sandbox starts"), Probe("network", True, ""), Probe("disk", True, "")]
OPEN_DISK = [*HELD[:2], Probe("disk", False, "128 MiB")]
OPEN_NETWORK = [HELD[0], Probe("network", False, "reached over TCP"), HELD[2]]
NO_START = [Probe("start", False, UID_MAP)]


@pytest.mark.parametrize(
    ("full", "partial", "tier"),
    [
        (HELD, None, "full"),
        (OPEN_DISK, OPEN_DISK, "partial"),
        (NO_START, HELD, "partial"),
        (NO_START, OPEN_DISK, "partial"),
        (NO_START, OPEN_NETWORK, "none"),
        (NO_START, NO_START, "none"),
        ([], [], "none"),
    ],
)
def test_one_hole_makes_a_lower_tier(full, partial, tier):
    """Does a tier count only if all of its walls hold, where the partial one may lack what is listed?"""
    system = System(release=UBUNTU, settings=RESTRICTED)
    found = doctor.tier(system, {"full": full, "partial": partial}.get)
    assert found.tier == tier
    assert (found.repair is None) == (tier == "full")
    if full == NO_START:
        assert LOAD_PROFILE in found.repair.command


def test_on_windows_nothing_is_tried():
    """Is Windows told about WSL, and does doctor load there, where half of what the sandbox needs is missing?"""
    found = doctor.tier(System(platform="win32", bwrap=None), lambda tier: pytest.fail("tried"))
    assert found.tier == "none" and "wsl --install" in found.repair.command
    code = "import sys; sys.modules['resource'] = None; import autograde.doctor, autograde.repair"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize(("tier", "status"), [("full", 0), ("partial", 1), ("none", 3)])
def test_the_report_says_what_holds_and_how_to_mend_it(tier, status):
    """Do the table, the tier, the banner and the exact command stand in the report, and is the status right?"""
    console = Console(record=True, width=100, file=io.StringIO())
    mend = None if tier == "full" else Repair("AppArmor says no.", LOAD_PROFILE)
    assert doctor.report(console, doctor.Found(tier, OPEN_DISK, mend)) == status
    text = console.export_text()
    assert "✓ held" in text and "✗ open" in text and "128 MiB" in text and f"tier: {tier}" in text
    assert (LOAD_PROFILE in text) == (tier != "full") and ("SANDBOX" in text) == (tier != "full")


# ---- never in silence ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pinned", "found", "trusted", "runs"),
    [
        ("full", "full", False, True),
        ("partial", "full", False, True),
        ("full", "partial", False, False),
        ("partial", "partial", False, True),
        ("full", "none", False, False),
        ("partial", "none", False, False),
        ("none", "none", False, False),
        ("none", "partial", False, True),
        ("full", "none", True, True),
        ("none", "none", True, True),
    ],
)
def test_a_lower_tier_runs_only_if_it_was_asked_for(pinned, found, trusted, runs):
    """Does the tier "none" need the flag, "partial" the configuration, and does each show its banner?"""
    if runs:
        banner = doctor.require(pinned, found, "", trusted)
        assert bool(banner) == (found != "full")
    else:
        with pytest.raises(doctor.TierTooLow, match="nothing was graded") as caught:
            doctor.require(pinned, found, Repair("AppArmor says no.", LOAD_PROFILE), trusted)
        assert LOAD_PROFILE in str(caught.value) and isinstance(caught.value, sandbox.SandboxError)


def test_a_slip_in_the_configuration_is_an_error():
    """Is a tier that does not exist refused, and not taken for a low one?"""
    with pytest.raises(ValueError, match="no tier 'ful'"):
        doctor.require("ful", "full")


class Fake:
    """A sandbox that starts in some tiers only."""

    starts = ()

    def __init__(self, phase, limits, tier):
        self.tier = tier

    def __enter__(self):
        if self.tier not in self.starts:
            raise sandbox.SandboxError(UID_MAP)
        return self

    def __exit__(self, *error):
        pass


@pytest.mark.parametrize(
    ("starts", "pinned", "trusted", "tier"),
    [
        (("full", "partial"), "full", False, "full"),
        (("partial", "none"), "full", False, None),
        (("partial", "none"), "partial", False, "partial"),
        (("none",), "partial", False, None),
        (("none",), "none", False, None),
        (("partial", "none"), "full", True, "partial"),
        (("none",), "full", True, "none"),
    ],
)
def test_grading_starts_in_the_best_tier_that_is_allowed(monkeypatch, starts, pinned, trusted, tier):
    """Does a run take the highest tier that holds, and refuse with the repair before it goes too low?"""
    monkeypatch.setattr(sandbox, "Sandbox", Fake)
    monkeypatch.setattr(Fake, "starts", starts)
    monkeypatch.setattr(doctor, "confirm", lambda running: None)
    monkeypatch.setattr(System, "here", lambda: System(release=UBUNTU, settings=RESTRICTED))
    if tier is None:
        with pytest.raises(doctor.TierTooLow, match="apparmor_parser"), doctor.walled(None, None, pinned, trusted):
            pass
    else:
        with doctor.walled(None, None, pinned, trusted) as (running, banner):
            assert running.tier == tier and bool(banner) == (tier != "full")


def test_a_hole_found_by_the_quick_check_counts_as_no_start(monkeypatch):
    """If a sandbox starts but the network is open, is it refused as if it had not started?"""
    monkeypatch.setattr(sandbox, "Sandbox", Fake)
    monkeypatch.setattr(Fake, "starts", ("full", "partial", "none"))
    monkeypatch.setattr(probes, "quick", lambda running: OPEN_NETWORK)
    with pytest.raises(doctor.TierTooLow, match="reached over TCP"), doctor.walled():
        pass


# ---- for real ------------------------------------------------------------------------------------


def test_the_quick_check_holds_here_and_sees_holes_where_there_are_some():
    """Do the quick probes hold in the full tier, and does each of them find a hole where nothing is walled off?"""
    with doctor.walled() as (running, banner):
        assert running.tier == "full" and banner == ""
    with sandbox.Sandbox(tier="none") as bare:
        assert [one.name for one in probes.quick(bare) if one.held] == []
        doctor.confirm(bare)  # nothing is promised there


@pytest.mark.slow
def test_every_wall_of_the_full_tier_holds_here():
    """Does every probe of doctor hold on this machine?"""
    found = doctor.tier()
    assert found.tier == "full", [one for one in found.probes if not one.held]
    assert len(found.probes) == len(probes.FROM_INSIDE) + 3


@pytest.mark.slow
def test_probes_find_the_holes_of_a_bare_process():
    """Does a probe that says "held" mean it: do those that have nothing to lean on say "open"?"""
    holes = {one.name for one in probes.probe("none") if not one.held}
    assert holes >= {"network", "files", "writing", "processes", "signals", "disk"}


CONTAINER = """
import ctypes, os, sys
library = ctypes.CDLL("libseccomp.so.2")
library.seccomp_init.restype, library.seccomp_load.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
class Compare(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]
rules = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(0x7FFF0000)))
def refuse(name, error, *compare):
    number = library.seccomp_syscall_resolve_name(name)
    library.seccomp_rule_add_array(rules, ctypes.c_uint32(0x50000 | error), number, len(compare),
                                   (Compare * max(1, len(compare)))(*compare))
for name in (b"unshare", b"setns", b"mount", b"umount2", b"pivot_root"):
    refuse(name, 1)
refuse(b"clone3", 38)
for flag in (0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
    refuse(b"clone", 1, Compare(0, 7, flag, flag))
library.seccomp_load(rules)
from rich.console import Console
from autograde import doctor
raise SystemExit(doctor.report(Console(width=200)))
"""


@pytest.mark.slow
def test_where_no_namespace_can_be_made_doctor_finds_the_partial_tier():
    """Behind a filter such as a container's, does the report say why, what is left and how to get the rest?"""
    done = subprocess.run([sys.executable, "-c", CONTAINER], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "tier: partial" in done.stdout and "PARTIAL SANDBOX" in done.stdout
    assert "namespace" in done.stdout.lower().partition("partial sandbox")[2]
