"""Which room of the package imports from which: ``python tests/house.py docs/figures/house.png`` draws it."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import robandit

SOURCE = Path(robandit.__file__).parent

# From the ground up: a module imports from its own room and from those before it.
ROOMS = ["arrays", "errors", "inputs", "streams", "files", "rewards", "features", "geometry", "policies", "bandit"]
ROOMS += ["monitor", "lab", "figures", "experiments", "wire", "client", "service", "play", "logs", "cli"]
# The largest room has rooms of its own, and single files between them.
SERVICE = [
    "refused",
    "clock",
    "log_lines",
    "requests",
    "meters",
    "stores",
    "learning",
    "files",
    "serving",
    "hub",
    "web",
]


@cache
def modules() -> dict[str, Path]:
    """The file of every module, by its name within the package."""
    paths = (path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or not path.name.startswith("__"))
    return {".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax tree of every module."""
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules().items()}


def imported(nodes: Iterable[ast.AST]) -> set[str]:
    """The modules, or what is in them, that some code imports from the package, whichever way it says so."""
    names: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the package in full"
            names += [f"{node.module}.{name.name}" for name in node.names]
    return {name.removeprefix("robandit.") for name in names if name.startswith("robandit.")}


def room(name: str) -> str:
    return name.split(".")[0]


def edges() -> Counter[tuple[str, str]]:
    """How many modules of one room import from another."""
    found: Counter[tuple[str, str]] = Counter()
    for name, tree in trees().items():
        others = {room(other) for other in imported(ast.walk(tree))}
        found.update((room(name), other) for other in others & set(ROOMS) if other != room(name))
    return found


def draw(path: Path) -> None:
    """The rooms as a column, the ground at the bottom, and an arc for every import between two rooms."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Arc

    figure = Figure(figsize=(7.5, 6.0), layout="constrained")
    axes = figure.add_subplot()
    sizes = Counter(room(name) for name in modules())
    for place, name in enumerate(ROOMS):
        axes.text(-0.4, place, name, ha="right", va="center", fontsize=11)
        axes.text(-3.4, place, f"{sizes[name]}", ha="right", va="center", fontsize=9, color="0.45")
        axes.plot(0, place, "o", color="0.2", markersize=5)
    for (importer, other), count in edges().items():
        high, low = ROOMS.index(importer), ROOMS.index(other)
        color = "tab:red" if low > high else "tab:blue"
        width, height = 0.8 * abs(high - low), abs(high - low)
        side = (90.0, 270.0) if low > high else (-90.0, 90.0)
        arc = Arc((0, (high + low) / 2), width, height, theta1=side[0], theta2=side[1], color=color, alpha=0.55)
        arc.set_linewidth(0.6 + 0.35 * count**0.5)
        axes.add_patch(arc)
    axes.text(-3.4, len(ROOMS), "modules", ha="right", va="center", fontsize=9, color="0.45")
    axes.set(xlim=(-5.0, 7.9), ylim=(-0.8, len(ROOMS) + 0.3))
    axes.axis("off")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
