"""Labels that outsiders choose, as they are shown."""

LONGEST = 64
"""Largest number of characters of a label that are shown."""


def label(text: str) -> str:
    """A label as it is shown: not too long, and without signs that change how the text around it reads."""
    cut = text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in cut)
