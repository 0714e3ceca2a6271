"""How far a learner is: what checks said, what is done, partly done and open, and what to do next.

`progress()` shows it in a notebook; `workbook progress` in a terminal.
"""


def progress(root=None):
    """The table of phases and exercises, with the next thing to do; a notebook shows it as HTML, a terminal as text."""
    from utils.progress.standing import standing
    from utils.progress.table import Table

    return Table(standing(root))
