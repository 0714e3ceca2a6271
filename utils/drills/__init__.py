"""Drills: cards to come back to, spaced out by how well they are known.

`load_cards()` gives every card of the course: objects with `id`, `kind`, `phase` and what utils/drills/card.py says.
"""

from utils.drills.card import Card, Question, Twist, numeric_card
from utils.drills.schema import CardError


def load_cards(folder=None, tasks=None):
    """Every card of the course, in its order (utils/drills/loading.py)."""
    from utils.drills.loading import load_cards

    return load_cards(folder, tasks)


__all__ = ["Card", "CardError", "Question", "Twist", "load_cards", "numeric_card"]
