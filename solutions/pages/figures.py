# %% [markdown]
# # Figures to play with
# Every interactive figure of the course on one page, with a question for each. Run a cell and its still picture comes
# alive: move the controls with the mouse, or with Tab, the arrows and Space.
#
# The functions inside are your own where they pass their checks, and the course's elsewhere; a line above each figure says
# which. A figure whose phase is not in your copy says so. Nothing here is graded.

# %%
from utils.widgets.gallery import play

# %% [markdown]
# ## Phase 1 · From text to tensors
# ### Where a token stands
# Set the base to 10: which places look alike now?
# From [section 1.9](phase1_text_to_tensors/phase1_text_to_tensors.ipynb#1.9-Say-where-a-token-stands).

# %%
play("position_explorer")

# %% [markdown]
# ## Phase 2 · Attention
# ### Paint a mask
# Hide "cat" by hand: who gains most?
# From [section 2.5](phase2_attention/phase2_attention.ipynb#2.5-Two-reasons-to-hide).

# %%
play("mask_painter")

# %% [markdown]
# ## Phase 3 · Multi-head attention
# ### Cut features into heads
# Switch to `view` alone: whose numbers does head 0 hold then?
# From [section 3.2](phase3_multi_head/phase3_multi_head.ipynb#3.2-Cut-the-features-into-heads).

# %%
play("split_visualiser")

# %% [markdown]
# ### Browse heads
# Six heads written by hand; in the lesson they are learnt. Which two copy, and what sets them apart?
# From [section 3.12](phase3_multi_head/phase3_multi_head.ipynb#3.12-The-claim,-tested).

# %%
play("head_browser")

# %% [markdown]
# ## Phase 4 · Encoder and decoder blocks
# ### What reaches the first block
# Take 48 blocks and double the weights: which order would now need a smaller learning rate in its first blocks?
# From [section 4.13](phase4_blocks/phase4_blocks.ipynb#4.13-What-reaches-the-first-block).

# %%
play("depth_explorer")

# %% [markdown]
# ## Phase 5 · Training and inference
# ### Chance with a dial
# Each of the first three dials can leave one word to draw, all alone. At which setting?
# From [section 5.9](phase5_training_and_inference/phase5_training_and_inference.ipynb#5.9-Chance-with-a-dial).

# %%
play("decoding_sampler")

# %% [markdown]
# ### Beams in a tree
# One beam takes the likelier first word and loses. How many does it need to win?
# From [section 5.11](phase5_training_and_inference/phase5_training_and_inference.ipynb#5.11-Several-futures-at-once).

# %%
play("beam_tree")

# %% [markdown]
# ### A cache that fills
# How few heads of keys do 64 users need to fit into 80 GB at the last step?
# From [section 5.15](phase5_training_and_inference/phase5_training_and_inference.ipynb#5.15-What-a-cache-costs).

# %%
play("cache_animator")

# %% [markdown]
# ### Spend a budget
# How much loss does a model ten times too large cost, and one ten times too small?
# From [section 5.17](phase5_training_and_inference/phase5_training_and_inference.ipynb#5.17-Spend-a-budget).

# %%
play("scaling_explorer")

# %% [markdown]
# ## Phase 6 · Model families and systems
# ### Fewer bits
# Let the outlier grow: which of the two rows pays, with each way of scaling?
# From [section 6.14](phase6_families_and_systems/phase6_families_and_systems.ipynb#6.14-Fewer-bits).

# %%
play("quantization_explorer")

# %% [markdown]
# ### Guess and verify
# Step through six rounds with one guess, then with four: how many tokens does a pass of the target give?
# From [section 6.21](phase6_families_and_systems/phase6_families_and_systems.ipynb#6.21-Several-tokens-a-pass).

# %%
play("speculation_stepper")

# %% [markdown]
# ## Phase 7 · Capstone: a whole model, trained
# ### Will it fit?
# Which batch is the first that does not fit on a T4, with fused attention and without?
# From [section 7.4](phase7_capstone/phase7_capstone.ipynb#7.4-Will-it-fit?).

# %%
play("training_planner")
