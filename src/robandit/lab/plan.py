"""The plan of a run: reads policies, environments and attacks from plain data and checks them before the start."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from robandit.errors import ConfigError, nearest
from robandit.inputs import integer, positive
from robandit.lab.attacks import Attack
from robandit.lab.catalogue import CATALOGUE, canonical, find, short
from robandit.lab.environments import Environment
from robandit.lab.gpu import launch
from robandit.lab.gpu.plan import CPU, DEVICES, PRECISION, check
from robandit.lab.protocol import Scenario, Trace, batch_key, checkpoints, simulate, simulate_each
from robandit.policies import POLICIES, Policy

_DEFAULTS: dict[str, list[str]] = {"environments": ["paper"], "attacks": ["none"], "policies": []}
_NUMBERS = {"rounds": 1000, "trials": 10, "seed": 1, "checkpoints": 100}
SET_BY_THE_RUN = {"dim", "trials", "seed"}
"""The settings of a policy that the run sets and not the user."""


@dataclass(frozen=True)
class Entry:
    """An environment, an attack or a policy of a run."""

    kind: str | type
    """The registered name, `module:Class`, `file.py:Class`, or the class."""
    settings: Mapping[str, Any]
    """The settings that are not left at their defaults."""
    label: str
    """The name in tables and pictures."""

    def plain(self) -> dict[str, Any]:
        """The entry as plain data, from which `Run.read` makes it again."""
        name = self.kind if isinstance(self.kind, str) else f"{self.kind.__module__}:{self.kind.__qualname__}"
        return {"name": name, "label": self.label, **self._as_read()}

    def table(self) -> dict[str, Any]:
        """The same with the class itself, which also a class from a notebook can be found by."""
        return {"name": self.kind, "label": self.label, **self._as_read()}

    def _as_read(self) -> dict[str, Any]:
        """The settings as `Run.read` reads them: a list is in brackets, since a bare one would be a sweep."""
        return {key: [value] if isinstance(value, list) else value for key, value in self.settings.items()}


class Task(NamedTuple):
    """A piece of a run: one policy in a batch of trials. It holds all that it needs, so that it can run anywhere."""

    policy: Entry
    scenarios: Sequence[tuple[Entry, Entry, Sequence[int]]]
    """The environment, the attack and the trial numbers of each scenario."""
    rounds: int
    seed: int
    checkpoints: int
    monitor: bool | float = False
    device: str = CPU

    @property
    def size(self) -> int:
        """The number of rounds over all trials."""
        return self.rounds * sum(len(trials) for _, _, trials in self.scenarios)

    def run(self) -> Trace:
        """Simulate the task."""
        return run_together([self])[0]


def run_together(tasks: Sequence[Task], progress: Callable[[int], object] | None = None) -> list[Trace]:
    """Simulate tasks that differ in their policy alone. ``progress`` gets the rounds played since the last call."""
    first = tasks[0]
    policies = [make_policy(task.policy) for task in tasks]
    what: Any = {
        "scenarios": [Scenario(*make_scenario(world, attack), trials) for world, attack, trials in first.scenarios],
        "rounds": first.rounds,
        "seed": first.seed,
        "at": checkpoints(first.rounds, first.checkpoints),
        "progress": progress,
    }
    if first.device != CPU:
        return launch.simulate_each(policies=policies, **what)
    return simulate_each(policies=policies, **what, monitor=first.monitor)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run: every policy in every environment under every attack, ``trials`` times."""

    environments: Sequence[Entry]
    attacks: Sequence[Entry]
    policies: Sequence[Entry]
    rounds: int
    trials: int
    seed: int
    checkpoints: int
    """The number of rounds at which results are recorded, about."""
    monitor: bool | float = False
    """Whether a corruption monitor watches. A number is the noise scale that it is told instead of the true one."""
    device: str = CPU
    """Where the arithmetic is done: ``cpu``, in double precision, or ``cuda``, a GPU, in single precision."""

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> Run:
        """Read and check a run from plain data. A list in place of a setting makes one entry for each value.

        >>> run = Run.read({"policies": ["oful"], "attacks": [{"name": "flip", "rounds": [0, 30]}]})
        >>> [attack.settings for attack in run.attacks]
        [{'rounds': 0}, {'rounds': 30}]
        >>> Run.read({"policies": ["oful"], "atacks": ["flip"]})
        Traceback (most recent call last):
        robandit.errors.ConfigError: unknown key 'atacks'; did you mean 'attacks'?
        """
        _check_keys("", config, {*CATALOGUE, *_NUMBERS, "monitor", "device", "precision"})
        numbers = {
            name: _blame("", integer, name, config.get(name, default), least=0 if name == "seed" else 1)
            for name, default in _NUMBERS.items()
        }
        if not config.get("policies"):
            raise ConfigError(f"policies must name at least one of: {', '.join(POLICIES)}")
        entries: dict[str, Any] = {k: read_entries(k, config.get(k, default)) for k, default in _DEFAULTS.items()}
        monitor, device = _read_monitor(config.get("monitor", False)), _read_device(config)
        run = cls(**entries, **numbers, monitor=monitor, device=device)
        run._try_out()
        return run

    @classmethod
    def read_file(cls, path: Path | str, **instead: Any) -> Run:
        """Read a run from a TOML file. ``instead`` replaces some of its keys."""
        try:
            config = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"can't read {path}: {error}") from None
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not valid TOML: {error}") from None
        return cls.read(config | instead)

    def plain(self) -> dict[str, Any]:
        """The configuration as plain data, from which `Run.read` makes the same run again."""
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        alarm = {"monitor": self.monitor} if self.monitor is not False else {}
        where = {"device": self.device, "precision": PRECISION} if self.device != CPU else {}
        return numbers | alarm | where | {kind: [entry.plain() for entry in getattr(self, kind)] for kind in CATALOGUE}

    def kinds(self, group: str) -> list[str | type]:
        """The kinds of the entries in a group: environments, attacks or policies."""
        return [entry.kind for entry in getattr(self, group)]

    def tasks(self, batch: int) -> list[Task]:
        """Cut the run into pieces of up to ``batch`` trials. The cut changes no bit of the result."""
        return [
            Task(policy, scenarios, self.rounds, self.seed, self.checkpoints, self.monitor, self.device)
            for policy in self.policies
            for group in self._groups()
            for scenarios in _batches(group, self.trials, batch)
        ]

    @property
    def size(self) -> int:
        """The number of rounds over all policies, scenarios and trials."""
        return self.rounds * self.trials * len(self.policies) * len(self.environments) * len(self.attacks)

    def _groups(self) -> Iterator[list[tuple[Entry, Entry]]]:
        """Groups of neighbouring scenarios that can share a batch."""
        group: list[tuple[Entry, Entry]] = []
        last: object = None
        for pair in product(self.environments, self.attacks):
            shape = batch_key(make_scenario(*pair)[0])
            if group and shape != last:
                yield group
                group = []
            group, last = [*group, pair], shape
        yield group

    def _try_out(self) -> None:
        """Play one round of every policy in every scenario, so that settings that can't work fail early."""
        for environment, attack in product(self.environments, self.attacks):
            world, adversary = _blame(f"environments: {environment.label}: ", make_scenario, environment, attack)
            if getattr(world, "infinite", False) and not adversary.infinite:
                raise ConfigError(
                    f"attacks: {attack.label} needs finite decision sets; {environment.label} has infinite"
                )
            for policy in self.policies:
                first = {"scenarios": [Scenario(world, adversary, [0])], "rounds": 1, "seed": self.seed}
                _blame(f"policies: {policy.label}: ", simulate, policy=make_policy(policy), **first)
                if self.device != CPU:
                    check(make_policy(policy), Scenario(world, adversary, [0]), self.rounds, self.monitor)


