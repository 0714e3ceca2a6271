"""A measured speed as a share of a ceiling. A share above 1 is no triumph: the ceiling was measured wrong."""

from dataclasses import dataclass

from utils.measure import costs


@dataclass(frozen=True)
class Ratio:
    """A share of a ceiling, and which one."""

    name: str
    value: float

    @property
    def wrong(self):
        """Nothing is faster than its own ceiling."""
        return not 0 <= self.value <= 1

    def __str__(self):
        if self.wrong:
            return f"{self.name}: the ceiling was measured wrong (measure it again, with nothing else running)"
        return f"{self.name} {self.value:.2f}"

    def told(self):
        """For a table or json: the number, or a sentence in its place."""
        return "the ceiling was measured wrong" if self.wrong else float(f"{self.value:.3g}")


def compute(speed, flops, peak, name="R_compute"):
    """Of the operations that the device could have done, how many went into the model? speed in tokens per second."""
    return Ratio(name, speed / (peak / flops))


def roofline(speed, flops, peak, traffic, bandwidth):
    """The same beside what is possible if each token's activations must also be moved."""
    return Ratio("R_roofline", speed * costs.roofline(flops, peak, traffic, bandwidth))


def decode(n_bytes, bandwidth, seconds):
    """Of the time of one decoding step, how much does reading weights and cache need?"""
    return Ratio("R_decode", n_bytes / bandwidth / seconds)


def attention(batch, n_heads, seq_len, d_head, seconds, peak):
    """Causal attention, forward: two products with half of the keys each."""
    return Ratio("R_attn", 2 * batch * n_heads * seq_len * seq_len * d_head / seconds / peak)
