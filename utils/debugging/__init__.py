"""`checklist(layer)`: twelve questions that find most bugs of attentions and models, asked of any of them.

Nothing is left behind: weights, gradients, flags, random state and default dtype are what they were.
"""

import os
from dataclasses import dataclass

import torch

from utils.debugging.assertions import ASSERTIONS, NotAsked
from utils.debugging.subject import borrowed, settle, subject_of
from utils.observe import forbid, limits

__all__ = ["ASSERTIONS", "Finding", "checklist", "examine"]


@dataclass(frozen=True)
class Finding:
    """What became of one assertion: ok is True, False, or None where it does not apply; says is one sentence."""

    name: str
    ok: bool | None
    says: str

    @property
    def line(self):
        mark = {True: "✓", False: "✗", None: "–"}[self.ok]
        return f"{mark} {self.name:36}{self.says}".rstrip()


def examine(obj, width=None, vocab_size=None, causal=None, call=None):
    """A Finding for each of the twelve assertions. Arguments as in `checklist`; prints nothing."""
    return _examined(obj, width, vocab_size, causal, call)[1]


def checklist(obj, width=None, vocab_size=None, causal=None, call=None):
    """Print twelve assertions about an attention, block or model: ✓ holds, ✗ does not and why, – does not apply.

    obj: an nn.Module, or a function of vectors; arguments named as in this course (attn_mask, pad_mask, memory, src,
    tgt, …) and nn.MultiheadAttention are understood
    call: for any other: call(x) or call(x, mask), mask (batch, 1, seq_len, seq_len) bool, True = may attend, or None
    width, vocab_size: what it reads, vectors or token ids, where it cannot be seen from its layers
    causal: whether it should hide the future by itself; None: found out by trying
    While a class is graded it does nothing: nobody is there to read.
    """
    if "NBGRADER_EXECUTION" in os.environ:
        return
    subject, findings = _examined(obj, width, vocab_size, causal, call)
    print(subject.described)
    for number, finding in enumerate(findings, 1):
        print(f"{number:2} {finding.line}")


def _examined(obj, *how):
    forbid.refuse_while_observed("the debugging checklist")
    subject, findings = subject_of(obj, *how), []
    with limits.captured({}), limits.global_state(torch.float64, 0, {}), borrowed(subject.module), torch.no_grad():
        settle(subject)
        for name, assertion in ASSERTIONS.items():
            if findings and findings[0].says.startswith("it raised"):
                findings.append(Finding(name, None, "not asked: the first one must hold"))
                continue
            findings.append(_asked(name, assertion, subject))
    return subject, findings


def _asked(name, assertion, subject):
    try:
        wrong = assertion(subject)
    except NotAsked as reason:
        return Finding(name, None, str(reason))
    except Exception as error:
        text = (str(error).splitlines() or [""])[0]
        return Finding(name, False, f"it raised {type(error).__name__}: {text}"[:150])
    return Finding(name, wrong is None, wrong or "")
