"""A notebook as a page: its text, its code, and what it had put out when it was saved."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Any, NamedTuple


class Page(NamedTuple):
    """A notebook in Markdown, and the pictures that it shows by the names of their files."""

    text: str
    pictures: dict[str, bytes]


def page(source: str, name: str) -> Page:
    """Turn the text of an `.ipynb` file into a page. Pictures are named after it: NAME-1.png, NAME-2.png, …"""
    pictures: dict[str, bytes] = {}
    parts: list[str] = []
    for cell in json.loads(source)["cells"]:
        text = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            parts.append(text)
        elif cell["cell_type"] == "code" and text:
            parts.append(fenced(text, "python"))
            for output in cell["outputs"]:
                parts += _shown(output, name, pictures)
    return Page("\n\n".join(parts) + "\n", pictures)


def fenced(text: str, language: str) -> str:
    """Text as a block of code, in a fence longer than any that it holds."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`{3,}", text)), 3)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _shown(output: dict[str, Any], name: str, pictures: dict[str, bytes]) -> Iterator[str]:
    """One output of a cell. Of several forms of the same the one that shows most is taken."""
    if output["output_type"] == "error":
        raise ValueError(f"the notebook {name} ends in {output['ename']}: run it again, and save it whole")
    data = output.get("data", {})
    if "image/png" in data:
        file = f"{name}-{len(pictures) + 1}.png"
        pictures[file] = b64decode("".join(data["image/png"]))
        yield f"![What the cell above draws]({file})"
    elif "text/html" in data:
        html = re.sub(r"\n\s*\n", "\n", "".join(data["text/html"]).strip())
        if "<script" in html:
            raise ValueError(f"the notebook {name} shows a script, which the site can't hold")
        yield f'<div class="output">{html}</div>'
    elif text := "".join(output.get("text", data.get("text/plain", ""))):
        yield fenced(text, "{ .text .output }")
