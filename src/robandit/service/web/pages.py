"""The service's pages for people: the dashboard and the reference of all calls. They hold no data and load nothing."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from functools import cache
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from robandit.service.requests.openapi import openapi
from robandit.service.web.reference import reference

_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def routes() -> list[Route]:
    """The routes of all pages."""
    return [Route("/", _dashboard, methods=["GET"]), Route("/docs", _docs, methods=["GET"])]


@cache
def dashboard() -> str:
    """The dashboard, as it lies in the package."""
    return (files("robandit.service.web") / "dashboard.html").read_text(encoding="utf-8")


@cache
def docs() -> str:
    """The reference of all calls, in the dashboard's style."""
    style = next(body for kind, body in _INLINE.findall(dashboard()) if kind == "style")
    return reference(openapi(), style)


@cache
def policy(page: str) -> str:
    """The Content-Security-Policy of a page: a browser may run its own scripts and styles, and ask this service."""
    allowed: dict[str, list[str]] = {"script": [], "style": []}
    for kind, body in _INLINE.findall(page):
        allowed[kind].append(f"'sha256-{b64encode(hashlib.sha256(body.encode()).digest()).decode()}'")
    inline = [f"{kind}-src {' '.join(hashes)}" for kind, hashes in allowed.items() if hashes]
    rest = ["connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"]
    return "; ".join(
        ["default-src 'none'", *inline, *rest, "require-trusted-types-for 'script'", "trusted-types 'none'"]
    )


async def _dashboard(request: Request) -> Response:
    return page(dashboard())


async def _docs(request: Request) -> Response:
    return page(docs())


def page(text: str) -> Response:
    """An answer with a page that may run its own scripts, and nothing else."""
    headers = {
        "Content-Security-Policy": policy(text),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return HTMLResponse(text, headers=headers)
