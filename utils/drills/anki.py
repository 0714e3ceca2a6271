"""The cards as an Anki deck, for those who review elsewhere: question on the front, model answer on the back.

Code drills stay here, since Anki runs no check. A numeric card goes as one question of it, drawn once and for all.
"""

import zlib
from pathlib import Path

from utils.drills.pages import KIND, html
from utils.drills.replies import ask
from utils.workspace import PHASES

SEED = 1
MODEL, DECK = 1_746_218_001, 1_746_218_100  # Anki knows them again by these numbers: never change them
STYLE = """
.card { font-family: sans-serif; font-size: 18px; text-align: left; max-width: 45em; margin: auto; }
pre, code { font-family: monospace; font-size: 15px; }
.about { font-size: 13px; opacity: 0.7; }
"""


class NoAnki(Exception):
    """The library that writes Anki's format is not installed; the text says how to get it."""


def write(cards, path):
    """Write the deck, one subdeck per phase; returns how many cards it holds. Raises NoAnki.

    Writing again updates the cards in Anki and keeps what Anki knows of them: notes are found again by their id.
    """
    try:
        import genanki
    except ImportError:
        raise NoAnki("Anki's format needs one more package: pip install genanki") from None
    model = genanki.Model(
        MODEL,
        "Transformer Workbook",
        fields=[{"name": name} for name in ("Id", "Question", "Answer", "About")],
        templates=[
            {
                "name": "Card",
                "qfmt": "{{Question}}<p class=about>{{About}}</p>",
                "afmt": "{{Question}}<hr id=answer>{{Answer}}",
            }
        ],
        css=STYLE,
    )
    decks = {}
    for card in (one for one in cards if one.kind != "code"):
        title = list(PHASES.values())[card.phase - 1]
        name = f"Transformer Workbook::{card.phase} {title}"
        deck = decks.setdefault(card.phase, genanki.Deck(DECK + card.phase, name))
        fields = [card.id, *faces(card), f"{card.section} · {KIND[card.kind]} · {card.level}"]
        tags = [f"phase{card.phase}", card.kind, card.level]
        deck.add_note(genanki.Note(model, fields, tags=tags, guid=f"transformer-workbook/{card.id}"))
    unfinished = Path(f"{path}.part")
    genanki.Package(list(decks.values())).write_to_file(unfinished)
    unfinished.replace(path)
    return sum(len(deck.notes) for deck in decks.values())


def faces(card):
    """(question, answer) of a card as HTML."""
    asked = ask(card, zlib.crc32(card.id.encode()) + SEED)
    question, answer = [asked.prompt], [card.answer]
    if asked.options:
        question.append("\n".join(f"{number}. {text}" for number, text in enumerate(asked.options, 1)))
        answer.insert(0, f"**{asked.right + 1}. {asked.options[asked.right]}**")
    if card.kind == "choice":
        answer.append("\n".join(f"{number}. {why}" for number, why in enumerate(asked.because, 1)))
    if card.kind == "numeric":
        shown = f"{asked.question.answer:,.6g} {asked.question.unit}".replace(",", " ").strip()
        answer = [f"**{shown}**", asked.question.working, card.answer]
    if card.kind == "shape":
        question.append("\n".join(f"- `{one}`" for one in card.asks))
        answer.insert(0, "\n".join(f"- `{a}`: `{b}`" for a, b in zip(card.asks, card.answers, strict=True)))
    if card.rubric:
        answer.append("\n".join(f"- {point['for']} ({point['points']:g})" for point in card.rubric))
    if card.follow_ups:
        answer.append("**Next they would ask**\n\n" + "\n".join(f"- {one}" for one in card.follow_ups))
    return tuple(html("\n\n".join(part)) for part in (question, answer))
