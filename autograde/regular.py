"""Open folders and regular files only: no link is followed, no pipe waited for, no device touched."""

import os
import stat
from contextlib import contextmanager

from autograde.reading import Unreadable

FILE, FOLDER = "a file", "a folder"
KINDS = {
    stat.S_IFREG: FILE,
    stat.S_IFDIR: FOLDER,
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}  # all others are devices


def kind_of(name, inside=None):
    """What stands there, in words; None for nothing. `inside` is the descriptor of the folder it is in."""
    try:
        mode = os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode
    except OSError:
        return None
    return KINDS.get(stat.S_IFMT(mode), "a device")


@contextmanager
def opened_folder(name, inside=None):
    """A descriptor of a folder. Raises Unreadable."""
    kind = kind_of(name, inside)
    if kind not in (None, FOLDER):
        raise Unreadable(f"is {kind}: nothing in it is looked at")
    try:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inside)
    except OSError as error:
        raise Unreadable(f"cannot be opened: {_reason(error)}") from None
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def opened_file(inside, name):
    """A descriptor of a regular file, and its size. Raises Unreadable."""
    kind = kind_of(name, inside)
    if kind not in (None, FILE):
        raise Unreadable(f"is {kind}, not a file")
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        file = os.open(name, flags, dir_fd=inside)
    except OSError as error:
        raise Unreadable(f"cannot be opened: {_reason(error)}") from None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):  # it was exchanged since we looked
            raise Unreadable("is not a file")
        yield file, status.st_size
    except OSError as error:
        raise Unreadable(f"cannot be read: {_reason(error)}") from None
    finally:
        os.close(file)


def _reason(error):
    """An OSError in words."""
    if isinstance(error, FileNotFoundError):
        return "it is not there"
    return "this account may not read it" if isinstance(error, PermissionError) else (error.strerror or "it failed")
