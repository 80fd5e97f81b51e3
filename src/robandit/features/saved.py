"""Features as JSON and back, with a version and a checksum."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from typing import Any, NamedTuple

from robandit.features.columns import KINDS, Column
from robandit.features.layout import Layout
from robandit.features.moments import Moments

FORMAT = "robandit features"
VERSION = 1


class Saved(NamedTuple):
    """What a file holds."""

    layout: Layout
    moments: dict[str, Moments]
    id: str | None
    left_out: dict[str, str]
    spread: float | None


def to_text(
    layout: Layout,
    moments: Mapping[str, Moments],
    id_: str | None,
    left_out: Mapping[str, str],
    spread: float | None,
) -> str:
    """Features as JSON."""
    content: dict[str, Any] = {
        role: [_column(column) for column in getattr(layout, role)] for role in ("action", "context", "source")
    }
    content |= {
        "crosses": layout.crosses,
        "intercept": layout.intercept,
        "centre": "set" if layout.centred else None,
        "action_bound": layout.action_bound,
        "id": id_,
        "moments": moments,
        "left_out": left_out,
        "spread": spread,
    }
    whole = {"format": FORMAT, "version": VERSION, "sha256": _digest(content), "features": content}
    return json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _column(column: Column) -> dict[str, Any]:
    kind = next(name for name, known in KINDS.items() if isinstance(column, known))
    return {"kind": kind, **asdict(column)}


def _digest(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True, allow_nan=False).encode()).hexdigest()


def from_text(text: str | bytes) -> Saved:
    """What JSON holds, if it is whole."""
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("this is no whole JSON: features that were saved can't be cut; save them again") from None
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise ValueError(f"this is no JSON of features: it must say format {FORMAT!r}; Features.save writes it")
    if whole.get("version") != VERSION:
        raise ValueError(f"these features have version {whole.get('version')!r}, and this release reads {VERSION}")
    content = whole.get("features")
    if not isinstance(content, dict) or whole.get("sha256") != _digest(content):
        raise ValueError("these features were edited or cut, for the checksum is another: fit or save them again")
    return _read(content)


def _read(content: Mapping[str, Any]) -> Saved:
    action, context, source = (tuple(map(_read_column, content[role])) for role in ("action", "context", "source"))
    crosses = tuple((one, two) for one, two in content["crosses"])
    centred = content["centre"] == "set"
    layout = Layout(action, context, source, crosses, content["intercept"], centred, content["action_bound"])
    moments = {name: Moments(*known) for name, known in content["moments"].items()}
    return Saved(layout, moments, content["id"], content["left_out"], content["spread"])


def _read_column(about: Mapping[str, Any]) -> Any:
    settings = {key: tuple(value) if key == "levels" else value for key, value in about.items() if key != "kind"}
    return KINDS[about["kind"]](**settings)
