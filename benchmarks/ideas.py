"""Draws the pictures that explain: the cascade of levels, what a quorum does, and how a monitor's proof grows.

python benchmarks/ideas.py docs/figures
"""

from __future__ import annotations

import argparse
from pathlib import Path

from threadpoolctl import threadpool_limits

from draw_levels import levels
from draw_monitor import growth
from draw_quorum import quorum

PICTURES = {"levels": levels, "turning": quorum, "proof": growth}
"""What draws each picture, by the name of its file."""


def main() -> None:
    """Draw all of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where to write the pictures")
    folder = parser.parse_args().folder
    with threadpool_limits(1):
        for name, draw in PICTURES.items():
            draw().savefig(folder / f"idea-{name}.png", dpi=150)


if __name__ == "__main__":
    main()
