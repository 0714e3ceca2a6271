# %% [markdown]
# # Start here
# You build the Transformer from nothing: one notebook for each phase, one small part at a time, and each part is
# checked the moment you have written it. You need Python and a little calculus; no GPU and, from here on, no network.
#
# Run a cell with **Shift+Enter**. Try it on the three cells of this page.

# %% [markdown]
# ## 1 · Is everything in place?

# %%
import sys

try:
    from utils.environment import report
except ImportError:
    print("Python does not find the course. As utils it finds:", sys.modules.get("utils", "nothing"))
    print("Another file or package of that name? Rename or uninstall it. Nothing? make learn")
    print("Then choose Kernel > Restart Kernel.")
else:
    display(report())

# %% [markdown]
# A line with ✗ comes with the command that repairs it. Type that into a terminal (File > New > Terminal), then choose
# Kernel > Restart Kernel and run the cell again.

# %% [markdown]
# ## 2 · The map

# %%
from IPython.display import Markdown

from utils.workspace import phase_map

Markdown(phase_map())

# %% [markdown]
# A phase that is a link is ready. The others are not written yet. Phases build on one another, but each can be done
# on its own: the course stands in for what you skipped.
# **Begin with [phase 1](phase1_text_to_tensors/phase1_text_to_tensors.ipynb)**, or go straight to
# [attention](phase2_attention/phase2_attention.ipynb).

# %% [markdown]
# ## 3 · How far you are

# %%
from utils.progress import progress

progress()

# %% [markdown]
# Run the cell again whenever you come back: the last lines say what to do next. Each `check` is counted, in a file on
# your own machine. ✓ is done, ◐ was checked and is not right yet, ○ is open. Minutes are estimates. `workbook progress`
# shows the same in a terminal; `workbook reset sdpa` makes one exercise blank again and keeps a copy.
#
# **Cards** ask again what you have built, some days later: [drills](drills.ipynb), or `workbook drill` in a terminal.
# **Figures** to play with, all on one page: [figures](figures.ipynb).

# %% [markdown]
# ## 4 · How a lesson goes
# | step | what you do |
# |---|---|
# | **predict** | guess what will happen before you see it; a wrong guess costs nothing and is remembered best |
# | **build** | write the part in place of `raise NotImplementedError()`; keep its name, arguments and docstring |
# | **check** | run the cell below: `check(sdpa, points=4)` says what is right, what is not, and, if it knows, why |
# | **look** | a picture, or a number from the notes, made by your own code |
# | **reflect** | one sentence in your own words: double-click the cell, write after “Your sentence”; nobody grades it |
#
# Exercises marked **core** are the path through a phase, at most three hours; **more** and **stretch** can wait. You can
# leave after any section and come back to what you saved.

# %% [markdown]
# ## 5 · Stuck?
# - Each exercise has three hints, from a nudge to nearly the answer. Open them one at a time.
# - Read the line `likely` of a check: it appears only if a known slip gives exactly your numbers.
# - `sdpa is not defined yet` means that a cell above was not run: Run > Run All Above Selected Cell.
# - Odd results after much editing? Kernel > Restart Kernel, then run from the top. Run All stops at the first check that
#   is not right yet; a figure that needs a part you have not built says so in one line and does no harm.
# - **Validate**, above the notebook, runs everything once more, as a grader would. It counts a written answer that is
#   still empty as a failure, too.
# - To report a fault of the course, add what the first cell of this page shows.

# %% [markdown]
# ## 6 · Coming back
# `make learn` (or `workbook learn`) in the course's folder opens your copy, `my_work/`, as you left it. After you have
# fetched a new release, `workbook update` brings its text and checks into your notebooks. Your solutions, your answers
# and the cells you added stay, and the files as they were lie in `my_work/backups/`.
