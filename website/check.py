"""What a reader must be able to rely on: links lead somewhere, nothing comes from outside, words are found.

And formulas are whole: Markdown takes a pair of stars or underscores in them for emphasis, and drops both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"audio", "embed", "iframe", "img", "input", "link", "object", "script", "source", "track", "video"}
"""The elements whose addresses a browser loads by itself."""

_CSS = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


_FORMULA = re.compile("[⟨⟩‖≤≥−]")


class Page(HTMLParser):
    """The places of a page, what it loads, where it leads, and what it emphasises."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.stressed: list[str] = []
        self._in_emphasis = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "em":
            self._in_emphasis = True
            self.stressed.append("")
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        self.loads += [found[0] or found[1] for found in _CSS.findall(given.get("style", ""))]
        if tag in LOADED and given.get("rel") not in ("canonical", "next", "prev"):
            self.loads += [given[name] for name in ("src", "href", "data", "poster") if given.get(name)]
            self.loads += [one.split()[0] for one in given.get("srcset", "").split(",") if one.strip()]
        elif given.get("href"):
            self.leads.append(given["href"])

    def handle_endtag(self, tag: str) -> None:
        if tag == "em":
            self._in_emphasis = False

    def handle_data(self, data: str) -> None:
        if self._in_emphasis:
            self.stressed[-1] += data


def problems(site: Path) -> list[str]:
    """All that is wrong with a built site, in sentences. A site that is right has none."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = [f"there are only {len(pages)} pages in {site}"] if len(pages) < 10 else []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        if name.name == "404.html":  # its addresses begin at the root of a server
            continue
        found += [f"{name}: {why}" for address in page.loads for why in _loaded(address, path)]
        found += [f"{name}: {why}" for address in page.leads for why in _led(address, path, pages)]
        found += [f"{name}: takes part of a formula for emphasis: {text}" for text in _formulas(page)]
    for path in site.rglob("*.css"):
        addresses = [one or other for one, other in _CSS.findall(path.read_text(encoding="utf-8"))]
        found += [f"{path.name}: {why}" for address in addresses for why in _loaded(address, path)]
    return found + list(_search(site))


def _formulas(page: Page) -> list[str]:
    """What is emphasised by signs that belong to a formula. A backslash before them keeps them."""
    return [" ".join(text.split()) for text in page.stressed if _FORMULA.search(text)]


def _outside(address: str) -> bool:
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def _loaded(address: str, path: Path) -> Iterator[str]:
    """What is wrong with something that a browser loads for a page or a style sheet."""
    if _outside(address):
        yield f"loads {address} from outside"
    elif not address.startswith(("data:", "#")) and not (path.parent / unquote(urlsplit(address).path)).is_file():
        yield f"loads {address}, which is not there"


def _led(address: str, path: Path, pages: dict[Path, Page]) -> Iterator[str]:
    """What is wrong with a link. Links to elsewhere are followed by nobody here."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        yield f"leads to {address}, which is not there"
    elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
        yield f"leads to {address}, and that page has no such place"


def _search(site: Path) -> Iterator[str]:
    """Whether the index of the search has every page, also without a server."""
    items = json.loads((site / "search.json").read_text(encoding="utf-8"))["items"]
    known = {item["location"].partition("#")[0] for item in items}
    pages = {str(path.relative_to(site)) for path in site.rglob("*.html")} - {"404.html"}
    yield from (f"the search does not know {page}" for page in sorted(pages - known))
    if not (site / "search.js").read_text(encoding="utf-8").startswith("var __index = "):
        yield "the search has no index for pages that are read from files"
