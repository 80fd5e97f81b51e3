"""Webhooks: what they are, and one request to one of them. The addresses come from a file of the operator's, and no
request to the service has a say in where anything is sent."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import socket
import ssl
from base64 import b64decode, b64encode
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

DEADLINE = 10.0
"""Seconds that a request may take in all, from the name's address to the status of the answer."""
MOST_HOOKS = 10
"""Largest number of webhooks."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5]\d\d)(?: .*)?\r?\n")
_LONGEST = 65_536  # bytes of a line of an answer
_LINES = 1000  # lines before the status of an answer is known
_FIELDS = {"name", "url", "secret"}


_NAMES = ThreadPoolExecutor(2, "webhook names")  # its own: a resolver that hangs must hold up nobody else


class HookError(Exception):
    """A request was not taken. The message holds neither the address nor the secret."""


@dataclass(frozen=True)
class Hook:
    """A webhook: where notices go. Its address may hold a secret, so only its name is ever shown."""

    name: str
    url: SplitResult = field(repr=False)
    secret: bytes | None = field(default=None, repr=False)

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Hook:
        """Read an entry of the file. What is wrong is said without the address and the secret."""
        name, url, secret = entry.get("name"), entry.get("url"), entry.get("secret")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError("a name must have up to 64 letters, digits, '.', '_' and '-'")
        if unknown := set(entry) - _FIELDS:
            raise ValueError(f"webhook {name} has name, url and secret, and no {sorted(unknown)[0]!r}")
        return cls(name, _address(name, url), None if secret is None else _secret(name, secret))

    def headers(self, id: str, body: bytes, now: float) -> dict[str, str]:  # noqa: A002
        """The headers of a request, as Standard Webhooks has them: the signature is over id, time and body."""
        host = self.url.hostname or ""
        port = f":{self.url.port}" if self.url.port else ""
        found = {
            "Host": (f"[{host}]" if ":" in host else host) + port,
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
            "User-Agent": "robandit",
            "Webhook-Id": id,
            "Webhook-Timestamp": str(int(now)),
        }
        if self.secret is not None:
            signed = f"{id}.{int(now)}.".encode() + body
            digest = hmac.new(self.secret, signed, hashlib.sha256).digest()
            found["Webhook-Signature"] = f"v1,{b64encode(digest).decode()}"
        return found

    async def post(self, id: str, body: bytes, now: float) -> None:  # noqa: A002
        """Send a document, and return once it was taken. Redirects are not followed."""
        try:
            async with asyncio.timeout(DEADLINE):
                status = await self._status(id, body, now)
        except TimeoutError:
            raise HookError(f"no answer within {DEADLINE:g} s") from None
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise HookError(f"no answer: {type(error).__name__}") from None  # whose text may hold the address
        if not 200 <= status < 300:
            redirect = "; redirects are not followed" if 300 <= status < 400 else ""
            raise HookError(f"it answered {status}{redirect}")

    async def _status(self, id: str, body: bytes, now: float) -> int:  # noqa: A002
        """The status of the answer to a request."""
        host, safe = self.url.hostname or "", self.url.scheme == "https"
        port = self.url.port or (443 if safe else 80)
        found = await asyncio.get_running_loop().run_in_executor(_NAMES, _resolve, host, port)
        names: dict[str, Any] = {"ssl": _context(), "server_hostname": host} if safe else {}
        reader, writer = await asyncio.open_connection(found, port, limit=_LONGEST, **names)
        try:
            path = (self.url.path or "/") + (f"?{self.url.query}" if self.url.query else "")
            head = "".join(f"{name}: {value}\r\n" for name, value in self.headers(id, body, now).items())
            writer.write(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode("ascii") + body)
            await writer.drain()
            status = await _final_status(reader)
            with suppress(OSError, TimeoutError):  # so that whoever writes the rest is not cut off
                async with asyncio.timeout(1.0):
                    await reader.read(_LONGEST)
            return status
        finally:
            writer.transport.abort()


@cache
def _context() -> ssl.SSLContext:
    """Certificates that are trusted. To read them takes long, so it is done once, before anything is served."""
    return ssl.create_default_context()


def _resolve(host: str, port: int) -> str:
    """An address of a name."""
    return str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0])


async def _final_status(reader: asyncio.StreamReader) -> int:
    """The status of an answer; those before 200 only announce it. What else the answer says is not read."""
    for _ in range(_LINES):
        found = _STATUS.fullmatch(await reader.readline())
        if found is None:
            raise ValueError("no HTTP")
        if (status := int(found[1])) >= 200:
            return status
        while (await reader.readline()).strip():
            pass
    raise ValueError("no end")


def read_hooks(path: Path) -> list[Hook]:
    """Read a JSON file of webhooks: a list of objects with ``name``, ``url`` and, if requests are to be signed, a
    ``secret``."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} can't be read as JSON: {type(error).__name__}") from None
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise ValueError(f"{path} must hold a list of objects with name, url and secret")
    try:
        hooks = [Hook.of(one) for one in entries]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not 1 <= len(hooks) <= MOST_HOOKS or len({one.name for one in hooks}) < len(hooks):
        raise ValueError(f"{path} must name between 1 and {MOST_HOOKS} webhooks, each once")
    if any(one.url.scheme == "https" for one in hooks):
        _context()
    return hooks


def _address(name: str, url: object) -> SplitResult:
    """A URL that can be asked: HTTP or HTTPS, without a user."""
    try:
        found = urlsplit(url if isinstance(url, str) else "")
        known = found.scheme in ("http", "https") and found.hostname and found.username is None and found.port != 0
    except ValueError:
        known = False
    if not known or not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"the url of webhook {name} must be http:// or https://, in ASCII, without a user")
    return found


def _secret(name: str, secret: object) -> bytes:
    """A secret, as Standard Webhooks writes it: base64, after ``whsec_``."""
    try:
        found = b64decode(str(secret).removeprefix("whsec_"), validate=True)
    except ValueError:
        found = b""
    if not 24 <= len(found) <= 64:
        raise ValueError(f"the secret of webhook {name} must be 24 to 64 bytes in base64 (openssl rand -base64 32)")
    return found
