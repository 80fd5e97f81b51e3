"""Options that several commands have, and how lists in options are read."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from robandit.lab.engine import Engine

DEVICES = ("cpu", "cuda")  # as in `lab.gpu.plan`, which takes longer to import than help may


def add_sizes(parser: ArgumentParser, *, rounds: int, trials: int, seed: int = 1) -> None:
    """Add --rounds, --trials and --seed."""
    parser.add_argument(
        "--rounds", type=int, default=rounds, help="Play this many rounds in each trial (default %(default)s)."
    )
    parser.add_argument(
        "--trials", type=int, default=trials, help="Repeat each scenario this many times (default %(default)s)."
    )
    parser.add_argument(
        "--seed", type=int, default=seed, help="Seed all random draws with this number (default %(default)s)."
    )


def sizes_of(options: Namespace) -> dict[str, int]:
    """The values of --rounds, --trials and --seed."""
    return {name: getattr(options, name) for name in ("rounds", "trials", "seed")}


def add_out(parser: ArgumentParser, default: str, into: str = "into this folder") -> None:
    """Add --out and --force."""
    parser.add_argument("--out", type=Path, default=Path(default), help=f"Write {into} (default %(default)s).")
    parser.add_argument("--force", action="store_true", help="Replace existing files that differ.")


def add_engine(parser: ArgumentParser) -> None:
    """Add the options that say where to run."""
    where = parser.add_argument_group("where to run")
    where.add_argument("--engine", default="local", help="Run on local, dask or ray (default %(default)s).")
    where.add_argument(
        "--address", help="Use the Dask scheduler or Ray cluster at this address (default: start one here)."
    )
    where.add_argument("--workers", type=int, help="Use this many processes (default: one for each core).")
    where.add_argument(
        "--batch", type=int, help="Run this many trials at once in a process (default: as many as are fast)."
    )
    where.add_argument(
        "--device",
        choices=DEVICES,
        help="Compute on the CPU, or by cuda on a GPU, in single precision and in worlds of its own (default: cpu).",
    )
    where.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="FILE",
        help="Take the result from this npz file, in which a GPU elsewhere summed this run up.",
    )


def engine_of(options: Namespace) -> Engine:
    """The engine that the options ask for."""
    from robandit.lab.engine import Engine

    return Engine(kind=options.engine, workers=options.workers, address=options.address, batch=options.batch)


def low_high(text: str) -> tuple[float, float]:
    """Read a range.

    >>> low_high("-1,1")
    (-1.0, 1.0)
    """
    try:
        low, high = floats(text)
    except ValueError:
        raise ArgumentTypeError(f"should be LOW,HIGH, got {text!r}") from None
    return low, high


def rewards(text: str) -> tuple[float, float]:
    """Read what rewards can be.

    >>> rewards("clicks"), rewards("1,5")
    ((0.0, 1.0), (1.0, 5.0))
    """
    from robandit.rewards import KINDS

    return KINDS[text] if text in KINDS else low_high(text)


def words(text: str) -> list[str]:
    """Read words that are separated by commas."""
    return [part.strip() for part in text.split(",")]


def integers(text: str) -> list[int]:
    """Read whole numbers that are separated by commas."""
    return [int(part) for part in text.split(",")]


def floats(text: str) -> list[float]:
    """Read numbers that are separated by commas."""
    return [float(part) for part in text.split(",")]
