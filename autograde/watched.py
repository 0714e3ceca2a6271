"""The names that the delegation report watches for, and what it says about each: data, nothing else."""

import re

ATTENTION = re.compile(
    r"scaled_dot_product|multi_?head_?attention|MultiheadAttention|nn\.Transformer|flex_attention", re.IGNORECASE
)
SOFTMAX = re.compile(r"(^|\.)(_?(log_)?softmax|softmin|Softmax(2d)?|LogSoftmax|Softmin)$")
GRADIENTS = re.compile(r"(^|\.)(autograd|backward|requires_grad_?|func\.(grad|vjp|jvp|jac\w+))(\.|$)")
GRADER = re.compile(
    r"\b(autograde|nbgrader|gradebook|utils[./](oracle|checks|observe)|oracle|tests?[./]bank)\b|NBGRADER", re.IGNORECASE
)
PLACES = re.compile(r"/proc/|/dev/shm|/etc/|__import__|<script", re.IGNORECASE)

WATCHED = {  # what is worth a look -> the dotted names that begin so
    "calls torch below its Python names": ["torch.ops", "torch._C", "torch._VF", "torch.jit", "torch.library"],
    "changes how torch calls its operations": [
        *("torch.overrides", "torch.utils._python_dispatch", "torch._dynamo", "torch.fx"),
    ],
    "builds or loads compiled code": [
        *("ctypes", "cffi", "torch.utils.cpp_extension", "numpy.ctypeslib", "numba", "cython"),
    ],
    "imports by a name made at run time": ["importlib", "pkgutil", "runpy", "imp", "zipimport"],
    "looks into the running interpreter": [
        *("gc", "inspect", "dis", "linecache", "tracemalloc", "builtins", "types.FunctionType", "types.CodeType"),
        *("sys._getframe", "sys._current_frames", "sys.modules", "sys.meta_path", "sys.settrace", "sys.setprofile"),
        *("sys.path", "sys.path_hooks"),
    ],
    "turns coded text into something else": [
        *("base64", "codecs", "binascii", "zlib", "marshal", "pickle", "dill", "joblib", "shelve"),
        *("torch.load", "numpy.load"),
    ],
    "asks the machine for something": [
        *("os", "subprocess", "signal", "atexit", "pty", "resource", "psutil", "platform"),
        *("shutil", "tempfile", "glob", "pathlib"),
    ],
    "starts work beside its own": ["threading", "multiprocessing", "concurrent", "asyncio"],
    "reaches for the network": [
        *("socket", "ssl", "urllib", "http", "requests", "httpx", "ftplib", "smtplib", "webbrowser", "torch.hub"),
    ],
    "replaces parts while others run": ["unittest", "mock", "pytest", "wrapt", "forbiddenfruit"],
    "reaches into the notebook's own machinery": [
        *("IPython.core", "IPython.get_ipython", "IPython.utils", "ipykernel", "comm"),
    ],
}
BARE = {  # functions that need no import
    "exec": "runs text as code",
    "eval": "runs text as code",
    "compile": "runs text as code",
    "__import__": "imports by a name made at run time",
    "globals": "reads or changes names without saying which",
    "locals": "reads or changes names without saying which",
    "open": "opens a file",
    "breakpoint": "stops the grader",
    "exit": "ends the process",
    "quit": "ends the process",
    "get_ipython": "reaches into the notebook's own machinery",
}
INSIDE = {  # attributes that lead from an object to what it was made of
    *(
        "__globals__",
        "__closure__",
        "__code__",
        "__subclasses__",
        "__builtins__",
        "__wrapped__",
        "__mro__",
        "__bases__",
    ),
    *("__getattribute__", "__reduce__", "__dict__", "f_back", "f_locals", "f_globals", "f_builtins", "tb_frame"),
    *("gi_frame", "cr_frame", "cell_contents"),
}
PASSES = {  # methods with which an object is taken for another
    *("__eq__", "__ne__", "__float__", "__bool__", "__class__", "__getattribute__", "__instancecheck__"),
    *("__subclasscheck__", "__torch_function__", "__torch_dispatch__", "__array_function__", "__array_ufunc__"),
}
VALUES = {"torch.Tensor", "numpy.ndarray", "float", "int", "bool", "str", "complex"}
GIVEN = {"check", "mine", "need", "predict", "reveal", "attempt", "show", "notes", "plots", "widgets", "utils", "torch"}
MAGICS = {  # harmless
    *(
        "matplotlib",
        "timeit",
        "time",
        "capture",
        "precision",
        "pdb",
        "debug",
        "config",
        "who",
        "whos",
        "who_ls",
        "xmode",
    ),
    *("pinfo", "pinfo2", "psource", "history", "autoreload", "lsmagic", "magic", "prun"),
}
