"""Inside, on Linux: walls for one process and all that it starts, made without any privilege, for the partial tier.

Landlock (a kernel's own, since Linux 6.2 in the form we need) says which folders can be read and written, and keeps
signals and abstract sockets in. libseccomp takes the system calls away that Landlock has no word for: sockets of every
kind, changing modes, owners and times, limits of other processes, keys, messages between processes. The full tier
takes one thing from here: memory that no limit counts.
"""

import ctypes
import errno
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same numbers on every processor
_PATH_BENEATH, _PR_SET_NO_NEW_PRIVS = 1, 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_A_FILE = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_TCP, _SCOPES = 0b11, 0b11  # bind and connect; abstract sockets and signals
OLDEST = 3  # before it, any file can be emptied

DEVICES = {"/dev/null": _READ_FILE | _WRITE_FILE, "/dev/zero": _READ_FILE, "/dev/urandom": _READ_FILE}

FORBIDDEN = """
    socket connect bind listen io_uring_setup chown fchown lchown fchownat
    setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat file_setattr
    setpriority sched_setscheduler sched_setparam sched_setattr ioprio_set
    shmat shmctl semget semctl semop semtimedop msgget msgsnd msgrcv msgctl mq_open mq_unlink
    add_key request_key keyctl inotify_add_watch fanotify_init fanotify_mark
    ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp
    unshare setns mount umount2 open_by_handle_at name_to_handle_at bpf perf_event_open userfaultfd syslog
""".split()
UNCOUNTED = ["memfd_create", "memfd_secret", "shmget"]  # memory that belongs to no process
UNDONE = "chmod fchmod fchmodat fchmodat2 utime utimes utimensat futimesat".split()  # shutil.copy wants a "yes"
NUMBERS = {"fchmodat2": 452, "setxattrat": 463, "removexattrat": 466, "file_setattr": 469}  # if libseccomp is older
OTHERS_ONLY = ("prlimit64", "sched_setaffinity")  # with a first argument of 0 they are about oneself
SIGNALS = "kill tkill tgkill pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo".split()  # where Landlock has no scope

_ALLOW, _REFUSE, _SAY_YES = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000
_NOT_EQUAL = 1


def version():
    """What Landlock of this kernel can do, as a number; 0 if there is none."""
    return max(0, _libc.syscall(_CREATE, None, ctypes.c_size_t(0), 1))


def confine(readable, home):
    """From now on: read those paths, write below `home`, and nothing else. Cannot be undone."""
    able = version()
    if able < OLDEST:
        raise OSError(errno.ENOSYS, "Landlock is missing or too old: it needs Linux 6.2")
    filters = _seccomp([*FORBIDDEN, *UNCOUNTED, *(SIGNALS if able < 6 else ())], OTHERS_ONLY, UNDONE)
    _must(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")  # or an ordinary user may not
    _landlock(able, readable, home)
    _must(filters.seccomp_load(filters.context), "loading the filter")


def count_memory():
    """From now on no memory can be had outside processes, where limits hold. Cannot be undone."""
    filters = _seccomp(UNCOUNTED)
    _must(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    _must(filters.seccomp_load(filters.context), "loading the filter")


def _landlock(able, readable, home):
    everything = (1 << {3: 15, 4: 15}.get(able, 16)) - 1
    handled = struct.pack("<3Q", everything, _TCP if able >= 4 else 0, _SCOPES if able >= 6 else 0)
    size = 8 if able < 4 else 16 if able < 6 else 24
    rules = _libc.syscall(_CREATE, handled, ctypes.c_size_t(size), 0)
    if rules < 0:
        raise OSError(ctypes.get_errno(), "making Landlock rules")
    wanted = {path: _READ for path in readable} | DEVICES | {home: everything & ~_IOCTL_DEV}
    for path, access in wanted.items():
        _allow(rules, path, access)
    _must(_libc.syscall(_RESTRICT, rules, 0), "restricting itself")
    os.close(rules)


def _allow(rules, path, access):
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # not every system has a /lib32
    if not os.path.isdir(path):
        access &= _OF_A_FILE
    _must(_libc.syscall(_ADD, rules, _PATH_BENEATH, struct.pack("<Qi", access, place), 0), f"a rule for {path}")
    os.close(place)


class _Compare(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def _seccomp(names, others_only=(), undone=()):
    """A filter, not yet loaded, that refuses these calls, some only about others; some it leaves undone.

    (Another processor's calls end the process.)
    """
    try:
        library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    except OSError:
        raise OSError(errno.ENOSYS, "libseccomp is missing: sudo apt install libseccomp2") from None
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    library.seccomp_rule_add_array.argtypes = [
        *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint),
        ctypes.POINTER(_Compare),
    ]
    library.context = library.seccomp_init(_ALLOW)
    about_others = (_Compare * 1)(_Compare(0, _NOT_EQUAL, 0, 0))
    for name in [*names, *others_only, *undone]:
        number = library.seccomp_syscall_resolve_name(name.encode())
        number = NUMBERS.get(name, number) if number == -1 else number
        if number < 0:
            continue  # this processor has no such call
        action = _SAY_YES if name in undone else _REFUSE
        compared = 1 if name in others_only else 0
        _must(library.seccomp_rule_add_array(library.context, action, number, compared, about_others), name)
    return library


def _must(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno() or -result, what)
