"""How a numeric card words its question: one answer, and beside it the wrong numbers that we can explain."""

from utils.drills.card import Question


def question(prompt, answer, unit, working, slips, tolerance=0.01):
    """A Question whose slips can be told from the answer and from one another.

    slips: list of (wrong number, sentence), the most likely first; one that this draw cannot tell apart is left out.
    """
    told, kept = [answer], {}
    for number, sentence in slips:
        if all(abs(number - other) > tolerance * (abs(number) + abs(other)) + 1e-9 for other in told):
            told.append(number)
            kept[number] = sentence
    return Question(prompt, answer, unit, tolerance, kept, working)


def some(rng, *options):
    """One of the options."""
    return rng.choice(options)


def listed(numbers):
    """The numbers as one reads them in a list: 1, 2.5, 3."""
    return ", ".join(f"{number:g}" for number in numbers)
