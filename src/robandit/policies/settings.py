"""The settings that policies share: what each means, how it is checked when a policy is made, and how it is shown."""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

from robandit.geometry.kernel import KERNELS, load_kernel
from robandit.inputs import boolean, integer, not_negative, positive, probability, share


class Rule(NamedTuple):
    """A setting that means the same in every policy."""

    meaning: str
    read: Callable[[str, Any], Any]
    """Returns the checked value, or raises an error that names the setting."""
    optional: bool = False
    """Whether it may be None."""


_at_least_one = partial(integer, least=1)


def _kernel(name: str, value: Any) -> str:
    if value not in KERNELS:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, KERNELS))}, got {value!r}")
    load_kernel(value)
    return str(value)


SETTINGS: dict[str, Rule] = {
    "dim": Rule("d, the number of features of an action.", _at_least_one),
    "noise_range": Rule("R: a clean reward differs from its mean by at most this.", positive),
    "action_bound": Rule("A: the largest norm of an action.", positive),
    "parameter_bound": Rule("B: the largest norm of the unknown parameter μ*.", positive),
    "regularization": Rule("λ of the ridge regression; 1/B² by default, as in the paper.", positive, optional=True),
    "mean_bound": Rule(
        "The largest |⟨a, μ*⟩|; the paper assumes 1. If the true means exceed it, clipping biases the estimate.",
        positive,
    ),
    "clip_rewards": Rule(
        "Whether to clip rewards to ±(mean_bound + noise_range). Given true bounds, clean rewards lie within, and only "
        "lies are cut.",
        boolean,
    ),
    "exploration": Rule(
        "The probability of playing a uniformly drawn action instead, so that every action has a propensity > 0.", share
    ),
    "delta": Rule("δ, the probability with which the guarantees may fail.", probability),
    "radius_scale": Rule(
        "A factor for every confidence radius. 1 is the theory; docs/how-to/policies.md says how wide that is.",
        positive,
    ),
    "radius": Rule(
        "A fixed radius instead of the theory's, as people set LinUCB's width; radius_scale does not apply to it.",
        not_negative,
        optional=True,
    ),
    "sigma_floor": Rule(
        "The least standard deviation σ̄ by which an observation is weighted; by default the policy's own paper has it.",
        not_negative,
        optional=True,
    ),
    "threshold": Rule(
        "α: an observation whose action has a larger ‖a‖_{Σ⁻¹} counts less; by default it follows from the corruption.",
        positive,
        optional=True,
    ),
    "kernel": Rule(
        "What computes: numpy, or numba, which is faster and needs robandit[fast]. Results differ in the last places.",
        _kernel,
    ),
    "horizon": Rule("T, the number of rounds that the guarantee is for.", _at_least_one),
}
"""By name. `corruption`, `trials` and `seed` depend on each other; `Policy` checks them."""


def read_settings(policy: Any) -> None:
    """Check the shared settings of a policy, and write them back as they were read."""
    for item in fields(policy):
        rule, value = SETTINGS.get(item.name), getattr(policy, item.name)
        if rule is not None and not (rule.optional and value is None):
            setattr(policy, item.name, rule.read(item.name, value))


MEANINGS: dict[str, str] = {name: rule.meaning for name, rule in SETTINGS.items()} | {
    "corruption": "C = Σ_t sup_a |r_t(a) − r′_t(a)| / (R + 1), or an upper bound on it: one number, or in a batch one "
    "for each trial. Policies that can do without it take None.",
    "trials": "The batch to run: the number of trials, or which ones. By default a single trial, without a batch axis.",
    "seed": "The seed of the policy's own draws; (s, 5) makes a single policy equal to trial 5 of a batch with seed s.",
}
"""What every shared setting means, by name."""


# What is shown of the settings of any class that is made from keywords.


class Parameter(NamedTuple):
    """A setting of an environment, an attack or a policy."""

    name: str
    default: Any
    """The default value, or `dataclasses.MISSING` if the setting must be given."""
    meaning: str


def describe(found: type) -> list[Parameter]:
    """The settings of a class. Their meaning is the text below each in the source, or the class's ``meanings``."""
    meanings: dict[str, str] = dict(getattr(found, "meanings", {}))
    for base in reversed([base for base in found.__mro__ if "__dataclass_fields__" in vars(base)]):
        meanings |= _texts(base)
    return [Parameter(item.name, item.default, meanings.get(item.name, "")) for item in fields(found)]


def _texts(found: type) -> dict[str, str]:
    """The text below each setting of a class; none if its source can't be found."""
    try:
        path = inspect.getsourcefile(found) or ""
        linecache.checkcache(path)
        return _texts_by_class("".join(linecache.getlines(path))).get(found.__qualname__, {})
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}


@cache
def _texts_by_class(source: str) -> dict[str, dict[str, str]]:
    """The texts of every class in a file, by its qualified name. A file is parsed once, whatever it holds."""
    found: dict[str, dict[str, str]] = {}

    def walk(node: ast.AST, within: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                found[within + child.name] = dict(_pairs(child.body))
                walk(child, f"{within}{child.name}.")
            elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                walk(child, f"{within}{child.name}.<locals>.")
            elif isinstance(child, ast.stmt):
                walk(child, within)

    walk(ast.parse(source), "")
    return found


def _pairs(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """The settings in the body of a class that have a text below, and that text."""
    for line, below in pairwise(body):
        if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            yield ast.unparse(line.target), " ".join(str(below.value.value).split())


def add_settings(kind: type) -> None:
    """Add the settings of a class to its ``__doc__``, which `help` shows.

    The source is read only where a setting has no meaning that all share: that takes a while.
    """
    meanings: Mapping[str, str] = getattr(kind, "meanings", {})
    shared = all(item.name in meanings for item in fields(kind))
    known = [Parameter(item.name, item.default, meanings[item.name]) for item in fields(kind)] if shared else None
    shown = [inspect.cleandoc(kind.__doc__ or ""), "", "Settings:"]
    for setting in known or describe(kind):
        default = "" if setting.default in (MISSING, None) else f" By default {setting.default!r}."
        first, *rest = textwrap.wrap(f"{setting.name}: {setting.meaning}{default}", 100, break_on_hyphens=False)
        shown += [f"    {first}", *(f"        {line}" for line in rest)]
    kind.__doc__ = "\n".join(shown)
