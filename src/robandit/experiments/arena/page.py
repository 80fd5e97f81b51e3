"""The findings of the arena in words, tables and pictures, as HTML and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

from robandit.experiments.arena.pictures import heat_map, marked, price
from robandit.experiments.arena.race import (
    OFUL,
    Cells,
    Entrants,
    Score,
    Standing,
    at_the_edge,
    best,
    cells,
    of_world,
    relative,
    scores,
    standings,
)
from robandit.experiments.arena.times import Times
from robandit.experiments.arena.worlds import CLEAN
from robandit.experiments.intervals import geometric_ratio, plus_minus, ratio_words
from robandit.experiments.tune import SEED, Tuned
from robandit.figures import tables
from robandit.figures.html import Block, CommandBlock, Facts, Grid, Picture, Section, Text, page
from robandit.figures.numbers import span, two_digits
from robandit.lab.summary import Case

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from robandit.lab.results import Result

TITLE = "The arena"
LEAD = (
    "Every policy under every attack, all tuned by one protocol on other seeds: which one to use, and what an attack "
    "will cost."
)


@dataclass(frozen=True)
class Drawn(Picture):
    """A picture that is also saved as a file."""

    name: str = ""
    """The name of the file."""


class Story(NamedTuple):
    """All that the page reports."""

    found: Cells
    entrants: Entrants
    tuned: Mapping[str, Tuned]
    """The tuning of each world."""
    times: Times
    config: Mapping[str, Any]
    """The settings of the evaluations of all worlds."""
    command: str
    """The command that makes the page."""


class Pages(NamedTuple):
    """The same content in several forms."""

    figures: Mapping[str, Figure]
    """The figures by the name of their file."""
    markdown: str
    html: str
    answer: str
    """The text for the terminal: the verdict, the leaderboard and the warnings."""


def all_cells(results: Sequence[Result]) -> Cells:
    """The results in the scenarios of all worlds."""
    found: Cells = {}
    for result in results:
        found |= cells(result.last_round())
    return found


def tell(
    results: Sequence[Result], entrants: Entrants, tuned: Mapping[str, Tuned], times: Times, command: str
) -> Pages:
    """The pages, from the evaluation of each world."""
    found = all_cells(results)
    config = {**results[0].config, "environments": [world for one in results for world in one.config["environments"]]}
    parts = sections(Story(found, entrants, tuned, times, config, command))
    figures = {block.name: block.figure for part in parts for block in part.body if isinstance(block, Drawn)}
    text, grid = parts[0].body[:2]
    answer = "\n\n".join([_block(text), _block(grid), *edge_words(tuned)])
    return Pages(figures, markdown(parts), page(TITLE, LEAD, parts), answer)


def sections(story: Story) -> list[Section]:
    """The sections of the page."""
    return [
        _answer(story),
        *(_world(story, number, world) for number, world in enumerate(story.entrants.environments, 1)),
        _policies(story),
        _tuning(story),
        _settings(story),
    ]


def markdown(parts: Sequence[Section]) -> str:
    """The sections as Markdown, which links to the files of the pictures."""
    text = [f"# {TITLE}", wrapped(LEAD)]
    for part in parts:
        text += [f"## {part.title}", *map(_block, part.body)]
    return "\n\n".join(text) + "\n"


def _block(block: Block) -> str:
    match block:
        case Text():
            return wrapped(block.text)
        case CommandBlock():
            return f"```\n{block.text}\n```"
        case Drawn():
            return wrapped(f"![{block.caption}]({block.name})")
        case Grid():
            rows = [[str(cell) for cell in row] for row in block.rows]
            return "\n".join([wrapped(block.caption), "", *tables.markdown(block.header, rows)])
        case Facts():
            return "\n".join(wrapped(f"- {name}: {value}", "  ") for name, value in block.facts.items())
    raise TypeError(f"no Markdown for {block!r}")


def wrapped(text: str, indent: str = "") -> str:
    """A paragraph in lines of at most 100 characters; those after the first are indented."""
    return fill(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


# Words for scenarios.


def name_of(case: Case) -> str:
    """The attack of a scenario and its C."""
    return "no attack" if case.attack == CLEAN else f"{case.attack}, C = {case.corruption:g}"


# Which policy?


def _answer(story: Story) -> Section:
    rows, told = scores(story.found), story.entrants.told
    caption = "All worlds: regret relative to the clean oracle's."
    grid = leaderboard(rows, told, _mean_times(story), caption, worlds=True)
    caption = "The price of robustness on clean data, against the regret under attack: geometric means over all worlds."
    picture = Drawn(price(rows, told), caption, name="arena-price.png")
    return Section("Which policy?", [Text(verdict(story.found, rows, told)), grid, Text(MEASURE), picture])


MEASURE = (
    "All regrets are relative to that of the clean oracle: the same tuned OFUL, in the same world and trials, shown "
    "only uncorrupted rewards. So 1 is what tuned OFUL loses without any attack. Policies are ranked by the geometric "
    "mean over all attacks, levels and worlds, which counts twice the regret the same everywhere. The mean and the "
    "worst scenario stand beside it. A policy with a dagger is told the attack's C or who lies, which is unknown "
    "outside a simulation, so it has no rank. Intervals are of 95 %, paired over trials. The microseconds per round, "
    "for choosing and learning, were measured on one machine; `arena-times.json` says how."
)


def verdict(found: Cells, rows: Sequence[Score], told: Collection[str]) -> str:
    """The answer in three sentences, about the policies that are not told C."""
    fair = [row for row in rows if row.policy not in told]
    first, safest = fair[0], min(fair, key=lambda row: row.worst.value)
    cheapest = min(fair, key=lambda row: row.price.value)
    close = [row.policy for row in fair[1:] if not _told_apart(found, first.policy, row.policy)]
    costs = "" if cheapest is first else f", where {first.policy} has {ratio_words(first.price)}"
    beside = f", which can't be told apart from {' or '.join(close)} by these trials" if close else ""
    return (
        f"Least regret under attack: {first.policy}, {ratio_words(first.attacked)} times the clean oracle's{beside}. "
        f"Least in the worst case: {safest.policy}, {ratio_words(safest.worst)} times ({_place(safest.where)}). "
        f"Least on clean data: {cheapest.policy}, {ratio_words(cheapest.price)} times{costs}."
    )


def _told_apart(found: Cells, one: str, other: str) -> bool:
    """Whether the interval of the ratio of their scores excludes 1."""
    hostile = [policies for case, policies in found.items() if case.attack != CLEAN]
    ratio = geometric_ratio([(policies[other].regret, policies[one].regret) for policies in hostile])
    return ratio.low > 1.0


def _place(case: Case) -> str:
    return f"{name_of(case)}, {case.environment}"


def leaderboard(
    rows: Sequence[Score], told: Collection[str], times: Mapping[str, float], caption: str, *, worlds: bool = False
) -> Grid:
    """The scores as a table, the best policy first. Policies told C have no rank."""
    header = ["policy", "rank", "under attack", "mean", "worst", "which is", "on clean data", "µs per round"]
    ranks = {row.policy: rank for rank, row in enumerate((row for row in rows if row.policy not in told), 1)}
    lines: list[list[object]] = [
        [
            marked(row.policy, told),
            ranks.get(row.policy, "–"),
            ratio_words(row.attacked),
            plus_minus(row.mean),
            plus_minus(row.worst),
            f"{row.where.attack}\xa0{row.where.corruption:g}" + (f", {row.where.environment}" if worlds else ""),
            ratio_words(row.price),
            f"{times[row.policy]:.1f}" if row.policy in times else "–",
        ]
        for row in rows
    ]
    return Grid(header, lines, caption)


def _mean_times(story: Story) -> dict[str, float]:
    worlds = list(story.times.values())
    return {policy: sum(world[policy] for world in worlds) / len(worlds) for policy in worlds[0]}


# What will an attack cost?


def _world(story: Story, number: int, world: str) -> Section:
    found, told = of_world(story.found, world), story.entrants.told
    rows = scores(found)
    clean = next(policies for case, policies in found.items() if case.attack == CLEAN)[OFUL].regret.mean()
    words = f"Here the clean oracle's regret is {clean:.1f} after {story.config['rounds']} rounds. {ATTACK_KINDS}"
    caption = "Regret relative to the clean oracle's, policies in the order of their rank here; dark is bad."
    picture = Drawn(heat_map(found, [row.policy for row in rows], told), caption, name=f"arena-{number}.png")
    scores_here = leaderboard(rows, told, story.times[world], f"{world.capitalize()}: relative regret.")
    return Section(f"World: {world}", [Text(words), picture, scores_here, attack_costs(found, told)])


ATTACK_KINDS = (
    "A weak attack commits to its lies before the action is drawn, and its budget is in C_sup. A strong one sees the "
    "action and pays in C_play. What an attack spends depends on the policy if it sees the actions. It spends less "
    "than its budget if it has already won or can't lie more."
)


def attack_costs(found: Cells, told: Collection[str]) -> Grid:
    """A table of what each attack spent at each level, and its cost to OFUL and to the best policy not told C."""
    header = ["attack", "C", "kind", "spent", "OFUL", "best not told C", "its regret"]
    rows: list[list[object]] = []
    for case, policies in found.items():
        if case.attack != CLEAN:
            first = best(policies, told)
            spent = span(cell.spent for cell in policies.values())
            costs = [ratio_words(relative(found, case, policy)) for policy in (OFUL, first)]
            rows.append([case.attack, f"{case.corruption:g}", case.strength, spent, costs[0], first, costs[1]])
    return Grid(header, rows, "What each attack spent (least to most over the policies), and what it cost.")


# A line for each policy.


def _policies(story: Story) -> Section:
    words = (
        "A policy is among the best in a scenario if its mean regret is the least among the policies not told C, or "
        "if it is behind by at most half of the 95 % interval of the difference, paired over trials."
    )
    told = story.entrants.told
    lines = [
        Text(f"{marked(row.policy, told)}: {policy_words(story.found, row.policy, told)}")
        for row in scores(story.found)
    ]
    return Section("Where each policy wins and loses", [Text(words), *lines])


def policy_words(found: Cells, policy: str, told: Collection[str]) -> str:
    """Where a policy is among the best, and where it is farthest behind."""
    rows = standings(found, policy, told)
    hostile = [row for row in rows if row.case.attack != CLEAN]
    won, first = sum(row.among_best for row in hostile), sum(row.best == policy for row in hostile)
    worlds = dict.fromkeys(row.case.environment for row in rows)
    parts = [_wins([row for row in hostile if row.case.environment == world], world) for world in worlds]
    where = f" ({'; '.join(filter(None, parts))})" if won else ""
    clean = [row.case.environment for row in rows if row.case.attack == CLEAN and row.among_best]
    wins = f"among the best in {won} of {len(hostile)} attacked scenarios{where}"
    wins += f", the best in {first}" if first else ""
    wins += f"; on clean data, too ({', '.join(clean)})" if clean else "; not on clean data"
    last = max(rows, key=lambda row: row.factor)
    if last.factor <= 1.0:
        return f"{wins}. Nowhere behind."
    return (
        f"{wins}. Farthest behind: {_place(last.case)}, with {two_digits(last.factor)} times the regret of {last.best}."
    )


def _wins(rows: Sequence[Standing], world: str) -> str:
    """The attacks of a world under which a policy is among the best, or their number if there are more than six."""
    levels: dict[str, list[str]] = {}
    for row in rows:
        if row.among_best:
            levels.setdefault(row.case.attack, []).append(f"{row.case.corruption:g}")
    count = sum(map(len, levels.values()))
    if not count:
        return ""
    if count > 6:
        return f"{world}: {count} of {len(rows)}"
    named = [f"{attack} {' and '.join(these)}" for attack, these in levels.items()]
    return f"{world}: {', '.join(named)}"


# How it was made.


def _tuning(story: Story) -> Section:
    trials = next(iter(story.tuned.values())).made_from["trials"]
    words = (
        f"Each policy's radius scale is the one of least mean regret over the panels of the tuning, on {trials} "
        f"trials of seed {SEED}, which no evaluation uses, in each world separately. Policies not listed have no scale."
    )
    worlds = list(story.tuned)
    rows: list[list[object]] = [
        [marked(policy, story.entrants.told), *(f"{story.tuned[world].scales[policy]:.4g}" for world in worlds)]
        for policy in story.entrants.tuned
    ]
    grid = Grid(["policy", *worlds], rows, "The radius scales; 1 is the theory.")
    return Section("Tuning", [Text(words), grid, *(Text(line) for line in edge_words(story.tuned))])


def edge_words(tuned: Mapping[str, Tuned]) -> list[str]:
    """A warning for each world with scales at the edge of the grid."""
    edges = {world: at_the_edge(one.scales) for world, one in tuned.items()}
    return [
        f"These scales are at the edge of the grid, and the best may lie beyond: {', '.join(policies)} ({world})."
        for world, policies in edges.items()
        if policies
    ]


def _settings(story: Story) -> Section:
    config = story.config
    facts: dict[str, object] = {name: config[name] for name in ("rounds", "trials", "seed")}
    for kind in ("environments", "attacks"):
        for entry in config[kind]:
            level = f" {entry['budget']:g}" if entry.get("budget") is not None else ""
            facts[f"{kind[:-1]} {entry['label']}{level}"] = _plain(entry)
    for label, settings in story.entrants.policies.items():
        facts[f"policy {label}"] = _plain(settings)
    if story.entrants.missing:
        facts["not in this version"] = ", ".join(story.entrants.missing)
    return Section("Settings", [Facts(facts), CommandBlock(story.command)])


def _plain(entry: Mapping[str, Any]) -> str:
    return json.dumps({key: value for key, value in entry.items() if key != "label"}, ensure_ascii=False)
