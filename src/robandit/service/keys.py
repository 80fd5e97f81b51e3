"""API keys and their roles. Only hashes of keys are kept."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import NamedTuple

ROLES = ("decide", "reward", "admin")
"""The roles of keys: each allows one kind of request, and an admin's allows all."""


class Key(NamedTuple):
    """A key as the service knows it."""

    name: str
    role: str
    digest: bytes
    """SHA-256 of the secret."""


def new_key(name: str, role: str) -> tuple[str, dict[str, str]]:
    """Make a secret, to be shown once, and the entry of the keys file that lets it in."""
    if role not in ROLES:
        raise ValueError(f"role must be one of {', '.join(ROLES)}, got {role!r}")
    secret = secrets.token_urlsafe(32)
    return secret, {"name": name, "role": role, "sha256": hashlib.sha256(secret.encode()).hexdigest()}


class Keys:
    """The keys of a service. Without any, everyone who can reach the service may do everything."""

    def __init__(self, keys: list[Key], *, rate: float = 20_000.0) -> None:
        self._keys, self._rate = keys, rate
        self._spent: dict[str, tuple[float, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    @classmethod
    def read(cls, path: Path, *, rate: float = 20_000.0) -> Keys:
        """Read keys from a JSON file: a list of entries as `new_key` makes them."""
        try:
            entries = json.loads(path.read_text(encoding="utf-8"))
            keys = [Key(entry["name"], entry["role"], bytes.fromhex(entry["sha256"])) for entry in entries]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a list of keys (make one with `robandit key`): {error!r}") from None
        if not keys:
            raise ValueError(f"{path} has no keys; make one with `robandit key`")
        for key in keys:
            if key.role not in ROLES or len(key.digest) != 32:
                raise ValueError(f"{path}: key {key.name!r} must have one of the roles {', '.join(ROLES)} and a sha256")
        return cls(keys, rate=rate)

    def find(self, headers: Mapping[str, str]) -> Key | None:
        """The key that a request brings. It is compared with all keys in constant time."""
        word, _, secret = headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(secret.strip().encode("utf-8", "surrogateescape")).digest()
        found = [key for key in self._keys if hmac.compare_digest(key.digest, digest)]
        return found[0] if found and word.lower() == "bearer" else None

    def within_rate(self, name: str) -> bool:
        """Whether this key may send one more request now, by a leaky bucket that holds one second's worth."""
        now = monotonic()
        level, last = self._spent.get(name, (0.0, now))
        level = max(0.0, level - (now - last) * self._rate) + 1.0
        self._spent[name] = level, now
        return level <= self._rate
