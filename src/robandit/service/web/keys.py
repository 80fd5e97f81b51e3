"""API keys: their roles, and the bandits that they are for. Only hashes of keys are kept."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from robandit.service.refused import Refused

log = logging.getLogger("robandit.service")

ROLES = ("decide", "reward", "read", "admin")
"""The roles of keys: each allows one kind of request, and an admin's allows all."""


class Key(NamedTuple):
    """A key as the service knows it."""

    name: str
    role: str
    digest: bytes
    """SHA-256 of the secret."""
    bandits: frozenset[str] | None = None
    """Names of the bandits that it is for; None means all."""

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Key:
        """Read an entry of the keys file."""
        bandits = entry.get("bandits")
        if not (bandits is None or (isinstance(bandits, list) and all(isinstance(one, str) for one in bandits))):
            raise ValueError(f"bandits must be a list of names, got {bandits!r}")
        digest = bytes.fromhex(entry["sha256"])
        return cls(str(entry["name"]), entry["role"], digest, None if bandits is None else frozenset(bandits))

    def is_for(self, bandit: str | None) -> bool:
        """Whether it may be used for this bandit; None stands for calls that name no bandit."""
        return self.bandits is None or bandit is None or bandit in self.bandits


def new_key(name: str, role: str, bandits: Sequence[str] | None = None) -> tuple[str, dict[str, Any]]:
    """Make a secret, to be shown once, and the entry of the keys file that lets it in."""
    if role not in ROLES:
        raise ValueError(f"role must be one of {', '.join(ROLES)}, got {role!r}")
    secret = secrets.token_urlsafe(32)
    entry: dict[str, Any] = {"name": name, "role": role, "sha256": hashlib.sha256(secret.encode()).hexdigest()}
    return secret, entry if bandits is None else entry | {"bandits": list(bandits)}


def read_keys(path: Path) -> list[Key]:
    """Read a JSON file of keys: a list of entries as `new_key` makes them."""
    try:
        keys = [Key.of(entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not a list of keys (make one with `robandit key`): {error!r}") from None
    for key in keys:
        if key.role not in ROLES or len(key.digest) != 32:
            raise ValueError(f"{path}: key {key.name!r} must have one of the roles {', '.join(ROLES)} and a sha256")
    return keys


class Keys:
    """The keys of a service. Without a file of keys, everyone who can reach the service may do everything."""

    def __init__(self, keys: list[Key], *, rate: float = 20_000.0, path: Path | None = None) -> None:
        self._keys, self._rate, self._path = keys, rate, path
        self.required = bool(keys) or path is not None
        """Whether requests need a key."""
        self._read_at = path and _signature(path)
        self._trouble = ""
        self._spent: dict[str, tuple[float, float]] = {}

    @classmethod
    def read(cls, path: Path, *, rate: float = 20_000.0) -> Keys:
        """Read the keys of a service from a file, of which there must be one at least."""
        keys = read_keys(path)
        if not keys:
            raise ValueError(f"{path} has no keys; make one with `robandit key`")
        return cls(keys, rate=rate, path=path)

    def refresh(self) -> None:
        """Read the file again if it has changed. If it can't be read, the keys stay as they were, and the log says so.
        A file without keys lets nobody in."""
        if self._path is None:
            return
        try:
            now = _signature(self._path)
            if now != self._read_at:
                self._keys, self._read_at, self._trouble = read_keys(self._path), now, ""
                log.info("the keys have changed; there are %d", len(self._keys))
        except (OSError, ValueError) as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.error("the keys stay as they were: %s", error)

    def check(self, headers: Mapping[str, str], role: str, bandit: str | None) -> None:
        """Refuse a request whose key may not do this, or not so often."""
        if self.required:
            self.count(self.allowed(headers, role, bandit))

    def allowed(self, headers: Mapping[str, str], role: str, bandit: str | None) -> Key:
        """The key of a request, which may do this; any other is refused."""
        key = self.find(headers)
        if key is None:
            raise Refused(401, "this needs a key: send the header `Authorization: Bearer KEY`")
        if key.role not in (role, "admin"):
            raise Refused(403, f"this needs a key for {role!r}, and yours is for {key.role!r}")
        if not key.is_for(bandit):
            raise Refused(403, f"your key is not for bandit {bandit!r}")
        return key

    def count(self, key: Key) -> None:
        """Count a request with this key, and refuse one too many."""
        if not self.within_rate(key.name):
            raise Refused(429, "too many requests with this key; slow down")

    def seen(self, headers: Mapping[str, str], bandits: Iterable[str]) -> list[str]:
        """Those of these bandits that the key of a request is for."""
        key = self.find(headers) if self.required else None
        return [name for name in bandits if key is None or key.is_for(name)]

    def sees_all(self, headers: Mapping[str, str]) -> bool:
        """Whether the key of a request is for all bandits."""
        key = self.find(headers) if self.required else None
        return key is None or key.bandits is None

    def check_whole(self, headers: Mapping[str, str]) -> None:
        """Refuse a request for what holds all bandits, if its key is for some."""
        if not self.sees_all(headers):
            raise Refused(403, "this holds all bandits, and your key is for some")

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


def _signature(path: Path) -> tuple[int, int, int]:
    """What changes when a file does."""
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino
