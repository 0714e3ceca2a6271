"""All cards: those written in cards/*.toml, the numeric ones, and a code drill for each exercise of the course."""

import importlib
import pkgutil
import tomllib
from pathlib import Path

from utils.drills import coding, numeric
from utils.drills.card import NUMERIC
from utils.drills.schema import CardError, checked
from utils.syllabus import syllabus

CARDS = Path(__file__).with_name("cards")


def load_cards(folder=None, tasks=None):
    """Every card of the course, in its order. Raises CardError, in a sentence, for the first that is not right.

    folder: another one with phase1.toml … ; tasks: another syllabus. Both are for tests.
    """
    tasks = syllabus() if tasks is None else tasks
    cards, drills = [], {}
    for path in sorted(Path(folder or CARDS).glob("phase*.toml")):
        tables = _read(path)
        cards += [checked(parts, path.name) for parts in tables.get("card", [])]
        for parts in tables.get("code", []):
            drills[parts.get("exercise")] = (parts, path.name)
    cards += [*_numeric(), *coding.code_cards(tasks, drills)]
    _check_together(cards, tasks)
    return sorted(cards, key=lambda card: (card.phase, int(card.section.partition(".")[2])))


def _read(path):
    try:
        tables = tomllib.loads(path.read_text(encoding="utf8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CardError(f"{path.name} is not valid TOML: {error}") from None
    if unknown := sorted(tables.keys() - {"card", "code"}):
        raise CardError(f"{path.name}: [[card]] and [[code]] are all there is, not {', '.join(unknown)}")
    return tables


def _numeric():
    for module in sorted(one.name for one in pkgutil.iter_modules(numeric.__path__)):
        importlib.import_module(f"{numeric.__name__}.{module}")
    return list(NUMERIC.values())


def _check_together(cards, tasks):
    """Ids are taken once, and exercises exist, as far as this copy of the course holds their phases."""
    seen, phases = set(), {task.number for task in tasks.values()}
    for card in cards:
        if card.id in seen:
            raise CardError(f"card {card.id}: two cards have this id")
        seen.add(card.id)
        if card.exercise and card.phase in phases and card.exercise not in tasks:
            raise CardError(f"card {card.id}: no exercise is called {card.exercise}")
