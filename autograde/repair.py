"""Why the full sandbox does not start here, and the exact command that mends it."""

import os
import platform
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

SETTINGS = (
    "kernel.apparmor_restrict_unprivileged_userns",
    "kernel.unprivileged_userns_clone",
    "user.max_user_namespaces",
)
INSTALL = {  # ID or ID_LIKE of /etc/os-release -> how a package is installed
    "debian": "sudo apt install",
    "ubuntu": "sudo apt install",
    "fedora": "sudo dnf install",
    "rhel": "sudo dnf install",
    "centos": "sudo dnf install",
    "arch": "sudo pacman -S",
    "alpine": "sudo apk add",
    "suse": "sudo zypper install",
    "opensuse": "sudo zypper install",
}
REFUSED = re.compile(
    r"uid map|RTM_NEWADDR|namespace|unshare|mount|not permitted|[Pp]ermission denied|No space left|ENOSPC"
)
RESTRICTING = "/etc/apparmor.d/bwrap-userns-restrict"

PROFILE = """\
sudo tee /etc/apparmor.d/bwrap >/dev/null <<'EOF'
abi <abi/4.0>,
include <tunables/global>

profile bwrap {bwrap} flags=(unconfined) {{
  userns,
  include if exists <local/bwrap>
}}
EOF
sudo apparmor_parser -r /etc/apparmor.d/bwrap"""
DOCKER = (
    "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
    "--security-opt systempaths=unconfined …"
)


class SandboxError(Exception):
    """The sandbox cannot be started here; the message says why and what to do."""


@dataclass(frozen=True)
class System:
    """What a diagnosis looks at."""

    platform: str = "linux"
    release: dict = field(default_factory=dict)  # of /etc/os-release
    kernel: str = ""
    bwrap: str | None = "/usr/bin/bwrap"
    settings: dict = field(default_factory=dict)  # those of SETTINGS that exist here
    container: bool = False
    restricting_profile: bool = False  # Ubuntu's own profile, which leaves what runs inside bwrap no namespaces

    @classmethod
    def here(cls):
        """This machine."""
        if sys.platform == "win32":
            return cls(platform="win32", bwrap=None)
        try:
            release = platform.freedesktop_os_release()
        except OSError:
            release = {}
        return cls(
            platform=sys.platform,
            release=release,
            kernel=os.uname().release,
            bwrap=shutil.which("bwrap"),
            settings={name: value for name in SETTINGS if (value := _setting(name)) is not None},
            container=any(map(os.path.exists, ("/.dockerenv", "/run/.containerenv"))),
            restricting_profile=os.path.exists(RESTRICTING),
        )


def _setting(name):
    try:
        return int(Path("/proc/sys", *name.split(".")).read_text())
    except (OSError, ValueError):
        return None


@dataclass(frozen=True)
class Repair:
    """Why, and what to type. `command` is empty where we know none."""

    why: str
    command: str = ""

    def __str__(self):
        return f"{self.why}\n\n{self.command}" if self.command else self.why


def diagnose(reason, system):
    """The repair for a full sandbox that did not start, or did not hold, for that reason."""
    reason = re.sub(r"^start: |the sandbox did not start: ", "", reason).rstrip(".")
    if system.platform == "win32":
        return Repair("Windows has no such walls. Grade in WSL 2 (in an administrator's PowerShell):", "wsl --install")
    if system.platform == "darwin":
        how = "brew install lima && limactl start && limactl shell default"
        return Repair("macOS has no namespaces. For the full tier grade in a Linux virtual machine:", how)
    if "microsoft" in system.kernel.lower() and "wsl2" not in system.kernel.lower():
        distribution = system.release.get("NAME", "Ubuntu").split()[0]
        return Repair("WSL 1 has no namespaces. In PowerShell:", f"wsl --set-version {distribution} 2")
    if system.bwrap is None:
        return _install("bubblewrap is not installed.", system)
    if "Unknown option" in reason:
        return _install(f"bubblewrap is too old, we need 0.5 or later ({reason}).", system)
    if REFUSED.search(reason):
        return _refused(reason, system)
    return Repair(f"The full sandbox does not work here, and we do not know why: {reason}")


def _install(why, system):
    names = [system.release.get("ID", ""), *system.release.get("ID_LIKE", "").split()]
    how = next((INSTALL[known] for name in names for known in INSTALL if name.startswith(known)), None)
    if how is None:
        return Repair(f"{why} Install your system's package `bubblewrap`.")
    return Repair(why, f"{how} bubblewrap")


def _refused(reason, system):
    """The kernel, or a container around us, does not let ordinary users make namespaces."""
    settings = system.settings
    if settings.get("kernel.unprivileged_userns_clone") == 0:
        return _set("kernel.unprivileged_userns_clone", 1)
    if settings.get("user.max_user_namespaces") == 0 or "ENOSPC" in reason or "No space left" in reason:
        return _set("user.max_user_namespaces", 10000)
    if system.container:
        why = "This is a container, and it may not make namespaces. Grade in a virtual machine, or start it with:"
        return Repair(f"{why[:-1]} ({reason}):", DOCKER)
    if settings.get("kernel.apparmor_restrict_unprivileged_userns") == 1:
        command = PROFILE.format(bwrap=system.bwrap)
        if system.restricting_profile:
            off = f"sudo ln -sf {RESTRICTING} /etc/apparmor.d/disable/\nsudo apparmor_parser -R {RESTRICTING}"
            command = f"{off}\n{command}"
        return Repair(f"AppArmor lets no program make namespaces unless a profile says so ({reason}).", command)
    return Repair(f"Something on this machine refuses namespaces: {reason}. If all else fails, grade in a Linux VM.")


def _set(name, value):
    how = f"echo '{name}={value}' | sudo tee /etc/sysctl.d/90-autograde.conf && sudo sysctl --system"
    return Repair(f"This system's setting {name} keeps ordinary users from making namespaces.", how)
