"""The state of a policy as plain data, and plain data with arrays as one file."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from robandit.files import write_file
from robandit.policies.parts import GrowingStatistics

if TYPE_CHECKING:
    from robandit.policies.base import Policy

P = TypeVar("P", bound="Policy[Any]")

_FORMAT = 1
_VERSION = 1
_ARRAY = "array of"  # marks an array in JSON, with its type


def pack(policy: Policy[Any], round_: int, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """The state of a policy: JSON values and, under ``arrays``, copies of its arrays."""
    state = {
        "format": _FORMAT,
        "policy": type(policy).__name__,
        "numerics": policy.numerics,
        "config": {item.name: getattr(policy, item.name) for item in fields(policy)},
        "round": round_,
        "arrays": {name: array.copy() for name, array in arrays.items()},
    }
    return state | {"sources": policy.slots.labels} if policy.slots.most else state


def unpack(policy: type[P], state: Mapping[str, Any]) -> P:
    """Make the policy of a state, which has not learnt anything yet."""
    if (state.get("format"), state.get("policy")) != (_FORMAT, policy.__name__):
        raise ValueError(
            f"this is not a state of {policy.__name__} in format {_FORMAT}, "
            f"but of {state.get('policy')} in format {state.get('format')}"
        )
    made = policy(**state["config"])
    if made.slots.most:
        made.slots.restore(state["sources"])
    if isinstance(made.stats, GrowingStatistics):
        made.stats.make_room(state["arrays"])
    return made


# Files: a line of JSON that names the kind and the checksum of the rest, and a line of JSON that is the rest.


def write_saved(path: str | Path, kind: str, content: Mapping[str, Any]) -> None:
    """Write plain data with arrays into a file, all of it or nothing."""
    body = json.dumps(content, default=_as_json, allow_nan=False).encode() + b"\n"  # ASCII: labels may be any text
    write_file(Path(path), _first_line(kind, body) + body)


def read_saved(path: str | Path, kind: str) -> dict[str, Any]:
    """Read what `write_saved` wrote. A file that was cut or edited is refused, whatever byte it was."""
    whole = Path(path).read_bytes()
    first, _, body = whole.partition(b"\n")
    try:
        header = json.loads(first)
        found = header["format"], header["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{path} is no saved {kind}, or its beginning is lost: save it again") from None
    if found != (f"robandit {kind}", _VERSION):
        raise ValueError(
            f"{path} holds {found[0]!r} in version {found[1]!r}; here 'robandit {kind}' in version {_VERSION} is read"
        )
    if _first_line(kind, body) != first + b"\n":
        raise ValueError(f"{path} was cut or edited, for its checksum is another: save it again, or take a copy")
    return json.loads(body, object_hook=_from_json)


def _first_line(kind: str, body: bytes) -> bytes:
    header = {"format": f"robandit {kind}", "version": _VERSION, "sha256": sha256(body).hexdigest()}
    return json.dumps(header).encode() + b"\n"


def _as_json(value: Any) -> Any:
    """An array or a number of NumPy as JSON: the bytes as they are, so that nothing is rounded."""
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub":
        raise TypeError(f"only plain data and arrays of numbers can be saved, got {value!r:.60}")
    plain = np.ascontiguousarray(value, value.dtype.newbyteorder("<"))
    return {_ARRAY: plain.dtype.str, "shape": value.shape, "base64": b64encode(plain.tobytes()).decode()}


def _from_json(found: dict[str, Any]) -> Any:
    if _ARRAY not in found:
        return found
    dtype = np.dtype(found[_ARRAY])
    array = np.frombuffer(b64decode(found["base64"]), dtype).reshape(found["shape"])
    return array.astype(dtype.newbyteorder("="))  # a copy, which can be written to
