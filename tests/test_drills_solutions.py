"""Every code drill can be done: the course's own solution, typed into the card, passes check and twist.

And a twist asks for more than the check: answers that pass the one and not the other.
"""

import json

import pytest

from autograde.course import ROOT
from utils.drills import load_cards
from utils.drills.replies import Unclear, ask, judge
from utils.syllabus import syllabus

pytestmark = pytest.mark.slow
TASKS = syllabus()
CODE = {card.exercise: card for card in load_cards() if card.kind == "code"}


def solution(task):
    """The text of the cell that solves an exercise."""
    path = ROOT / "solutions" / task.phase / f"{task.phase}.ipynb"
    cells = json.loads(path.read_text(encoding="utf8"))["cells"]
    return next("".join(cell["source"]) for cell in cells if cell.get("id") == f"{task.name}-build")


@pytest.mark.parametrize("name", CODE)
def test_the_solution_passes_on_its_card(name):
    """Typed on the card, with nothing but its own cell: right, twist included; and the blank cell is no answer?"""
    asked = ask(CODE[name], 0)
    with pytest.raises(Unclear, match="blank cell"):
        judge(asked, TASKS[name].stub)
    verdict = judge(asked, solution(TASKS[name]))
    assert verdict.right, verdict.text
    assert ("**Twist**" in verdict.text) == (CODE[name].twist is not None)


# Each is what someone in a hurry might write: right for all that the check tries, wrong for one case more.
TEMPTING = {
    "merge_heads": "return x.transpose(-3, -2).reshape(*x.shape[:-3], x.shape[-2], -1)",
    "embed": """token_ids = np.asarray(token_ids)
    if token_ids.min() < 0 or token_ids.max() >= len(table):
        raise ValueError("a token id is not in the table")
    return table[token_ids]""",
    "position_distances": "return torch.cdist(positions, positions)",
    "sample": """rows = logits.softmax(-1).reshape(-1, logits.shape[-1])
    return torch.multinomial(rows, 1, generator=generator).reshape(logits.shape[0], *logits.shape[1:-1])""",
    "attention_weights": """if q.shape[-1] != k.shape[-1] or (attn_mask is not None and attn_mask.dtype != torch.bool):
        raise ValueError("q, k or the mask does not fit")
    seen = torch.ones(1, dtype=torch.bool) if attn_mask is None else attn_mask
    scores = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).masked_fill(~seen, -1e30)
    exps = (scores - scores.amax(-1, keepdim=True)).exp() * seen
    return exps / exps.sum(-1, keepdim=True).clamp(min=1e-30)""",
    "reads_hidden": """generator = torch.Generator().manual_seed(0)
    for batch in (1, 2, 3):
        x = torch.randn(batch, 8, 8, dtype=torch.float64, generator=generator)
        mask = torch.rand(batch, 1, 8, 8, generator=generator) < 0.5
        mask[:, :, 5] = False
        with torch.no_grad():
            for place in range(8):
                other = x.clone()
                other[:, place] += 3
                moved = (attention(other, mask) - attention(x, mask)).abs().amax(-1) > 1e-9
                moved[:, place] = False
                if (moved & ~mask[:, 0, :, place]).any():
                    return True
    return False""",
    "Encoder": """def __init__(self, n_layers, d_model, n_heads, d_ff, norm_first=True, dropout=0.0):
        super().__init__()
        made = (EncoderBlock(d_model, n_heads, d_ff, norm_first, dropout) for _ in range(n_layers))
        self.blocks, self.norm = nn.ModuleList(made), LayerNorm(d_model) if norm_first else None

    def forward(self, x, attn_mask=None):
        for block in self.blocks:
            out = x = block(x, attn_mask=attn_mask)
        return out if self.norm is None else self.norm(out)""",
    "SharedStack": """def __init__(self, block, n_layers):
        super().__init__()
        self.block, self.n_layers = block, n_layers

    def forward(self, x, attn_mask=None):
        out = self.block(x, attn_mask=attn_mask)
        for _ in range(self.n_layers - 1):
            out = self.block(out, attn_mask=attn_mask)
        return out""",
    "LearnedPositions": """def __init__(self, max_len, d_model):
        super().__init__()
        self.table = nn.Parameter(torch.randn(max_len, d_model) * 0.02)

    def forward(self, x, offset=0):
        if not 0 <= offset < len(self.table) or offset + x.shape[-2] > len(self.table):
            raise ValueError("past the end")
        return x + self.table[offset : offset + x.shape[-2]]""",
}


@pytest.mark.parametrize("name", TEMPTING)
def test_a_twist_finds_what_the_check_lets_pass(name):
    """Does an answer that is right in every visible case stumble over the twist alone?"""
    head = next(line for line in TASKS[name].stub.splitlines() if line.startswith(("def ", "class ")))
    verdict = judge(ask(CODE[name], 0), f"{head}\n    {TEMPTING[name]}\n")
    assert verdict.score == 0.75 and not verdict.final and CODE[name].twist.name in verdict.text
