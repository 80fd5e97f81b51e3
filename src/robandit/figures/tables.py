"""Tables of text: as Markdown, or as columns for a terminal."""

from __future__ import annotations

from collections.abc import Sequence


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown.

    >>> markdown(["policy", "regret"], [["OFUL", "31"]])
    ['| policy | regret |', '| --- | --- |', '| OFUL | 31 |']
    """
    return [f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows]]


def text(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table in columns, two spaces apart; the header is the first row.

    >>> text([["policy", "regret"], ["Weighted OFUL", "28"]])
    ['policy         regret', 'Weighted OFUL  28']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
