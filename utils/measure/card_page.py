"""One page of html that needs nothing but a browser: tiles, sections, tables, pictures inside. Knows no run."""

import base64
import html
import io
from dataclasses import dataclass, field

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
MARK = "<!-- report card of the Transformer Workbook -->"


@dataclass(frozen=True)
class Tile:
    """A large number. good: True, False, or None where there is no goal."""

    number: str
    words: str
    good: bool | None
    goal: str


@dataclass(frozen=True)
class Picture:
    """A matplotlib Figure and what it shows, in words."""

    figure: object
    alt: str


@dataclass(frozen=True)
class Table:
    """badges: cells that say whose a part is are coloured."""

    caption: str
    heads: tuple
    rows: list
    badges: bool = False


@dataclass(frozen=True)
class Section:
    title: str
    lead: str = ""
    tables: list = field(default_factory=list)
    pictures: list = field(default_factory=list)


STYLE = """
:root { --paper: #fbfaf6; --card: #ffffff; --ink: #22262b; --soft: #5d6570; --line: #e2ded3; --blue: #0b63a5;
  --good: #0a7a55; --bad: #b1440e; --chip: #eef3f7; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --card: #1d2228; --ink: #eceae4; --soft: #a7b0ba;
  --line: #333b44; --blue: #6cb8ee; --good: #4fce9f; --bad: #f2935c; --chip: #28313a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 880px; margin: 0 auto; padding: 40px 20px 64px; }
header { border-bottom: 3px solid var(--blue); padding-bottom: 16px; margin-bottom: 24px; }
.over { color: var(--blue); letter-spacing: .14em; text-transform: uppercase; font-size: 12px; font-weight: 700; }
h1 { font-size: 40px; line-height: 1.1; margin: 6px 0 6px; letter-spacing: -.02em; }
h2 { font-size: 20px; margin: 0 0 6px; letter-spacing: -.01em; }
p { margin: 0 0 12px; } p.over { margin: 0; } .soft { color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: 14px; }
.tile, section { background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: 18px 20px; }
.tile b { display: block; font-size: 32px; line-height: 1.15; letter-spacing: -.02em; }
.tile span { color: var(--soft); font-size: 14px; display: block; }
.tile .goal { margin-top: 8px; font-size: 13px; font-weight: 600; }
.tile .good { color: var(--good); } .tile .bad { color: var(--bad); }
section { margin-top: 14px; break-inside: avoid; }
figure { margin: 12px 0 0; } figure img { display: block; width: 100%; height: auto; border-radius: 10px;
  border: 1px solid var(--line); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin-top: 8px; font-size: 14.5px; }
caption { text-align: left; color: var(--soft); padding-bottom: 6px; }
th, td { text-align: left; padding: 6px 10px 6px 0; border-top: 1px solid var(--line); vertical-align: top; }
thead th { border-top: 0; color: var(--soft); font-weight: 600; }
tbody th { font-weight: 500; color: var(--soft); width: 34%; }
td { overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.chip { display: inline-block; padding: 1px 10px; border-radius: 999px; background: var(--chip); font-size: 13.5px; }
.chip.own { background: var(--good); color: var(--card); font-weight: 600; }
details { margin-top: 8px; } summary { cursor: pointer; color: var(--blue); }
@media print { body { background: #fff; } section, .tile { border-color: #bbb; } }
"""


def page(title, head, tiles, sections):
    """The whole html of a page, as text."""
    body = "".join(map(_section, sections))
    shown = "".join(map(_tile, tiles))
    return (
        f'<!doctype html>\n{MARK}\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f"<title>{_text(title)}</title><style>{STYLE}</style></head><body><main><header>"
        f'<p class="over">The Transformer Workbook</p><h1>{_text(title)}</h1><p class="soft">{_text(head)}</p></header>'
        f'<div class="tiles">{shown}</div>{body}</main></body></html>\n'
    )


def _text(value):
    return html.escape(str(value))


def _tile(tile):
    goal = ""
    if tile.good is not None:
        kind, mark = ("good", "✓") if tile.good else ("bad", "✗")
        goal = f'<span class="goal {kind}">{mark} {_text(tile.goal)}</span>'
    return f'<div class="tile"><b>{_text(tile.number)}</b><span>{_text(tile.words)}</span>{goal}</div>'


def _section(section):
    lead = f"<p class='soft'>{_text(section.lead)}</p>" if section.lead else ""
    parts = [*map(_table, section.tables), *map(_picture, section.pictures)]
    return f"<section><h2>{_text(section.title)}</h2>{lead}{''.join(parts)}</section>"


def _table(table):
    heads = "".join(f"<th scope='col'>{_text(head)}</th>" for head in table.heads)
    heads = f"<thead><tr>{heads}</tr></thead>" if any(table.heads) else ""
    rows = "".join(_row(row, table.badges) for row in table.rows)
    caption = f"<caption>{_text(table.caption)}</caption>" if table.caption else ""
    return f"<div class='scroll'><table>{caption}{heads}<tbody>{rows}</tbody></table></div>"


def _row(row, badges):
    first, *rest = row
    cells = "".join(f"<td>{_badge(cell) if badges else _text(cell)}</td>" for cell in rest)
    return f"<tr><th scope='row'>{_text(first)}</th>{cells}</tr>"


def _badge(cell):
    return f"<span class='chip{' own' if cell == 'yours' else ''}'>{_text(cell)}</span>"


def _picture(picture):
    data = io.BytesIO()
    picture.figure.savefig(data, format="png", dpi=160)
    code = base64.b64encode(data.getvalue()).decode()
    return f'<figure><img src="data:image/png;base64,{code}" alt="{_text(picture.alt)}"></figure>'
