"""The shape of the repository: small files with telling names, tests that ask a question."""

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LONGEST_FILE, LONGEST_FUNCTION = 400, 40
VAGUE = {"helpers", "helper", "common", "misc", "utilities"}
LISTED = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"], cwd=ROOT, capture_output=True, text=True
)
FILES = [ROOT / line for line in LISTED.stdout.splitlines() if (ROOT / line).is_file()]
CODE = [path for path in FILES if "solutions" not in path.parts]  # a lesson is as long as it needs to be


def name(path):
    return path.relative_to(ROOT).as_posix()


def test_the_files_of_the_course_are_found():
    """Does git list our code, so that the tests below look at something?"""
    assert LISTED.returncode == 0 and ROOT / "utils" / "__init__.py" in CODE and len(CODE) > 20


@pytest.mark.parametrize("path", CODE, ids=name)
def test_no_file_outgrows_a_reader(path):
    """Is the file at most 400 lines, with functions of at most 40, under a name that says something?"""
    source = path.read_text(encoding="utf8")
    assert len(source.splitlines()) <= LONGEST_FILE
    assert path.stem not in VAGUE
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    too_long = [f"{f.name} (line {f.lineno})" for f in functions if f.end_lineno - f.lineno >= LONGEST_FUNCTION]
    assert too_long == []


@pytest.mark.parametrize("path", [path for path in CODE if path.name.startswith("test_")], ids=name)
def test_every_test_asks_a_question(path):
    """Does each test say in its docstring which question it answers?"""
    tests = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))) if isinstance(node, ast.FunctionDef)]
    silent = [
        test.name for test in tests if test.name.startswith("test_") and "?" not in (ast.get_docstring(test) or "")
    ]
    assert silent == []
