"""What happens to logs: `robandit import`, `export`, `cut` and `forget`."""

from __future__ import annotations

import asyncio
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from robandit.cli.command import Command, require
from robandit.errors import ConfigError
from robandit.files import write_file

if TYPE_CHECKING:
    from robandit.client import Client
    from robandit.service.hub import Hub
    from robandit.wire.imports import ImportDone
    from robandit.wire.types import BanditSettings

_AT_ONCE = 1000  # rows


def _where(parser: ArgumentParser) -> None:
    parser.add_argument("--bandit", metavar="NAME", required=True, help="Name the bandit.")
    about = "Ask the service at this address (default %(default)s); its key is in the variable ROBANDIT_KEY."
    parser.add_argument("--url", default="http://localhost:8000", help=about)


def _client(options: Namespace) -> Client:
    import httpx

    from robandit.client import Client

    try:
        return Client(options.url, key=os.environ.get("ROBANDIT_KEY") or None)
    except httpx.InvalidURL as error:
        raise ConfigError(f"--url {options.url} is no address: {error}") from None


# import

_IMPORT = """\
Let a bandit learn from history: decisions that others made, and their rewards.

FILE is a table (.csv, .parquet, .ndjson) with a row for each action that was
taken, or a log of the service, as NDJSON or Parquet, or what `robandit export`
wrote. A bandit that is not there is made of the last.

This needs the extras lab and client; with --store, lab and serve.

A table needs the columns of the bandit's features by their names, or x0, x1, …
for one that takes vectors, and a column of rewards. A row counts once: if the
command was stopped, give it again.

  robandit import visits.csv --bandit shop --reward click --source partner"""


def _import_options(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="The table or the log.")
    _where(parser)
    about = "Write to this store, which no service has open, instead of asking one."
    parser.add_argument("--store", metavar="FILE", help=about)
    for name, default, about in (
        ("reward", "reward", "This column holds the rewards (default %(default)s)."),
        ("source", None, "This column says where the traffic came from."),
        ("sigma", None, "This column holds the standard deviation of each reward."),
        ("propensity", None, "This column holds the probability with which the action was chosen."),
    ):
        parser.add_argument(f"--{name}", metavar="COLUMN", default=default, help=about)
    about = "Take the vector from these columns, separated by commas (default x0,x1,…)."
    parser.add_argument("--features", metavar="COLUMNS", help=about)
    about = "Read the file as this (default: by its suffix)."
    parser.add_argument("--format", choices=("parquet", "csv", "ndjson"), help=about)


def _import(options: Namespace) -> None:
    require("lab,client" if options.store is None else "lab,serve")
    if options.store is not None:
        found = asyncio.run(_into_store(options))
    else:
        with _client(options) as client:
            found = _into_service(client, options)
    print(f"{found.imported:,} rows were learnt, and {found.duplicates:,} had been before.")
    if found.conflicts:
        raise ConfigError(f"{len(found.conflicts):,} ids belong to something else, {found.conflicts[0]!r} first")


def _into_service(client: Client, options: Namespace) -> ImportDone:
    """Let a service learn the rows, and make the bandit first if the file says how."""
    from robandit.client import ServiceError
    from robandit.logs.history import settings_in

    new = settings_in(options.file)
    try:
        if new is not None and options.bandit not in client.bandits():
            client.create(options.bandit, **new)
        settings = client.status(options.bandit).settings
        return client.learn_history(options.bandit, _rows(options, settings))
    except ServiceError as error:
        raise ConfigError(str(error)) from None


def _rows(options: Namespace, settings: BanditSettings) -> Iterator[dict[str, Any]]:
    """The rows of the file, once all of them were read without a fault."""
    from robandit.logs.history import HistoryColumns, history

    features = None if options.features is None else options.features.split(",")
    columns = HistoryColumns(options.reward, options.source, options.sigma, options.propensity, features)
    for _ in history(options.file, settings, columns, options.format):
        pass
    return history(options.file, settings, columns, options.format)


async def _into_store(options: Namespace) -> ImportDone:
    """Let a bandit of a store learn the rows, without a service."""
    from robandit.service.hub import Hub
    from robandit.service.stores import StoreError, open_store

    if "://" not in options.store and not Path(options.store).is_file():
        raise FileNotFoundError(2, "no such file", options.store)
    try:
        hub = Hub(open_store(options.store))
    except StoreError as error:
        raise ConfigError(str(error)) from None
    work = asyncio.create_task(hub.work())
    try:
        return await _learnt(hub, options)
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        hub.stop()


