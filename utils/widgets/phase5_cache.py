"""The figures of the cache and of scaling: step through a generation with a memory meter, and spend a budget."""

from utils import plots
from utils.widgets.interactive import SLIDER, Interactive

__all__ = ["CacheAnimator", "ScalingExplorer", "cache_animator", "scaling_explorer"]

PROMPT, LONGEST = 6, 30
HEADS = (1, 2, 4, 8, 32)


def cache_animator(config, kv_cache_bytes):
    """Step through a generation and watch the cache fill; a meter shows the bytes of many users.

    config: a ModelConfig with 32 heads; kv_cache_bytes: your own function
    Shows the live figure or, without a front end and while grading, its picture. Returns the CacheAnimator.
    """
    return CacheAnimator(config, kv_cache_bytes).show()


def scaling_explorer(fit, compute_optimal):
    """Move a budget and a split of it, and see the loss that a fitted law predicts.

    fit: keys E, A, alpha, B, beta; compute_optimal: your own function
    Shows the live figure or, without a front end and while grading, its picture. Returns the ScalingExplorer.
    """
    return ScalingExplorer(fit, compute_optimal).show()


class _Sized:
    """A config in which the number of heads of keys is another one."""

    def __init__(self, config, n_kv_heads):
        self.config, self.n_kv_heads = config, n_kv_heads

    def __getattr__(self, name):
        return getattr(self.config, name)


class CacheAnimator(Interactive):
    """A cache that fills while a text is written."""

    def __init__(self, config, kv_cache_bytes):
        self.config, self.kv_cache_bytes = config, kv_cache_bytes
        self.step, self.n_kv_heads, self.users = 8, 32, 1

    @property
    def tokens(self):
        """Tokens in the cache after this step."""
        return PROMPT if self.step == 0 else PROMPT + self.step

    def fed(self):
        """Tokens that enter in this step, without and with a cache."""
        return {"without a cache": self.tokens, "with a cache": PROMPT if self.step == 0 else 1}

    def words(self):
        """The memory meter."""
        held = self.kv_cache_bytes(_Sized(self.config, self.n_kv_heads), self.users, 1000 * self.tokens, 2)
        what = "the prompt is read" if self.step == 0 else f"step {self.step}"
        return (
            f"{what}: {self.tokens} places filled. If each place stood for 1,000 tokens, {self.users} "
            f"user{'s' * (self.users > 1)} with {self.n_kv_heads} heads of keys would take {held / 1e9:.2f} GB"
        )

    def draw(self):
        title = f"after {self.step} steps" if self.step else "the prompt"
        return plots.cache_filling(PROMPT, self.tokens, LONGEST, self.fed(), title)

    def alt(self):
        fed = ", ".join(f"{count} {how}" for how, count in self.fed().items())
        return (
            f"A row of {LONGEST} places, {self.tokens} of them filled. Tokens fed in this step: {fed}. "
            f"In words: {self.words()}."
        )

    def rows(self):
        import ipywidgets as w

        self.step_control = w.IntSlider(value=self.step, min=0, max=LONGEST - PROMPT, description="step", **SLIDER)
        self.head_control = w.SelectionSlider(
            options=HEADS, value=self.n_kv_heads, description="heads of keys", **SLIDER
        )
        self.user_control = w.SelectionSlider(options=(1, 8, 64), value=self.users, description="users", **SLIDER)
        return [[self.step_control, self.head_control, self.user_control]]

    def read_controls(self):
        self.step, self.n_kv_heads, self.users = (
            self.step_control.value,
            self.head_control.value,
            self.user_control.value,
        )


class ScalingExplorer(Interactive):
    """A budget, and one way to spend it."""

    def __init__(self, fit, compute_optimal):
        self.fit, self.compute_optimal = fit, compute_optimal
        self.power, self.times = 21.0, 1.0  # log10 of the budget; parameters, as a multiple of the best number

    def loss(self, n_params, flops):
        """What the law predicts where all of the budget is spent."""
        fit, n_tokens = self.fit, flops / 6 / n_params
        return fit["E"] + fit["A"] * n_params ** -fit["alpha"] + fit["B"] * n_tokens ** -fit["beta"]

    def chosen(self):
        """(n_params, n_tokens, predicted loss) of the split in use."""
        flops = 10**self.power
        n_params = self.times * self.compute_optimal(flops, self.fit)[0]
        return n_params, flops / 6 / n_params, self.loss(n_params, flops)

    def words(self):
        """The split and what it brings."""
        n_params, n_tokens, loss = self.chosen()
        least = self.loss(self.compute_optimal(10**self.power, self.fit)[0], 10**self.power)
        return (
            f"budget 1e{self.power:g}: {n_params:.2e} parameters, {n_tokens:.2e} tokens ({n_tokens / n_params:.1f} per "
            f"parameter), predicted loss {loss:.3f}; the best split gives {least:.3f}"
        )

    def draw(self):
        flops = 10**self.power
        best, _ = self.compute_optimal(flops, self.fit)
        shares = [best * 10 ** (step / 10 - 2) for step in range(41)]
        name = f"budget 1e{self.power:g}"
        n_params, _, loss = self.chosen()
        curves = {name: [self.loss(share, flops) for share in shares]}
        return plots.budget_valley(shares, curves, {name: (n_params, loss)}, "One budget, spent in many ways")

    def alt(self):
        return f"A valley: loss by number of parameters, a dot at your split. In words: {self.words()}."

    def rows(self):
        import ipywidgets as w

        self.power_control = w.FloatSlider(
            value=self.power, min=17, max=25, step=0.5, description="budget: 10 to the power", **SLIDER
        )
        self.times_control = w.SelectionSlider(
            options=(0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0),
            value=self.times,
            description="parameters, × best",
            **SLIDER,
        )
        return [[self.power_control, self.times_control]]

    def read_controls(self):
        self.power, self.times = self.power_control.value, self.times_control.value
