"""The page of all commands, from what `--help` prints."""

from __future__ import annotations

import os
from contextlib import redirect_stdout
from io import StringIO
from unittest.mock import patch

from robandit.cli import main
from robandit.cli.tree import ROBANDIT, paths
from website.notebook import fenced

WIDTH = "88"
HEAD = """\
# Commands

All that the command line can do, as `robandit COMMAND --help` prints it. For example, two policies
under an attack, in one line:

```text
robandit simulate --policy quorum --policy oful --environment fresh --attack flip,rounds=30
```
"""


def names() -> list[str]:
    """The full names of all commands and groups, in the order of the help."""
    return ["robandit", *(path if path.startswith("robandit ") else f"robandit {path}" for path in paths(ROBANDIT))]


def help_of(name: str) -> str:
    """What a command prints when it is asked for help."""
    said = StringIO()
    with patch.dict(os.environ, COLUMNS=WIDTH), redirect_stdout(said):
        code = main([*name.split()[1:], "--help"])
    if code or not said.getvalue():
        raise ValueError(f"`{name} --help` prints nothing, and ends with {code}")
    return said.getvalue()


def page() -> str:
    """A section for each command."""
    sections = (f"## {name}\n\n{fenced(help_of(name), 'text')}" for name in names())
    return "\n\n".join([HEAD, *sections]) + "\n"
