"""`python -m website [FOLDER]`: builds the site strictly, in FOLDER/site, and says what is wrong with it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from website.check import problems
from website.stage import ROOT, stage


def build(folder: Path) -> Path:
    """Stage, render and check. Raises if anything is not as it should be."""
    folder = folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    stage(folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(folder / "mkdocs.yml")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"the site can't be built:\n{done.stdout}{done.stderr}")
    if found := problems(folder / "site"):
        raise ValueError("\n".join(["the site is not right:", *found]))
    return folder / "site"


if __name__ == "__main__":
    try:
        site = build(Path(sys.argv[1]) if sys.argv[1:] else ROOT / "out" / "docs")
    except ValueError as error:
        sys.exit(str(error))
    print(f"open {site / 'index.html'}")
