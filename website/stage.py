"""What is rendered: the docs, the files of the repository that they link to, the reference, and the navigation."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from robandit.service.requests.openapi import openapi
from website import api, calls, commands, notebook

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
HERE = Path(__file__).parent

# Pages that readers of a code host find in the repository, and readers of the site under this heading.
PROJECT = ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
LANGUAGES = {".py": "python", ".toml": "toml", ".cff": "yaml", ".yml": "yaml", ".sh": "bash"}

_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_PICTURE = re.compile(r"^(!\[[^\]]*\]\(([^)\s]+)\))$", re.MULTILINE)
_INTERVAL = re.compile(r" (?=±|\[−?[\d.]+,)|(?<=±) |(?<=\[)(−?[\d.]+), (?=[\d.]+\])")
_FENCE = re.compile(r"^ *(`{3,}|~{3,})")


def stage(folder: Path) -> None:
    """Write all that the generator reads into an empty folder."""
    docs = folder / "docs"
    queue = [*sorted(path for path in DOCS.rglob("*") if path.is_file()), *(ROOT / name for name in PROJECT)]
    done: set[Path] = set()
    while queue:
        source = queue.pop()
        if source not in done:
            done.add(source)
            queue += _put(source, docs)
    for name, text in reference().items():
        _write(docs / "reference" / name, text)
    shutil.copytree(HERE / "assets", docs / "assets")
    shutil.copytree(HERE / "overrides", folder / "overrides")
    shutil.copy(HERE / "doctests.py", folder)
    config = (HERE / "mkdocs.yml").read_text(encoding="utf-8")
    _write(folder / "mkdocs.yml", f"{config}\nnav: {json.dumps(navigation())}\n")


@cache
def reference() -> dict[str, str]:
    """The generated files of the reference by their names, in the order of the navigation."""
    pages = {f"{name}.md": api.page(topic) for name, topic in api.TOPICS.items()}
    return pages | {"commands.md": commands.page(), "calls.md": calls.page(), "openapi.json": json.dumps(openapi())}


def navigation() -> list[dict[str, Any]]:
    """The pages in the order in which docs/index.md lists them, and those that it can't: generated ones and others'."""
    sections: dict[str, list[object]] = {}
    text = (DOCS / "index.md").read_text(encoding="utf-8").partition("\n## All pages")[2]
    for line in text.splitlines():
        if line.startswith("### "):
            sections[line.removeprefix("### ")] = []
        elif found := re.match(r"- \[([^]]+)\]\(([^)]+)\)", line):
            sections[list(sections)[-1]].append({found[1]: str(place(DOCS / found[2]))})
    titles = {name: text.partition("\n")[0].removeprefix("# ") for name, text in reference().items()}
    sections["Reference"] += [{titles[name]: f"reference/{name}"} for name in titles if name.endswith(".md")]
    sections["Project"] = [{name.removesuffix(".md").capitalize(): str(place(ROOT / name))} for name in PROJECT]
    return [{title: pages} for title, pages in {"Start": "index.md", **sections}.items()]


def place(source: Path) -> Path:
    """Where a file of the repository stands in the site, before it is rendered."""
    inside = source.is_relative_to(DOCS)
    path = source.relative_to(DOCS) if inside else Path("repository", *map(_shown, source.relative_to(ROOT).parts))
    if path.suffix == ".ipynb":
        return path.with_suffix(".md")
    return path if inside or path.suffix == ".md" else path.with_name(f"{path.name}.md")


def _shown(part: str) -> str:
    """A part of a path that no generator takes for hidden."""
    return part.removeprefix(".")


def _put(source: Path, docs: Path) -> list[Path]:
    """Write a file as a page, or as it is. Returns the files that it links to."""
    target, found = docs / place(source), list[Path]()
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix != ".md":
        shutil.copy(source, target)
        return found
    page = _read(source)
    for name, content in page.pictures.items():
        (target.parent / name).write_bytes(content)

    def moved(link: str) -> str:
        path, hash_, anchor = link.partition("#")
        other = (source.parent / path).resolve()
        if not path or "://" in link or link.startswith("mailto:") or path in page.pictures:
            return link
        if not other.is_file() or not other.is_relative_to(ROOT):
            raise ValueError(f"{source.relative_to(ROOT)} links to {link}, and there is no such file")
        found.append(other)
        return os.path.relpath(place(other), place(source).parent) + hash_ + anchor

    # A picture leads to itself, so that it can be looked at in full on a small screen.
    _write(target, _PICTURE.sub(r"[\1](\2)", "\n".join(_lines(page.text, moved))) + "\n")
    return found


def _read(source: Path) -> notebook.Page:
    """A file of the repository in Markdown: code stands in a block."""
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".ipynb":
        return notebook.page(text, source.stem)
    if source.suffix != ".md":
        text = f"# {source.name}\n\n{notebook.fenced(text, LANGUAGES.get(source.suffix, 'text'))}\n"
    return notebook.Page(text, {})


def _lines(text: str, moved: Callable[[str], str]) -> Iterator[str]:
    """The lines of a page: its links lead to places of the site, and examples with prompts say that they have them."""
    lines, inside = text.splitlines(), ""
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence and not inside:
            inside = fence[1]
            if line.strip() == "```python" and lines[number + 1 : number + 2][0].lstrip().startswith(">>>"):
                line = line.replace("python", "pycon")
        elif fence and line.strip() == inside:
            inside = ""
        elif not inside:
            line = _LINK.sub(lambda link: link[1] + moved(link[2]) + link[3], line)
            line = _INTERVAL.sub(_unbroken, line) if line.startswith("|") else line
        yield line


def _unbroken(space: re.Match[str]) -> str:
    """The place between a number and its error, or within an interval, where a narrow table must not break."""
    return f"{space[1]},\N{NO-BREAK SPACE}" if space[1] else "\N{NO-BREAK SPACE}"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
