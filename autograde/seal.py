"""A seal in the notebook's own metadata tells whether a file is still what the build wrote."""

import json
from hashlib import sha256

from nbgrader.preprocessors import NbGraderPreprocessor

KEY = "workbook"


def seal(notebook):
    """sha256 over everything in the notebook except the seal itself."""
    metadata = {key: value for key, value in notebook["metadata"].items() if key != KEY}
    text = json.dumps({**notebook, "metadata": metadata}, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return sha256(text.encode("utf-8")).hexdigest()


def put_seal(notebook):
    """Write the seal into the notebook's metadata; returns the notebook."""
    notebook["metadata"][KEY] = {"seal": seal(notebook)}
    return notebook


def is_sealed(notebook):
    """Is this notebook, unchanged, something we built?"""
    ours = notebook.get("metadata", {}).get(KEY)
    return isinstance(ours, dict) and ours.get("seal") == seal(notebook)


class PutSeal(NbGraderPreprocessor):
    """The last step of generate_assignment, so that plain nbgrader seals as our own build does."""

    def preprocess(self, nb, resources):
        return put_seal(nb), resources
