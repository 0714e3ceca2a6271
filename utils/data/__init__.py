"""What phase 7 trains on: sentences drawn by a grammar, Python source of this machine, real text where there is a net.

`translation` is track A, `python_source` and `token_stream` are track B, `real` holds the optional corpora.
"""


class CorpusError(ValueError):
    """A corpus that cannot be used; its message is written for the person who asked for it."""
