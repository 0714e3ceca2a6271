"""Sentences and their translations, drawn together: both sides grow from one tree, so the translation is always right.

sentence   noun phrase · [not] verb · [noun phrase] · [manner] · [place] · [time]
noun phrase  determiner · [good or bad] · [adjective] · noun · [of · noun phrase]
"""

import functools
import random
from dataclasses import dataclass

from utils.data import lexicon, spanish
from utils.data.held_out import is_held_out

PLURAL, PAST, NEGATED = 0.35, 0.5, 0.2  # shares of noun phrases, and of sentences
ADJECTIVE, GOOD_OR_BAD, OF = 0.35, 0.1, 0.1  # how often a noun phrase has one
TRANSITIVE, ADVERB, PLACE, TIME = 0.55, 0.2, 0.35, 0.2  # how often a sentence has one
DETERMINERS = [[word for word in lexicon.determiners if word.english[many]] for many in (False, True)]
ADJECTIVES = {
    noun.english: [word for word in lexicon.adjectives if noun.is_any(word.classes)] for noun in lexicon.nouns
}


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation. alignment: (place of source word, place of target word) of content words."""

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Draw:
    """A pair with what the splits ask about: has it a pair of words that training never shows together?"""

    pair: Pair
    n_words: int
    held_out: bool


class Writer:
    """Both sides of a sentence, growing word by word, with the links between content words."""

    def __init__(self):
        self.source, self.target, self.links, self.held_out = [], [], [], False

    def say(self, source="", target=""):
        """Words without a link: determiners, prepositions, helpers."""
        self.source += source.split()
        for word in target.split():
            spanish.append(self.target, word)

    def link(self, source, target):
        """A content word at the end of each side; both are already said."""
        self.links.append((source, target))

    def pair(self):
        source, target = (" ".join(words) for words in (self.source, self.target))
        return Pair(source[0].upper() + source[1:], target[0].upper() + target[1:], tuple(sorted(self.links)))


class Grammar:
    """Draws sentences; `seed` decides all of them. Uses only random(), whose numbers Python promises to keep."""

    def __init__(self, seed):
        self.random = random.Random(seed).random

    def chance(self, share):
        return self.random() < share

    def choose(self, options):
        return options[int(self.random() * len(options))]

    def draw(self):
        """One Draw."""
        out, past = Writer(), self.chance(PAST)
        verb = self.choose(lexicon.transitive if self.chance(TRANSITIVE) else lexicon.intransitive)
        subject, many = self.noun_phrase(out, verb.subjects)
        self.verb(out, verb, many, past)
        if verb.objects:
            self.noun_phrase(out, verb.objects, verb=verb)
        if subject.is_any("PA") and verb.english[0] not in lexicon.NO_MANNER and self.chance(ADVERB):
            self.adverb(out, lexicon.MANNER)
        if self.chance(PLACE):
            self.place(out, verb, subject)
        if self.chance(TIME):
            unfit = lexicon.ONLY_PRESENT if past else lexicon.ONLY_PAST
            self.adverb(out, {word: lexicon.TIME[word] for word in lexicon.TIME if word not in unfit})
        return Draw(out.pair(), len(out.source), out.held_out)

    def noun_phrase(self, out, classes, verb=None, depth=0):
        """Say one whose noun is of one of `classes`; as the object of `verb` if given. Returns noun, many."""
        noun, many = self.choose(_nouns_of(classes)), self.chance(PLURAL)
        determiner = self.choose(DETERMINERS[many])
        good = self.choose(lexicon.before_the_noun) if self.chance(GOOD_OR_BAD) else None
        fitting = ADJECTIVES[noun.english] if self.chance(ADJECTIVE) else ()
        adjective = self.choose(fitting) if fitting else None
        if verb:
            out.held_out |= is_held_out(verb.english[0], noun.english)
            if noun.is_any("PA"):
                out.say(target="a")  # the personal a
        write_noun_phrase(out, determiner, good, adjective, noun, many)
        if depth == 0 and noun.is_any("TFV") and determiner.english[0] != "my" and self.chance(OF):
            out.say("of", "de")
            self.noun_phrase(out, "P", depth=1)
        return noun, many

    def verb(self, out, verb, many, past):
        base, third, then = verb.english
        negated = self.chance(NEGATED)
        if negated:
            out.say("did not" if past else "do not" if many else "does not", "no")
        out.say(base if negated else then if past else base if many else third, verb.spanish[past][many])
        out.link(len(out.source) - 1, len(out.target) - 1)

    def adverb(self, out, words):
        english = self.choose(list(words))
        out.say(english, words[english])
        out.link(len(out.source) - 1, len(out.target) - 1)

    def place(self, out, verb, subject):
        """here, near the house, or (where the verb goes somewhere) to the house."""
        if verb.goes and self.chance(0.5):
            out.say("to", "a")
            self.noun_phrase(out, "L", depth=1)
        elif self.chance(0.15):
            self.adverb(out, lexicon.PLACE)
        else:
            unfit = lexicon.ONLY_WITHOUT_OBJECT if verb.objects else set()
            unfit = unfit | (set() if subject.is_any("PA") else lexicon.ONLY_OF_THE_LIVING)
            english = self.choose([word for word in lexicon.PREPOSITIONS if word not in unfit])
            word, classes = lexicon.PREPOSITIONS[english]
            out.say(english, word)
            self.noun_phrase(out, classes, depth=1)


def write_noun_phrase(out, determiner, good, adjective, noun, many):
    """English: the good black cat · Spanish: el buen gato negro."""
    before = [word.english for word in (good, adjective) if word]
    out.held_out |= any([is_held_out(noun.english, word) for word in before])
    words = [*before, noun.plural if many else noun.english]
    article = determiner.english[many]
    out.say("an" if article == "a" and words[0][0] in "aeiou" else article)
    out.say(target=determiner.spanish[many][noun.gender == "f"])
    start = len(out.source)
    out.say(" ".join(words))
    end = len(out.source) - 1
    if good:
        short = noun.gender == "m" and not many
        out.say(target=good.short if short else spanish.agree(good.spanish, noun.gender, many))
        out.link(start, len(out.target) - 1)
    out.say(target=noun.spanish_plural if many else noun.spanish)
    out.link(end, len(out.target) - 1)
    if adjective:
        out.say(target=spanish.agree(adjective.spanish, noun.gender, many))
        out.link(end - 1, len(out.target) - 1)


@functools.cache
def _nouns_of(classes):
    return [noun for noun in lexicon.nouns if noun.is_any(classes)]
