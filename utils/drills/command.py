"""`workbook drill`: from the words on the command line to a deck, a store and a front."""

import json
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from utils.drills.card import KINDS, LEVELS


def drill(
    phase: Annotated[list[int] | None, Option(help="Only cards of this phase; may be given several times.")] = None,
    kind: Annotated[list[str] | None, Option(help=f"Only this kind: {', '.join(KINDS)}.")] = None,
    level: Annotated[list[str] | None, Option(help=f"Only this level: {', '.join(LEVELS)}.")] = None,
    unlock_all: Annotated[bool, Option("--unlock-all", help="Cards whose exercise has not passed, too.")] = False,
    new: Annotated[int, Option(help="How many new cards a day.")] = 20,
    interview: Annotated[str, Option(help="A mock interview, 45 minutes: junior, senior or staff.")] = "",
    export_anki: Annotated[Path | None, Option(help="Write the cards as an Anki deck (.apkg) and stop.")] = None,
    export: Annotated[Path | None, Option(help="Write all you have done as json and stop.")] = None,
    take_in: Annotated[Path | None, Option("--import", help="Add what another machine exported and stop.")] = None,
):
    """Cards to come back to: fifteen minutes a day, by keyboard. They open as your exercises pass their checks."""
    from utils.drills.schema import CardError
    from utils.drills.store import StoreError

    for word, known, name in ((kind, KINDS, "kind"), (level, LEVELS, "level")):
        if unknown := [one for one in word or () if one not in known]:
            _stop(f"There is no {name} {unknown[0]}; there is {', '.join(known)}.")
    if interview and interview not in LEVELS:
        _stop(f"There is no level {interview}; there is {', '.join(LEVELS)}.")
    try:
        if export:
            _export(export)
        elif take_in:
            _import(take_in)
        elif export_anki:
            _anki(export_anki, phase, kind, level)
        else:
            _drill(phase, kind, level, unlock_all, new, interview)
    except (CardError, StoreError) as error:
        _stop(str(error))


def _drill(phases, kinds, levels, unlock_all, new, interview):
    from utils.drills.deck import chosen, open_cards, passed_in
    from utils.drills.interview import Interview
    from utils.drills.loading import load_cards
    from utils.drills.session import Session
    from utils.drills.store import Store
    from utils.drills.terminal import DrillApp

    with Store() as store:
        for sentence in store.said:
            typer.echo(sentence)
        cards = chosen(load_cards(), phases, kinds, levels)
        if interview:
            session = _gone_on_with(store) or Interview(cards, store, interview)
        else:
            session = Session(open_cards(cards, passed_in(store), unlock_all), store, new_per_day=new)
        DrillApp(session).run()
        right = sum(score == 1 for _, score, _ in session.done)
        typer.echo(f"{len(session.done)} card{'s' * (len(session.done) != 1)} answered, {right} right.")


def _gone_on_with(store):
    """The interview that was broken off today, if there is one and the learner wants it."""
    from utils.drills.interview import Interview
    from utils.drills.loading import load_cards

    broken_off = Interview.broken_off(load_cards(), store)
    if broken_off and typer.confirm(f"Broken off today: {broken_off.described()}. Go on with it?", default=True):
        return broken_off
    return None


def _export(path):
    from utils.drills.store import Store
    from utils.workspace import write_atomically

    with Store() as store:
        exported = store.exported()
    write_atomically(path.absolute(), json.dumps(exported, indent=1).encode())
    typer.echo(f"{len(exported['events'])} events written to {path}.")


def _import(path):
    from utils.drills.schedule import Schedule
    from utils.drills.store import Store

    try:
        exported = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError) as error:
        _stop(f"{path} cannot be read: {error}")
    with Store() as store:
        number = Schedule(store).take_in(exported)
    typer.echo(f"{number} new events taken in from {path}.")


def _stop(text):
    typer.echo(text)
    raise typer.Exit(1)


def _anki(path, phases, kinds, levels):
    from utils.drills.anki import NoAnki, write
    from utils.drills.deck import chosen
    from utils.drills.loading import load_cards

    try:
        number = write(chosen(load_cards(), phases, kinds, levels), path)
    except (NoAnki, OSError) as error:
        _stop(str(error))
    typer.echo(f"{number} cards written to {path}. In Anki: File > Import.")
