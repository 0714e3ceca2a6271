"""What Spanish does to words: plurals, genders, and two words that become one."""

EXCEPTIONS = {"joven": "jóvenes"}  # the stress stays where it was, so an accent appears
CONTRACTED = {"a": "al", "de": "del"}  # what becomes of them before el
STRESSED = {"á": "a", "é": "e", "í": "i", "ó": "o", "ú": "u"}


def plural(word):
    """gato gatos · león leones · lápiz lápices · joven jóvenes · café cafés · reloj relojes."""
    if word in EXCEPTIONS:
        return EXCEPTIONS[word]
    if word[-1] in "aeioué":
        return word + "s"
    if word.endswith("z"):
        return word[:-1] + "ces"
    if word[-1] in "ns" and word[-2] in STRESSED:  # one syllable more moves the stress: the accent goes
        return word[:-2] + STRESSED[word[-2]] + word[-1] + "es"
    return word + "es"


def feminine(adjective):
    """rojo roja · trabajador trabajadora · azul azul · grande grande."""
    if adjective.endswith("o"):
        return adjective[:-1] + "a"
    return adjective + "a" if adjective.endswith("dor") else adjective


def agree(adjective, gender, many):
    """The form of an adjective (given as masculine singular) beside a noun of this gender and number."""
    word = feminine(adjective) if gender == "f" else adjective
    return plural(word) if many else word


def append(words, word):
    """Write `word` after `words` (a list that is changed): a + el becomes al, de + el becomes del."""
    if word == "el" and words and words[-1] in CONTRACTED:
        words[-1] = CONTRACTED[words[-1]]
    else:
        words.append(word)
