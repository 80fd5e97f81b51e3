"""Who sends a request: programs that call the service by its own name, and the service's own pages. A browser also
sends what other pages tell it to, and those requests are refused."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address

from starlette.types import Scope

from robandit.service.refused import Refused
from robandit.service.requests.choices import BLOCK, kind_of

PAGES = ("/", "/docs")
"""Paths that a link on any page may lead to."""
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:\d*)?")


def is_loopback(host: str) -> bool:
    """Whether this is a name or an address by which a machine calls itself."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Senders:
    """Refuses requests that call the service by a name of somebody else's, or that come from pages of somebody else's.

    Without keys, whoever makes a browser on this machine send a request could do everything. A page of another origin
    is known by the headers that every browser adds. A page whose own name was made to lead here (DNS rebinding) is
    known by that name: so the service answers to loopback names, to ``names``, and, where it listens on a network, to
    addresses.

    >>> senders = Senders(["shop.example"])
    >>> senders.check({"headers": [(b"host", b"shop.example:8000")], "path": "/", "method": "GET"})
    >>> senders.check({"headers": [(b"host", b"evil.example")]})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    robandit.service.refused.Refused: this service is not known as 'evil.example'; if it should be: ...
    """

    def __init__(self, names: Iterable[str] = (), *, addresses: bool = False) -> None:
        self._names, self._addresses = frozenset(map(_name, names)), addresses
        self._is_ours = lru_cache(maxsize=256)(self._look_up)

    def check(self, scope: Scope) -> None:
        """Refuse a request that is not for us, or that a page of somebody else's has sent."""
        hosts, origin, site = [], None, None
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
        if len(hosts) != 1:
            raise Refused(400, f"a request must have one header Host, and this one has {len(hosts)}")
        if not self._is_ours(hosts[0]):
            name = re.sub(r":\d*$", "", hosts[0].decode("latin-1"))[:100]
            raise Refused(421, f"this service is not known as {name!r}; if it should be: serve --allow-host {name}")
        if origin is not None and origin.partition(b"://")[2].lower() != hosts[0].lower():
            raise Refused(
                403, f"this comes from another page, of {origin.decode('latin-1')[:100]!r}; call from a program"
            )
        if site in (b"cross-site", b"same-site") and (scope["path"] not in PAGES or scope["method"] != "GET"):
            raise Refused(403, "this comes from another page, and only the dashboard may ask from a browser")

    def _look_up(self, header: bytes) -> bool:
        found = _HOST.fullmatch(header.decode("latin-1"))
        if not found:
            return False
        host = found[1].lower().rstrip(".")
        return is_loopback(host) or host in self._names or "*" in self._names or (self._addresses and _is_address(host))


def _is_address(host: str) -> bool:
    """Whether this is an address. No page can make an address lead elsewhere, as it can a name."""
    try:
        return bool(ip_address(host.strip("[]")))
    except ValueError:
        return False


def _name(text: str) -> str:
    """Read a host's name, without a port."""
    if text != "*" and not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", text):
        raise ValueError(f"--allow-host must be a name such as shop.example, without a port, or *; got {text!r}")
    return text.lower().rstrip(".")


def require_type(scope: Scope, *, block: bool = False) -> None:
    """Refuse a body that is not declared to be JSON, or with ``block`` a block: browsers send other types for any page,
    without asking first."""
    if kind_of(scope) not in (("application/json", BLOCK) if block else ("application/json",)):
        raise Refused(415, "send JSON, with the header `Content-Type: application/json` (`curl --json` does)")
