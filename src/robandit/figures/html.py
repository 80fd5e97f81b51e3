"""One HTML page that needs no other file, made of plain values and figures.

The same input gives the same bytes.

>>> claims = Verdicts([("Weighted OFUL beats OFUL", "holds", "by 12 ± 3")])
>>> text = page("A run", "What came out.", [Section("Claims", [claims, CommandBlock("robandit paper figure1")])])
>>> "✓" in text and "<script" not in text
True
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import matplotlib as mpl

from robandit.files import save_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERDICTS = {
    "holds": ("✓", "good"),
    "does not hold": ("✗", "bad"),
    "fails": ("!", "bad"),
    "undecided": ("?", "open"),
    "vacuous": ("∅", "idle"),
}
"""The verdicts that a claim can get, each with its symbol and its look."""
_INCH = 114  # pixels: a picture of 7 inches is as wide as the column of text, and its 8-point type has 12.7 pixels
_NUMBER = re.compile(r"[-−–]?|nan|[-−+<>≤≥≈~]* ?(inf|[\d.∞([][-−–+<>≤≥±\d.,;\s%×/()[\]e∞kM]*)")


class Block(Protocol):
    """A part of a section. Any class with this one method can be one."""

    def html(self) -> str:
        """The HTML of the block, with all text escaped."""


@dataclass(frozen=True)
class Section:
    """A part of the page with a title, which the table of contents lists."""

    title: str
    body: Sequence[Block]


@dataclass(frozen=True)
class Text:
    """Paragraphs with empty lines between them. Text between backticks is code."""

    text: str

    def html(self) -> str:
        parts = (part.strip() for part in re.split(r"\n\s*\n", self.text))
        return "\n".join(f"<p>{_inline(part)}</p>" for part in parts if part)


@dataclass(frozen=True)
class CommandBlock:
    """A shell command. One click selects all of it."""

    text: str

    def html(self) -> str:
        words = re.sub(r"\S+", r"<span>\g<0></span>", escape(self.text))  # a line breaks only between words
        return f'<pre class="command"><code>{words}</code></pre>'


@dataclass(frozen=True)
class Picture:
    """A figure and its caption.

    A screen reader says ``alt``, or else the caption and the words on the figure.
    """

    figure: Figure
    caption: str
    alt: str = ""

    def html(self) -> str:
        width, height = (round(_INCH * inches) for inches in self.figure.get_size_inches())
        alt = _plain(self.alt or f"{self.caption} {_writing(self.figure)}")
        source = f"data:image/svg+xml;base64,{b64encode(_svg(self.figure)).decode()}"
        return (
            f'<figure class="picture"><div class="frame"><img width="{width}" height="{height}" alt="{alt}"\n'
            f'src="{source}"></div>\n<figcaption>{_inline(self.caption)}</figcaption>\n'
            '<label class="enlarge"><input type="checkbox" autocomplete="off"> Enlarge</label>\n</figure>'
        )


@dataclass(frozen=True)
class Grid:
    """A table. The first column names the rows. Columns of numbers are aligned to the right."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows, 1):
            if len(row) != len(self.header):
                raise ValueError(f"row {number} must have {len(self.header)} cells as the header has, got {len(row)}")

    def html(self) -> str:
        cells = [[_cell(value) for value in row] for row in self.rows]
        numeric = [all(_NUMBER.fullmatch(row[place]) for row in cells) for place in range(len(self.header))]
        looks = [' class="number"' if right else "" for right in numeric]
        head = _row(self.header, ['th scope="col"'] * len(looks), looks)
        rows = "\n".join(_row(row, ['th scope="row"', *["td"] * (len(looks) - 1)], looks) for row in cells)
        return (
            f'<div class="scroll" role="region" tabindex="0" aria-label="{_plain(self.caption)}">\n<table>\n'
            f"<caption>{_inline(self.caption)}</caption>\n<thead>{head}</thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n</div>"
        )


@dataclass(frozen=True)
class Verdicts:
    """A list of claims with their verdicts and evidence, below a count of each verdict."""

    rows: Sequence[tuple[str, str, str]]
    """The claim, its verdict (a key of ``VERDICTS``) and the evidence."""

    def __post_init__(self) -> None:
        for claim, verdict, _ in self.rows:
            if verdict not in VERDICTS:
                raise ValueError(f"the verdict on {claim!r} must be one of {', '.join(VERDICTS)}, got {verdict!r}")

    def html(self) -> str:
        counts = Counter(verdict for _, verdict, _ in self.rows)
        tally = " ".join(_badge(verdict, f": {counts[verdict]}") for verdict in VERDICTS if counts[verdict])
        items = "\n".join(
            f'<li>{_badge(verdict)} <div><p>{_inline(claim)}</p> <p class="evidence">{_inline(evidence)}</p></div></li>'
            for claim, verdict, evidence in self.rows
        )
        return f'<p class="tally">{tally}</p>\n<ul class="verdicts" role="list">\n{items}\n</ul>'