def _batches(
    group: Sequence[tuple[Entry, Entry]], trials: int, batch: int
) -> Iterator[list[tuple[Entry, Entry, Sequence[int]]]]:
    """Spread the trials of these scenarios, in order, over as few batches of about the same size as possible."""
    lanes = [(scenario, trial) for scenario in range(len(group)) for trial in range(trials)]
    number = -(-len(lanes) // batch)
    for i in range(number):
        part = lanes[len(lanes) * i // number : len(lanes) * (i + 1) // number]
        used = sorted({scenario for scenario, _ in part})
        yield [(*group[s], tuple(trial for scenario, trial in part if scenario == s)) for s in used]


def make_policy(entry: Entry) -> partial[Policy]:
    """The maker of a policy, to which the run adds ``dim``, ``seed`` and ``trials``."""
    return partial(find("policies", entry.kind), **entry.settings)


def make_scenario(environment: Entry, attack: Entry) -> tuple[Environment, Attack]:
    """The environment, as it is under this attack, and the attack."""
    adversary: Attack = find("attacks", attack.kind)(**attack.settings)
    world: Environment = find("environments", environment.kind)(**environment.settings)
    return world.facing(adversary), adversary


# Reading.


def read_entries(kind: str, given: Any) -> list[Entry]:
    """Read a list of names and tables as entries: sweeps are spelt out, settings checked, labels made distinct."""
    rows = [given] if isinstance(given, (str, Mapping, type)) else given
    if not isinstance(rows, Sequence) or not rows:
        raise ConfigError(f"{kind} must be a list of names or tables, at least one, got {given!r}")
    entries = [entry for number, row in enumerate(rows) for entry in _read_entry(kind, f"{kind}[{number}]", row)]
    return _labelled(kind, entries)


def _read_entry(kind: str, where: str, row: Any) -> Iterator[Entry]:
    """Read one name or table, which makes several entries if it has sweeps."""
    table = {"name": row} if isinstance(row, (str, type)) else row
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), (str, type)):
        raise ConfigError(f"{where} must be a name, or a table with a name, got {row!r}")
    name, label = table["name"], table.get("label", "")
    if not isinstance(label, str):
        raise ConfigError(f"{where}: label must be text, got {label!r}")
    found = _blame(f"{where}: ", find, kind, name)
    settings = {key: _plain(value) for key, value in table.items() if key not in ("name", "label")}
    allowed = {item.name for item in fields(found)} - (SET_BY_THE_RUN if kind == "policies" else set())
    _check_keys(f"{where} ({short(name)}): ", settings, allowed)
    optional = {item.name for item in fields(found) if "None" in str(item.type)}
    for key, value in settings.items():
        if isinstance(value, list) and not value:
            raise ConfigError(f"{where} ({short(name)}): {key} must have at least one value, got []")
        if key in optional and isinstance(value, str) and value.lower() == "none":  # TOML has no word for it
            settings[key] = None
    sweeps = [value if isinstance(value, list) else [value] for value in settings.values()]
    for values in product(*sweeps):
        entry = Entry(canonical(kind, name), dict(zip(settings, values, strict=True)), label)
        if kind != "policies":  # a policy can only be made with an environment
            _blame(f"{where} ({short(name)}): ", found, **entry.settings)
        yield entry


