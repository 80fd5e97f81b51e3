"""The report: the results in a folder, on one HTML page that needs no other file."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np

from robandit.errors import ConfigError
from robandit.experiments.paper import figure1
from robandit.experiments.tune import SEED, sensitivity, shipped
from robandit.figures.html import CommandBlock, Facts, Grid, Picture, Section, Text, Verdicts, page
from robandit.figures.pictures import level_use, regret_against_corruption, regret_curves
from robandit.lab.results import Result, read

LEAD = (
    "Zhao, Zhou and Gu's Linear Contextual Bandits with Adversarial Corruptions, rerun: the algorithms exactly as "
    "printed, one tuning protocol for all, an interval on every number, and a verdict on every claim."
)


def build(folder: Path) -> str:
    """The page, from figure1.parquet and, if they are there, verify.json and variance.md."""
    path = folder / "figure1.parquet"
    if not path.exists():
        raise ConfigError(f"there is no {path}; make it with: robandit paper figure1 --out {folder}")
    result = read(path)
    sections = [_panels(result), _claims(result), _tuning(), _growth(result)]
    sections += [_theory(folder / "verify.json"), _variance(folder / "variance.md"), _settings(result)]
    return page("The paper, rerun", LEAD, sections)


def _scales(result: Result) -> dict[str, float]:
    return {entry["label"]: entry.get("radius_scale", 1.0) for entry in result.config["policies"]}


def _command(result: Result) -> CommandBlock:
    """The command that makes this result. It does not know of a file of radius scales."""
    config, world = result.config, result.config["environments"][0]
    flips = ",".join(str(attack["rounds"]) for attack in config["attacks"])
    theory = " --radius theory" if set(_scales(result).values()) == {1.0} else ""
    size = f"--dim {world['dim']} --actions {world['actions']} --flips {flips}"
    numbers = f"--trials {config['trials']} --rounds {config['rounds']} --seed {config['seed']}"
    return CommandBlock(f"robandit paper figure1 {numbers} {size}{theory}")


def _panels(result: Result) -> Section:
    header, rows = figure1.regret_rows(result.table, _scales(result))
    words = (
        "In the first k rounds the mean of every reward is flipped, on fresh decision sets. Then nobody lies, and the "
        "set stays the same. The paper labels this C = 2k. By its own definition the corruption is far less: see the "
        "first row of the table."
    )
    pictures = [
        Picture(regret_curves(result.table), "Regret over the rounds, for the six amounts of corruption of Figure 1."),
        Picture(regret_against_corruption(result.table), "Regret at the end against the corruption as labelled."),
    ]
    levels = level_use(result.table)
    if levels is not None:
        pictures.append(
            Picture(levels, "How often Multi-level weighted OFUL drew each level, and how often its set was empty.")
        )
    table = Grid(header, [list(row) for row in rows], "Regret at the end: mean and half of its 95 % interval.")
    return Section("Figure 1", [Text(words), pictures[0], table, *pictures[1:], _command(result)])


def _claims(result: Result) -> Section:
    findings = figure1.judge(result.table)
    words = (
        f"Each observation of the paper's Results and Discussion, checked over {result.config['trials']} trials. A "
        "trial has the same decision sets and noise for every policy, so differences are paired. We read large margin "
        "and remarkably as less than 0.8 times the regret, much worse as more than twice, and minor additional regret "
        "as less than 1.2 times."
    )
    rows = [(found.claim.text(), found.verdict, found.evidence()) for found in findings]
    return Section("The paper's claims", [Text(words), Verdicts(rows)])


def _tuning() -> Section:
    tuned = shipped()
    made = tuned.made_from
    words = (
        f"All radii of a policy are multiplied by one number: the one of least {tuned.objective} regret over the six "
        f"panels, on {made['trials']} trials of seed {SEED}, which no evaluation uses. The curves are steep, so "
        "whoever picks these numbers by hand picks the winner."
    )
    return Section(
        "Tuning",
        [
            Text(words),
            Picture(sensitivity(tuned), "Regret against the radius scale."),
            CommandBlock("robandit paper tune"),
        ],
    )


def _growth(result: Result) -> Section:
    words = (
        "The theorems bound the regret by C·√T for Robust weighted OFUL and C²·√T for Multi-level, up to logarithms. "
        "The exponents below are measured: in T from a tenth of the rounds to all of them, and in C from the smallest "
        "to the largest realised corruption above 0."
    )
    rows: list[list[object]] = [
        [s.policy, s.of, f"{s.exponent:.2f} ± {s.half:.2f}", s.theorem] for s in figure1.growth(result.table)
    ]
    grid = Grid(["policy", "growth in", "exponent", "theorem"], rows, "How the regret grows.")
    return Section(
        "Growth", [Text(words), Picture(figure1.growth_picture(result.table), "Growth of the regret."), grid]
    )


def _theory(path: Path) -> Section:
    if not path.exists():
        return Section(
            "The theorems as numbers",
            [Text("There is no verify.json here. This command makes it:"), CommandBlock("robandit paper verify")],
        )
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    rows = [(row["claim"], row["verdict"], row["evidence"]) for row in found["rows"]]
    words = (
        "The lemmas and bounds at radius scale 1, as printed, checked in trials under every weak attack in two "
        "environments. A bound is vacuous if it exceeds all that can be lost. A ratio is a distance over its radius, "
        "or the left side of an inequality over the right. No estimate was farther from μ* than "
        f"{found['largest ratio']:.3f} of its radius, which shows how wide the theory's radii are. {found['monitor']}"
    )
    return Section("The theorems as numbers", [Text(words), Verdicts(rows), CommandBlock(found["command"])])


def _variance(path: Path) -> Section:
    command = CommandBlock("robandit paper variance")
    if not path.exists():
        return Section(
            "What knowing the variance gains", [Text("There is no variance.md here. This command makes it:"), command]
        )
    lines = [line.strip("| \n").split(" | ") for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    words = (
        "In the paper's experiments σ_t is always below the floor of the weights, so that weighting by variance has no "
        "effect. Here σ_t lies on both sides of the floor, in the same world twice: policies are told σ_t, or only R."
    )
    rows: list[list[object]] = [list(line) for line in lines[2:]]
    return Section(
        "What knowing the variance gains", [Text(words), Grid(lines[0], rows, "Regret at the end."), command]
    )


def _settings(result: Result) -> Section:
    config = {key: value for key, value in result.config.items() if not isinstance(value, list)}
    versions = {"robandit": result.version, "NumPy": np.__version__, "Python": platform.python_version()}
    entries = {f"policy {entry['label']}": json.dumps(entry, ensure_ascii=False) for entry in result.config["policies"]}
    world = {
        f"{key[:-1]} {i + 1}": json.dumps(entry)
        for key in ("environments", "attacks")
        for i, entry in enumerate(result.config[key])
    }
    facts = {key: str(value) for key, value in (config | versions | world | entries).items()}
    return Section("Settings", [Facts(facts)])
