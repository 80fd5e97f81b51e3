"""Draw a recorded game as an animated picture: ``python benchmarks/draw_play.py docs/figures/play.gif``.

The game is a run that `robandit play` has saved, by default examples/attack.toml. It is played again, and shown.
"""

from __future__ import annotations

import argparse
import tomllib
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from robandit.files import write_file
from robandit.lab.attacks.recorded import Script
from robandit.play.game import Game
from robandit.play.messages import Scene, scene_of
from robandit.play.worlds import worlds

FRAMES, STEP, HOLD = 80, 90, 3000  # pictures, milliseconds for each, and for the last
NAMES = ("OFUL", "Multi-level", "CW-OFUL", "Quorum")
COLORS = ("#b35900", "#7b3fa0", "#0b5cab", "#0a7a4f")  # as on the page
DASHES = ("--", ":", "-.", "-")
KINDS = {"flip": "#b3261e", "promote": "#8a6100", "suppress": "#44566b"}
WORDS = {"flip": "flips clicks", "promote": "praises junk", "suppress": "slanders the best"}
INK, MUTED, PANEL, BAD = "#1c2126", "#56606b", "#f3f5f7", "#8e1c13"
SHADES = 64  # colours of the file: fewer make it smaller


def recorded(path: Path) -> tuple[Game, Script]:
    """The game of a saved run, before its first round, and its lies."""
    run: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    (attack,) = run["attacks"]
    for found in worlds(Path()).values():
        world = found._replace(rounds=run["rounds"])
        config = world.config(seed=run["seed"], budget=attack["budget"], lies=attack["lies"])
        if config == {name: run[name] for name in config}:
            return Game(world, seed=run["seed"], budget=attack["budget"]), Script.read(attack["lies"])
    raise ValueError(f"{path} is no run that `robandit play` has saved")


