"""The check of a built site sees what is wrong with one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from website.check import problems

HEAD = '<link rel="stylesheet" href="style.css"><script src="a.js"></script>'
PAGES = {f"page{n}.html": '<h1 id="top">Page</h1>' for n in range(9)}
FILES = {"style.css": "p { background: url(data:x) }", "a.js": "", "picture.png": ""}
GOOD = '<a href="page1.html#top">on</a><a href="https://example.org">out</a><img src="picture.png">'


def site(folder: Path, page: str, **more: str) -> list[str]:
    """The problems of a small site whose first page holds this."""
    pages = PAGES | {"index.html": HEAD + page}
    index = {"items": [{"location": name} for name in pages]}
    files = pages | FILES | {"search.json": json.dumps(index), "search.js": "var __index = {}"} | more
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return problems(folder)


def test_a_good_site_has_no_problems(tmp_path: Path) -> None:
    assert site(tmp_path, GOOD) == []


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ('<a href="nothing.html">', "leads to nothing.html, which is not there"),
        ('<a href="page1.html#bottom">', "leads to page1.html#bottom, and that page has no such place"),
        ('<a href="#bottom">', "leads to #bottom, and that page has no such place"),
        ('<img src="nothing.png">', "loads nothing.png, which is not there"),
        ('<script src="https://example.org/a.js"></script>', "loads https://example.org/a.js from outside"),
        ('<link rel="preconnect" href="//example.org">', "loads //example.org from outside"),
        ('<img srcset="picture.png 1x, http://example.org/b.png 2x">', "loads http://example.org/b.png from outside"),
        ("<p>⟨a, μ<em>⟩ + ε, and μ</em></p>", "takes part of a formula for emphasis: ⟩ + ε, and μ"),
        ('<p style="background: url(http://example.org/c)">', "loads http://example.org/c from outside"),
    ],
)
def test_a_bad_page_is_seen(tmp_path: Path, page: str, why: str) -> None:
    assert site(tmp_path, GOOD + page) == [f"index.html: {why}"]


@pytest.mark.parametrize("css", ["@import 'https://example.org/f.css';", "p { src: url(https://example.org/f.css) }"])
def test_a_font_from_outside_is_seen(tmp_path: Path, css: str) -> None:
    assert site(tmp_path, GOOD, **{"style.css": css}) == ["style.css: loads https://example.org/f.css from outside"]


def test_a_page_that_is_not_found_is_seen(tmp_path: Path) -> None:
    index = {"items": [{"location": name} for name in PAGES]}
    found = site(tmp_path, GOOD, **{"search.json": json.dumps(index), "search.js": "none"})
    assert found == [
        "the search does not know index.html",
        "the search has no index for pages that are read from files",
    ]


def test_an_empty_site_is_seen(tmp_path: Path) -> None:
    (tmp_path / "search.json").write_text('{"items": []}')
    (tmp_path / "search.js").write_text("var __index = {}")
    assert problems(tmp_path) == [f"there are only 0 pages in {tmp_path}"]