async def _learnt(hub: Hub, options: Namespace) -> ImportDone:
    """What becomes of all rows."""
    import msgspec

    from robandit.service.refused import Refused
    from robandit.wire.imports import History, ImportDone

    imported = duplicates = 0
    conflicts: list[str] = []
    try:
        rows = _rows(options, hub.bandits.named(options.bandit).settings)
        while some := list(islice(rows, _AT_ONCE)):
            found = await hub.learn_history(options.bandit, msgspec.convert(some, History))
            imported, duplicates = imported + found.imported, duplicates + found.duplicates
            conflicts += found.conflicts
    except (Refused, msgspec.ValidationError) as error:
        raise ConfigError(str(error)) from None
    return ImportDone(imported=imported, duplicates=duplicates, conflicts=conflicts)


IMPORT = Command("import", "Let a bandit learn from history.", _IMPORT, _import_options, _import, extra=None)

# export

_EXPORT = """\
Write a bandit into one file: its settings, and its whole log. `robandit import`
makes a bandit of it that has learnt the same, in another service, too. The file
does not hold the seed.

This needs the extras lab and client.

  robandit export --bandit shop --out shop.ndjson
  robandit import shop.ndjson --bandit shop --url https://bandits.example"""


def _export_options(parser: ArgumentParser) -> None:
    _where(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="Write this file.")


def _export(options: Namespace) -> None:
    from robandit.client import ServiceError
    from robandit.logs.history import exported

    def write(file: BinaryIO) -> None:
        settings = client.status(options.bandit).settings
        for line in exported(options.bandit, settings, client.log(options.bandit)):
            file.write(line + b"\n")

    with _client(options) as client:
        try:
            write_file(options.out, write)
        except ServiceError as error:
            raise ConfigError(str(error)) from None


EXPORT = Command("export", "Write a bandit into one file.", _EXPORT, _export_options, _export, "lab,client")

# cut

_CUT = """\
Let the events of a log go that are older than so many days. What they taught
stays: the state is kept, and the bandit goes on as if nothing had happened.
But no other policy can learn them any more, nothing can be evaluated on them,
and a decision whose id has gone is a new one when it is asked for again.
Decisions whose reward had not come by then stay. There is no way back but a
backup.

  robandit cut --bandit shop --keep-days 30

To have it done again and again, set retention_days of the bandit instead;
docs/how-to/life-cycle.md says how."""


def _cut_options(parser: ArgumentParser) -> None:
    _where(parser)
    about = "Keep the events of so many days; 0 keeps none."
    parser.add_argument("--keep-days", type=float, required=True, metavar="DAYS", help=about)


def _cut(options: Namespace) -> None:
    from robandit.client import ServiceError

    if not 0.0 <= options.keep_days <= 100_000:
        raise ConfigError(f"--keep-days must be from 0 to 100000, got {options.keep_days:g}")
    with _client(options) as client:
        try:
            found = client.cut(options.bandit, keep_days=options.keep_days)
        except ServiceError as error:
            raise ConfigError(str(error)) from None
    if found.events == 0:
        print("No event is that old: the log is whole.")
    else:
        print(
            f"The log begins after event {found.events:,}. {found.decisions - found.kept_open:,} decisions have gone, "
            f"and {found.kept_open:,} before it stay, since they were open."
        )


CUT = Command("cut", "Let the old events of a log go.", _CUT, _cut_options, _cut, "client")

# forget

_FORGET = """\
Forget decisions and their rewards, such as those about a person who asks for
that. They go from the log, and the state is folded anew as if they had never
been made. FILE has their ids, one a line. Give the command again if it was
stopped: what is forgotten already is unknown then.

  robandit forget ids.txt --bandit shop

Backups and copies of the log that were made before still have them, and what
was cut from a log stays in what was learnt, as numbers."""


def _forget_options(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="The ids of decisions, one a line.")
    _where(parser)


def _forget(options: Namespace) -> None:
    from robandit.client import ServiceError

    ids = [line for line in options.file.read_text(encoding="utf-8").split("\n") if line]
    if not ids:
        raise ConfigError(f"{options.file} has no ids: write one a line")
    with _client(options) as client:
        try:
            found = client.forget(options.bandit, ids)
        except ServiceError as error:
            raise ConfigError(str(error)) from None
    print(f"{found.decisions:,} decisions are forgotten; {len(found.unknown):,} of the ids are unknown.")
    if found.cut:
        raise ConfigError(
            f"{len(found.cut):,} decisions stay, {found.cut[0]!r} first: they were open when the log was cut after "
            "them, and go with the next cut"
        )


_ABOUT = "Forget decisions, as if they had never been made."
FORGET = Command("forget", _ABOUT, _FORGET, _forget_options, _forget, "client")
