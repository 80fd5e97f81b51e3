"""The command line: find the command, run it, and turn what goes wrong into an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import robandit
from robandit.cli.command import CommandGroup, require
from robandit.cli.tree import ROBANDIT, find, help_text
from robandit.errors import ConfigError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit code."""
    try:
        _run(list(sys.argv[1:] if arguments is None else arguments))
    except SystemExit as end:  # argparse has printed the help of a command
        return int(end.code or 0)
    except KeyboardInterrupt:
        print("\nstopped; a run continues from here when the same command is given again", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read the output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except FileNotFoundError as error:
        return _failed(f"there is no {error.filename or error}", 1)
    except (ConfigError, FileExistsError) as error:
        return _failed(error, 2)
    except (OSError, ValueError, RuntimeError) as error:
        return _failed(error, 1)
    return 0


def _run(words: list[str]) -> None:
    if words[:1] == ["--version"]:
        print(f"robandit {robandit.__version__}")
        return
    found, path, rest = find(words, ROBANDIT)
    if isinstance(found, CommandGroup):
        print(help_text(found, path))
        return
    options = found.read(path, rest)
    require(found.extra)
    found.call(options)


def _failed(why: object, code: int) -> int:
    print(f"robandit: {why}", file=sys.stderr)
    return code