@dataclass(frozen=True)
class Facts:
    """A list of names and values, such as settings and versions."""

    facts: Mapping[str, object]

    def html(self) -> str:
        facts = ((_inline(name), _inline(_cell(value))) for name, value in self.facts.items())
        rows = "\n".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts)
        return f'<dl class="facts">\n{rows}\n</dl>'


def page(title: str, lead: str | Block, sections: Sequence[Section]) -> str:
    """The HTML of the whole page."""
    named = list(zip(_anchors([section.title for section in sections]), sections, strict=True))
    links = "\n".join(f'<li><a href="#{name}">{_inline(section.title)}</a></li>' for name, section in named)
    parts = "\n".join(
        f'<section aria-labelledby="{name}">\n<h2 id="{name}">{_inline(section.title)}</h2>\n'
        f"{chr(10).join(block.html() for block in section.body)}\n</section>"
        for name, section in named
    )
    first = Text(lead) if isinstance(lead, str) else lead
    return _PAGE.format(title=_plain(title), lead=first.html(), links=links, sections=parts, style=_STYLE)


def write(path: Path | str, text: str, *, force: bool = False) -> None:
    """Save a page whole or not at all. Only ``force`` replaces a different page that is already there."""
    save_file(Path(path), text.encode(), force=force)


