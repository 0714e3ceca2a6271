"""Which cards a learner may be asked: those whose exercise has passed its check, or all of them."""

from itertools import zip_longest

from utils.syllabus import syllabus


def open_cards(cards, passed, unlock_all=False, tasks=None):
    """The cards that are open.

    passed: names of exercises that have passed; a card without an exercise opens with the first of its phase
    """
    if unlock_all:
        return in_turn(cards)
    first = {}
    for task in (syllabus() if tasks is None else tasks).values():
        first.setdefault(task.number, task.name)
    return in_turn([card for card in cards if (card.exercise or first.get(card.phase)) in passed])


def in_turn(cards):
    """One card of each phase after another, each phase in its own order: what is learned side by side stays longer."""
    phases = {}
    for card in cards:
        phases.setdefault(card.phase, []).append(card)
    rows = zip_longest(*(phases[number] for number in sorted(phases)))
    return [card for row in rows for card in row if card is not None]


def passed_in(store):
    """The exercises whose check has passed at least once."""
    return {name for name, (_, best, _) in store.tally("check").items() if best == 1}


def chosen(cards, phases=None, kinds=None, levels=None):
    """The cards of these phases, kinds and levels; None, or none named, means all."""
    return [
        card
        for card in cards
        if (not phases or card.phase in phases)
        and (not kinds or card.kind in kinds)
        and (not levels or card.level in levels)
    ]
