"""The tree of commands: what there is, how it is found, and how it is listed.

A new command is one file beside this one, which defines a `Command`, and one entry below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from robandit.cli import arena, data, history, lab, logs, maintenance, paper, play, replay, service
from robandit.cli.command import EXITS, Command, CommandGroup
from robandit.errors import ConfigError, nearest

ROBANDIT = CommandGroup(
    "robandit",
    "Learn from rewards that somebody may have tampered with.",
    "Contextual bandits that learn from rewards that somebody may have tampered with.\n"
    "`robandit --version` prints the version.",
    {
        "Look at feedback": [logs.AUDIT, logs.EVALUATE, replay.REPLAY],
        "Serve decisions": [
            *(service.SERVE, service.KEY, maintenance.CHECK, maintenance.BACKUP, maintenance.RESTORE),
            *(history.IMPORT, history.EXPORT, history.CUT, history.FORGET, maintenance.SHRINK),
        ],
        "The lab": [lab.SIMULATE, lab.PLOT, lab.LIST, data.DATA, play.PLAY],
        "The experiments": [paper.PAPER, arena.ARENA],
    },
)


def find(
    words: Sequence[str], group: CommandGroup, path: str = "robandit"
) -> tuple[Command | CommandGroup, str, Sequence[str]]:
    """Find what the first words name in a group: a command, or a group whose help is wanted.

    Returns it, its full name, and the rest of the words.

    >>> found, path, rest = find(["paper", "figure1", "--trials", "3"], ROBANDIT)
    >>> path, rest
    ('robandit paper figure1', ['--trials', '3'])
    """
    if not words or words[0] in ("-h", "--help"):
        return group, path, []
    members = {member.name: member for member in group.members()}
    word = words[0]
    if word.startswith("-"):
        raise ConfigError(f"`{path}` needs a command before {word}; there are {', '.join(members)}")
    if word not in members:
        name = f"{path} {word}".removeprefix("robandit ")
        raise ConfigError(f"there is no command {name!r}{_suggestion(word, list(members))}")
    found = members[word]
    if isinstance(found, CommandGroup):
        return find(words[1:], found, f"{path} {word}")
    return found, f"{path} {word}", words[1:]


def _suggestion(word: str, here: Sequence[str]) -> str:
    """The end of the message about an unknown command: the nearest one in the whole tree, or those of this group."""
    places = {path.rpartition(" ")[2]: path for path in paths(ROBANDIT)}
    said = nearest(word, places)
    for name, path in places.items():
        if repr(name) in said:
            return f"; did you mean {path!r}?"
    return nearest(word, here)


def paths(group: CommandGroup, prefix: str = "") -> Iterator[str]:
    """Yield the names of all commands and groups: as `simulate` at the top, as `robandit paper tune` below it."""
    for member in group.members():
        yield f"{prefix}{member.name}"
        if isinstance(member, CommandGroup):
            yield from paths(member, f"{prefix or 'robandit '}{member.name} ")


def help_text(group: CommandGroup, path: str) -> str:
    """The help of a group: its commands under their headings, one line each."""
    width = max(len(member.name) for member in group.members())
    lines = [f"usage: {path} COMMAND [OPTIONS]", "", group.description]
    for heading, commands in group.headed.items():
        lines += ["", f"{heading}:", *(f"  {command.name:{width}}  {command.about}" for command in commands)]
    return "\n".join([*lines, "", f"`{path} COMMAND --help` explains a command and its options.", "", EXITS])
