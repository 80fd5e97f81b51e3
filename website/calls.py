"""The page of the service's calls: what a service shows at `/docs`, which is made from the OpenAPI document."""

from __future__ import annotations

import re

from robandit.service.requests.openapi import openapi
from robandit.service.web.reference import reference

HEAD = """\
# The calls of the service

Every call of the [decision service](../how-to/service.md) with its body and its answers. A running
service shows the same at `/docs`, and gives [the OpenAPI document](openapi.json) to programs.

```bash
robandit serve &
curl -s localhost:8000/v1/bandits
```
"""
_HEADING = re.compile(r'<h([23])(?: id="([^"]*)")?>(.*?)</h\1>', re.DOTALL)


def _heading(found: re.Match[str]) -> str:
    """A heading of the page as one of Markdown, which the search and the contents know."""
    level, anchor, title = found.groups()
    title = re.sub(r"</?code>", "`", title)
    return f"\n\n{'#' * int(level)} {title}" + (f" {{ #{anchor} }}" if anchor else "") + "\n\n"


def page() -> str:
    """The body of the service's own page, its headings in Markdown."""
    body = re.search(r"<main[^>]*>\s*<h2>.*?</h2>(.*)</main>", reference(openapi(), ""), re.DOTALL)
    assert body, "the service's page has no main part"
    text = _HEADING.sub(_heading, re.sub(r"</?section[^>]*>", "\n", body[1]))
    text = re.sub(r"<table class='[^']*'>", "<table>", text)
    return HEAD + "\n".join(line.strip() if line.startswith(" ") else line for line in text.splitlines()) + "\n"
