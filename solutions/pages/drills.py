# %% [markdown]
# # Drills
# A few minutes a day keep what you built at hand: cards ask again, later and later as you know them better, and sooner
# when you do not. A card opens when its exercise has passed its check.
#
# Run the cell. Tab, Space, Enter and the arrows are enough; what you type is kept, even if the notebook is closed.

# %% [markdown]
# ## 1 · Today

# %%
from utils.drills.notebook import drills

drills()

# %% [markdown]
# - **Due** cards come first, with a new one now and then, at most twenty new ones a day: `drills(new=5)` for fewer.
# - Some only: `drills(phases=[2], kinds=["numeric", "bug"])`. All cards, passed or not: `drills(unlock_all=True)`.
# - Kinds: `recall`, `choice`, `numeric`, `code`, `shape`, `bug`, `design`.
#
# ## 2 · A mock interview
# Forty-five minutes, cards of every kind at one level: `"junior"`, `"senior"` or `"staff"`. The clock stands still while
# you read a model answer. At the end a sheet says what to study next.
#
# Run the cell and choose a level. An interview that was broken off can be gone on with on the same day.

# %%
from utils.drills.notebook import interview

interview()

# %% [markdown]
# ## 3 · Elsewhere
# The same cards in a terminal: `workbook drill`, and `workbook drill --interview senior`. To take your history to another
# machine: `workbook drill --export history.json` here, `workbook drill --import history.json` there. The cards as an Anki
# deck: `workbook drill --export-anki cards.apkg`.
