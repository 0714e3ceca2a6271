"""A tokenised text in a folder, so that the same text is not cut twice."""

VERSION = 1


def load(folder, key):
    return None


def save(folder, key, merges, train, val, made_by, note):
    return ""
