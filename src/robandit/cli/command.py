"""What a command is, and how its options are read."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import NamedTuple, NoReturn

from robandit.errors import ConfigError, install, nearest

EXITS = """\
exit codes: 0 done; 1 the run failed; 2 the options or the configuration are
wrong, or something is in the way, and nothing was written; 130 stopped from
the keyboard"""

_NEEDED: Mapping[str, Sequence[str]] = {
    "lab": ("joblib", "matplotlib", "pyarrow", "threadpoolctl", "tqdm"),
    "serve": ("apsw", "msgspec", "starlette", "threadpoolctl", "uvicorn"),
    "client": ("httpx", "msgspec"),
    "": (),
}
"""The modules that commands need beyond NumPy, by the extra that installs them."""


class Command(NamedTuple):
    """A command, such as `robandit simulate`, or `figure1` in the group `robandit paper`."""

    name: str
    about: str
    """One sentence for the list of commands."""
    description: str
    """The text at the top of the command's own help."""
    options: Callable[[argparse.ArgumentParser], None]
    """Adds the options. It is called for the chosen command alone, so it may import what it takes defaults from."""
    call: Callable[[argparse.Namespace], None]
    """Does the work. It imports what it needs itself, so that the other commands start quickly."""
    extra: str | None = "lab"
    """The extra of the package that the command needs, or several with commas between them."""

    def read(self, path: str, words: Sequence[str]) -> argparse.Namespace:
        """Read the options from the words after the command's name."""
        parser = _Parser(
            prog=path,
            description=self.description,
            epilog=EXITS,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            add_help=False,
        )
        parser.add_argument("-h", "--help", action="help", help="Print this help.")
        self.options(parser)
        parser.check_options(words)
        return parser.parse_args(words)


class CommandGroup(NamedTuple):
    """Several commands under one name, such as `robandit paper`."""

    name: str
    about: str
    """One sentence for the list of commands."""
    description: str
    """The text at the top of the group's own help."""
    headed: Mapping[str, Sequence[Command | CommandGroup]]
    """The commands by the heading that they stand under in the help."""

    def members(self) -> Iterator[Command | CommandGroup]:
        """Yield the commands of all headings."""
        for commands in self.headed.values():
            yield from commands


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions, and which knows the nearest option to a misspelt one."""

    def check_options(self, words: Sequence[str]) -> None:
        """Refuse an unknown option before argparse misses a required one that was only misspelt."""
        known = [option for option in self._option_string_actions if option.startswith("--")]
        for word in words:
            option = word.partition("=")[0]
            if option == "--":
                return  # what follows is no option
            if option.startswith("--") and not any(other.startswith(option) for other in known):
                raise ConfigError(f"unrecognized arguments: {option}{nearest(option, known)}")

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see `{self.prog} --help`")


def require(extra: str | None) -> None:
    """Refuse a command whose packages are not installed, and say how to install them."""
    needed = sorted({module for one in (extra or "").split(",") for module in _NEEDED[one]})
    missing = [module for module in needed if find_spec(module) is None]
    if extra and missing:
        raise ConfigError(f"this command needs {', '.join(missing)} as well: {install(extra)}")