def _read_monitor(value: Any) -> bool | float:
    """Read whether to monitor, or the noise scale to monitor with."""
    return value if isinstance(value, bool) else float(_blame("", positive, "monitor, if not true or false,", value))


def _read_device(config: Mapping[str, Any]) -> str:
    """Read where to compute. The precision is that of the device, and only said."""
    device, precision = config.get("device", CPU), config.get("precision", PRECISION)
    if device not in DEVICES:
        raise ConfigError(f"unknown device {device!r}{nearest(str(device), DEVICES)}")
    if precision != PRECISION or (device == CPU and "precision" in config):
        raise ConfigError(f"precision is {PRECISION} on cuda and float64 on the CPU, got {precision!r} on {device}")
    return str(device)


def _plain(value: Any) -> Any:
    """A value with NumPy's numbers turned into Python's, as JSON needs."""
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value.item() if isinstance(value, np.generic) else value


def _labelled(kind: str, entries: list[Entry]) -> list[Entry]:
    """Give a label to entries without one: the name, and the settings where names alone are not distinct."""
    # Attacks that differ in their C are told apart by that.
    marks = [find(kind, e.kind)(**e.settings).label if kind == "attacks" else None for e in entries]
    pairs = [(entry.label or short(entry.kind), mark) for entry, mark in zip(entries, marks, strict=True)]
    labels = [pair[0] if pairs.count(pair) == 1 else _spelt(pair[0], entries, i) for i, pair in enumerate(pairs)]
    for pair in (final := list(zip(labels, marks, strict=True))):
        if final.count(pair) > 1:
            raise ConfigError(f"{kind} has {pair[0]!r} twice; give one of them another label")
    return [Entry(entry.kind, entry.settings, label) for entry, label in zip(entries, labels, strict=True)]


def _spelt(label: str, entries: Sequence[Entry], i: int) -> str:
    """A label with the settings in which entry ``i`` differs from others of its kind."""
    alike = [other.settings for other in entries if other.kind == entries[i].kind]
    own = {key: value for key, value in entries[i].settings.items() if any(_differ(o.get(key), value) for o in alike)}
    return f"{label} {', '.join(f'{key}={value}' for key, value in own.items())}".strip()


def _differ(one: Any, other: Any) -> bool:
    """Whether two settings differ. Two frames do, unless they are the same object."""
    try:
        return one is not other and bool(one != other)
    except ValueError:
        return True


def _check_keys(where: str, given: Mapping[str, Any], allowed: set[str]) -> None:
    """Refuse keys that are not allowed."""
    for key in given:
        if key not in allowed:
            raise ConfigError(f"{where}unknown key {key!r}{nearest(key, allowed)}")


def _blame(where: str, call: Callable[..., Any], *args: Any, **settings: Any) -> Any:
    """Make a call and report its errors as errors of the configuration at this place."""
    try:
        return call(*args, **settings)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where}{error}") from error