def _inline(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _plain(text: str) -> str:
    return escape(" ".join(text.replace("`", "").split()))


def _cell(value: object) -> str:
    if isinstance(value, float):  # np.float64 is a float too
        return f"{value:.0f}" if 1e3 <= abs(value) < 1e7 else f"{value:.4g}"
    return "–" if value is None else str(value)


def _row(cells: Iterable[str], tags: Iterable[str], looks: Iterable[str]) -> str:
    parts = (f"<{t}{look}>{_inline(cell)}</{t[:2]}>" for cell, t, look in zip(cells, tags, looks, strict=True))
    return f"<tr>{''.join(parts)}</tr>"


def _badge(verdict: str, more: str = "") -> str:
    symbol, look = VERDICTS[verdict]
    return f'<span class="badge {look}"><span aria-hidden="true">{symbol}</span> {verdict}{more}</span>'


def _anchors(titles: Sequence[str]) -> list[str]:
    """An id for each section, made of its title and different from the others."""
    names: list[str] = []
    for title in titles:
        base = re.sub(r"\W+", "-", title.lower()).strip("-") or "section"
        names.append(next(name for n in count(1) if (name := base if n == 1 else f"{base}-{n}") not in names))
    return names


def _svg(figure: Figure) -> bytes:
    """The figure as SVG. The same figure gives the same bytes; it and the user's settings stay as they are."""
    placed = [(a, a.get_position(True).frozen(), a.get_position().frozen(), a.get_in_layout()) for a in figure.axes]
    file, nothing = BytesIO(), dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with mpl.rc_context({"svg.hashsalt": "robandit", "svg.fonttype": "path", "savefig.bbox": None}):
        figure.savefig(file, format="svg", facecolor="white", metadata=nothing)
    for axes, original, active, moves in placed:  # else the next layout starts from this one and ends slightly off
        axes.set_position(original, "original")
        axes.set_position(active, "active")
        axes.set_in_layout(moves)
    return file.getvalue()[file.getvalue().index(b"<svg") :]


def _writing(figure: Figure) -> str:
    """The words on a figure: titles of its panels, axes and legends."""
    titles = [panel.get_title(loc="left") or panel.get_title() for panel in figure.axes]
    axes = [figure.get_supxlabel(), figure.get_supylabel()]
    axes += [label for panel in figure.axes for label in (panel.get_xlabel(), panel.get_ylabel())]
    legends = [*figure.legends, *filter(None, (panel.get_legend() for panel in figure.axes))]
    entries = [text.get_text() for legend in legends for text in legend.get_texts()]
    groups = [("Panels", titles), ("Axes", axes), ("Legend", entries)]
    return " ".join(f"{name}: {'; '.join(dict.fromkeys(filter(None, words)))}." for name, words in groups if any(words))


_PAGE = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<!-- A browser may load nothing but the pictures within. -->
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,"><style>
{style}</style></head>
<body><header><h1>{title}</h1>
{lead}</header>
<nav aria-label="Contents"><p>Contents</p><ol>
{links}</ol></nav><main>{sections}</main></body></html>
"""

_STYLE = """\
:root { --paper: #ffffff; --ink: #1c2126; --muted: #56606b; --line: #d8dde2; --panel: #f3f5f7; --link: #0b5cab;
  --good: #0a5a39; --good-soft: #ddf2e7; --bad: #8e1c13; --bad-soft: #fbe3e0;
  --open: #664700; --open-soft: #faeecb; --idle: #434b53; --idle-soft: #e6e9ec; }
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #14171a; --ink: #e3e7ea; --muted: #a4adb6; --line: #343b42; --panel: #1e2327; --link: #82bdf7;
  --good: #8fe0b6; --good-soft: #12392a; --bad: #ffb3a9; --bad-soft: #4b1c18;
  --open: #f2d27a; --open-soft: #3f3109; --idle: #c3cad1; --idle-soft: #2d343a; } }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 52rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif;
  overflow-wrap: break-word; -webkit-text-size-adjust: 100%; }
h1, h2 { margin: 0 0 1rem; line-height: 1.2; letter-spacing: -.015em; text-wrap: balance; break-after: avoid; }
h1 { font-size: clamp(1.75rem, 1.3rem + 2vw, 2.5rem); } h2 { font-size: 1.4rem; scroll-margin-top: 1rem; }
header p { font-size: 1.125rem; color: var(--muted); } header p, section > p { max-width: 42rem; margin: 0 0 1rem; }
section { margin-top: 3rem; padding-top: 1.75rem; border-top: 1px solid var(--line); } * { box-sizing: border-box; }
code { font: .9em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; }
:not(pre) > code { background: var(--panel); border-radius: .25rem; padding: .1em .3em; }
nav { margin: 1.5rem 0; padding: .75rem 1rem; background: var(--panel); border-radius: .5rem; }
nav p { margin: 0 0 .25rem; font-weight: 600; font-size: .875rem; color: var(--muted); }
nav ol, .verdicts { margin: 0; padding: 0; list-style: none; } nav ol { columns: 13rem; }
nav a { display: block; padding: .25rem 0; color: var(--link); } nav a:not(:hover) { text-decoration: none; }
.command { margin: 1.25rem 0; padding: .7rem 1rem .7rem 2.2rem; border-radius: .5rem; background: var(--panel);
  white-space: pre-wrap; overflow-x: auto; } .command code { user-select: all; } .command span { white-space: nowrap; }
.command::before { content: "$"; float: left; margin-left: -1.2rem; color: var(--muted); user-select: none; }
.picture, .scroll { margin: 1.5rem 0 2rem; } .scroll, .frame { overflow-x: auto; }
.frame { padding: .5rem; border: 1px solid var(--line); border-radius: .5rem; background: #ffffff; }
.frame img { display: block; max-width: 100%; height: auto; margin: auto; }
figcaption, caption { color: var(--muted); text-align: left; max-width: min(42rem, 100vw - 2rem); padding: .6rem 0; }
figcaption, .enlarge, table, .evidence, .facts { font-size: .9375rem; font-variant-numeric: tabular-nums; }
.enlarge { display: none; color: var(--link); } table { border-spacing: 0; line-height: 1.4; min-width: 50%; }
th, td { padding: .45rem .5rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
thead th { vertical-align: bottom; border-color: var(--muted); } table .number { text-align: right; }
tbody th { font-weight: 500; min-width: 8rem; max-width: 18rem; } td.number { white-space: nowrap; }
th:first-child { position: sticky; left: 0; background: var(--paper); padding-left: 0; } th, td { font-size: .875rem; }
.tally, .facts div { display: flex; flex-wrap: wrap; gap: .25rem .5rem; } .facts dt { flex: 0 0 8rem; }
.badge { padding: .1rem .6rem; border: 1px solid; border-radius: 1rem; white-space: nowrap; justify-self: start;
  font-size: .875rem; font-weight: 600; line-height: 1.5; print-color-adjust: exact; }
.good { color: var(--good); background: var(--good-soft); } .bad { color: var(--bad); background: var(--bad-soft); }
.open { color: var(--open); background: var(--open-soft); } .idle { color: var(--idle); background: var(--idle-soft); }
.verdicts li, .facts div { padding: .5rem 0; border-top: 1px solid var(--line); overflow-wrap: anywhere; }
.verdicts p, .facts, .facts dd { margin: 0; } .evidence, .facts dt { color: var(--muted); }
@media (max-width: 44rem) { .enlarge { display: inline-block; } .picture:has(:checked) img { max-width: none; }
  .badge { white-space: normal; } .verdicts .badge { display: inline-block; margin-bottom: .4rem; }
  tbody th { max-width: 9rem; } }
@media (min-width: 44.01rem) { .verdicts li, .facts div { display: grid; gap: 1rem; align-items: start; }
  .verdicts li { grid-template-columns: 9rem 1fr; } .facts div { grid-template-columns: 14rem 1fr; } }
@media screen and (min-width: 76rem) { header, main { grid-column: 2; } section:first-child { margin-top: 1.5rem; }
  body { display: grid; grid-template: auto 1fr / 13rem minmax(0, 50rem); gap: 0 3rem; max-width: 70rem; }
  nav { grid-area: 1 / 1 / 3; align-self: start; position: sticky; top: 1.5rem; margin: 0; } nav ol { columns: auto; } }
@media print { :root { font-size: 10pt; } body { max-width: none; padding: 0; } nav, .enlarge { display: none; }
  .scroll { overflow: visible; } .picture, .command, tr, .verdicts li { break-inside: avoid; } }
"""
