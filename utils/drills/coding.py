"""Code drills: one for each exercise, made from the release; a twist and follow-ups where cards/*.toml has some."""

from utils.checks.deliveries import DELIVERIES
from utils.drills.card import Card, Twist
from utils.drills.schema import CardError

KEYS = {"exercise", "level", "minutes", "follow_ups", "twist"}
PERHAPS = ("init", "then", "from", "options")
TWIST = {"question", "name", "args", *PERHAPS}
LEVEL = {"core": "junior", "more": "senior", "stretch": "staff"}


def code_cards(tasks, written):
    """A Card of kind "code" for each task but those that are judged by a file.

    written: {exercise: (table of [[code]], file)}
    """
    if unknown := [(name, place) for name, (_, place) in written.items() if name not in tasks]:
        phases = {task.number for task in tasks.values()}
        for name, place in unknown:
            if name is None or int(place[5]) in phases:
                raise CardError(f"{place}, code drill {name}: no exercise has this name")
    return [_card(task, *written.get(task.name, ({}, ""))) for task in tasks.values() if task.name not in DELIVERIES]


def _card(task, parts, place):
    if unknown := sorted(parts.keys() - KEYS):
        raise CardError(f"{place}, code drill {task.name}: {', '.join(unknown)} is nothing that a code drill has")
    return Card(
        id=f"phase{task.number}/{task.name}",
        kind="code",
        phase=task.number,
        prompt=f"Write `{task.name}` from memory. The clock runs.",
        answer=f"The check of section {task.section} decides.",
        section=task.section,
        minutes=parts.get("minutes", max(1, task.minutes // 2)),
        level=parts.get("level", LEVEL[task.path]),
        exercise=task.name,
        follow_ups=tuple(parts.get("follow_ups", ())),
        code=task.stub,
        twist=_twist(task.name, parts.get("twist"), place),
    )


def _twist(name, table, place):
    if table is None:
        return None
    if not {"question", "name"} <= table.keys() <= TWIST or not table.keys() & {"args", "init", "then"}:
        raise CardError(f"{place}, code drill {name}: a twist has question, name, args, perhaps {', '.join(PERHAPS)}")
    specs = {key: table[key] for key in ("args", "init", "then") if key in table}
    return Twist(table["question"], table["name"], specs, table.get("from", ""), table.get("options", {}))
