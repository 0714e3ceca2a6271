"""Which cards a learner may be asked: those whose exercise has passed its check, or all of them."""

from utils.syllabus import syllabus


def open_cards(cards, passed, unlock_all=False, tasks=None):
    """The cards that are open.

    passed: names of exercises that have passed; a card without an exercise opens with the first of its phase
    """
    if unlock_all:
        return list(cards)
    first = {}
    for task in (syllabus() if tasks is None else tasks).values():
        first.setdefault(task.number, task.name)
    return [card for card in cards if (card.exercise or first.get(card.phase)) in passed]


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