def curves(axes: Axes, game: Game, scene: Scene, high: float) -> None:
    """What each policy has lost, and dotted what it would have lost without lies."""
    rounds = [0, *(point.round for point in game.points)]
    for begin, end, kind, _ in scene.lies:
        axes.axvspan(begin - 1, end, color=KINDS[kind], alpha=0.13, linewidth=0)
    ends = []
    for k, color in enumerate(COLORS):
        lied = [0.0, *(point.lied[k] for point in game.points)]
        honest = [0.0, *(point.honest[k] for point in game.points)]
        axes.plot(rounds, honest, color=color, linewidth=0.8, linestyle=":", alpha=0.8)
        axes.plot(rounds, lied, color=color, linewidth=2.4, linestyle=DASHES[k])
        ends.append((lied[-1], k))
    last = -high
    for lost, k in sorted(ends):
        last = max(lost, last + 0.06 * high)
        axes.annotate(
            f"{NAMES[k]} {lost:.0f}", (rounds[-1], last), (5, -3), textcoords="offset points", color=COLORS[k]
        )
    if scene.alarm is not None and scene.alarm.since:
        axes.axvline(scene.alarm.since, color=BAD, linewidth=1.2)
        axes.annotate("alarm", (scene.alarm.since, high), (3, -12), textcoords="offset points", color=BAD)
    axes.set(xlim=(0, 1.22 * game.rounds), ylim=(0, high), xticks=range(0, game.rounds + 1, 1000))
    axes.set_title("What each program has lost (dotted: if nobody lied)", loc="left", fontsize=11, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines.bottom.set_bounds(0, game.rounds)
    axes.tick_params(labelbottom=False, bottom=False, colors=MUTED)


def sources(axes: Axes, game: Game, scene: Scene) -> None:
    """A row for each source: above, the lies in its name; below, what Quorum does not believe."""
    rows = max(1, len(game.environment.shares))
    for row in range(rows):
        axes.barh(row, game.rounds, height=0.86, color=PANEL)
        for begin, end, kind, source in scene.lies:
            if source in (None, row):
                axes.barh(row - 0.21, end - begin + 1, left=begin - 1, height=0.42, color=KINDS[kind])
        for source, since, last, weight, share in scene.doubt.stretches:
            if source == row or rows == 1:
                strength = min(1.0, 0.25 + share * rows) * (1.0 - weight)
                axes.barh(row + 0.21, last - since + 1, left=since - 1, height=0.42, color=INK, alpha=strength)
    axes.set(xlim=(0, 1.22 * game.rounds), ylim=(rows - 0.4, -0.6), yticks=range(rows), xticks=[])
    axes.set_title("Partners: the lies above, what Quorum does not believe below", loc="left", fontsize=11, color=INK)
    axes.spines[:].set_visible(False)
    axes.tick_params(left=False, colors=MUTED, labelsize=7)


def words(game: Game, scene: Scene) -> tuple[str, str]:
    """What the attacker does in this round, and what the monitor has proved."""
    now = game.script.at(game.round)
    name = "" if now is None or now.source is None else f" of partner {now.source}"
    lie = "tells no lies" if now is None or scene.spent >= game.budget else f"{WORDS[now.kind]}{name}"
    proved = 0.0 if scene.alarm is None else scene.alarm.proved
    proof = f"monitor: {proved:.0f} of {scene.told[-1]:.0f} proved" if proved else "monitor: nothing proved"
    return f"Round {game.round:,}: the attacker {lie}", f"{scene.spent:.0f} of {game.budget:.0f} spent; {proof}"


def picture(game: Game, high: float) -> Image.Image:
    """The game as it stands."""
    scene = scene_of(game)
    figure = Figure(figsize=(8.4, 5.2), dpi=100)
    above, below = figure.subplots(2, 1, height_ratios=(2.4, 1.0))
    figure.subplots_adjust(left=0.06, right=0.99, top=0.84, bottom=0.02, hspace=0.2)
    curves(above, game, scene, high)
    sources(below, game, scene)
    first, second = words(game, scene)
    figure.text(0.012, 0.945, first, fontsize=14, weight="bold", color=INK)
    figure.text(0.012, 0.9, second, fontsize=11, color=BAD if "of" in second.partition(";")[2] else MUTED)
    drawn = BytesIO()
    figure.savefig(drawn, format="png")
    return Image.open(drawn).convert("RGB")


def animated(path: Path, frames: int = FRAMES) -> list[Image.Image]:
    """The pictures of a recorded game, evenly spread over its rounds."""
    game, script = recorded(path)
    game.follow(script, game.rounds)
    high = 1.12 * float(game.regret.max())
    game.rewind(0)
    pictures = []
    for number in range(1, frames + 1):
        game.follow(script, game.rounds * number // frames)
        pictures.append(picture(game, high))
    return pictures


def together(pictures: list[Image.Image]) -> Image.Image:
    """Some pictures below each other, from which the colours of all are chosen."""
    width, height = pictures[0].size
    whole = Image.new("RGB", (width, height * len(pictures)))
    for place, one in enumerate(pictures):
        whole.paste(one, (0, place * height))
    return whole


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("out", type=Path, help="The .gif to write.")
    options.add_argument("--run", type=Path, default=Path("examples/attack.toml"), help="The saved run.")
    given = options.parse_args()
    pictures = animated(given.run)
    palette = together(pictures[:: max(1, len(pictures) // 6)] + pictures[-1:]).quantize(SHADES)
    first, *rest = (one.quantize(palette=palette, dither=Image.Dither.NONE) for one in pictures)
    times = [STEP] * len(rest) + [HOLD]
    write_file(
        given.out,
        lambda file: first.save(
            file, format="GIF", save_all=True, append_images=rest, duration=times, loop=0, optimize=True
        ),
    )
    print(f"{given.out}: {given.out.stat().st_size / 1e6:.2f} MB, {len(pictures)} pictures")


if __name__ == "__main__":
    main()
