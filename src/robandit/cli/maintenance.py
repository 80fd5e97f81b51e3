"""Look after a store: `robandit check`, `robandit backup`, `robandit restore` and `robandit shrink`."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from robandit.cli.command import Command
from robandit.errors import ConfigError

if TYPE_CHECKING:
    from robandit.service.files.check import BanditCheck

# check

_CHECK = """\
Read everything that a store holds, and say whether it is whole. Every row has
a checksum; every log is folded again from where it begins, and compared with
the snapshot. A file must not be open in a service; a database may be.
The exit code is 1 if anything is damaged.

  robandit check robandit.db"""


def _check_options(parser: ArgumentParser) -> None:
    about = "The file, or the database postgresql://USER@HOST/DATABASE."
    parser.add_argument("store", metavar="FILE|URL", help=about)


def _check(options: Namespace) -> None:
    from robandit.service.files.check import check_bandits
    from robandit.service.stores import StoreError, open_store

    if "://" not in options.store:
        _existing(options.store)
    try:
        with closing(open_store(options.store)) as store:
            faults = store.faults()
            for found in check_bandits(store):
                _tell(found)
                faults += found.faults
    except StoreError as error:
        raise OSError(str(error)) from None
    if faults:
        raise OSError("\n".join(["the store is damaged:", *faults]))
    print("Nothing is damaged.")


def _tell(found: BanditCheck) -> None:
    print(f"{found.name}: {found.events} events, {'damaged' if found.faults else 'whole'}", flush=True)


CHECK = Command("check", "Check that nothing in a store is damaged.", _CHECK, _check_options, _check, "serve")

# backup

_BACKUP = """\
Copy a whole store into a new file: all bandits, their settings and seeds, and
their logs. A service that runs is asked for the copy over HTTP, and goes on
serving: the copy holds all that it had acknowledged when you asked. A store
that no service has open is copied directly, and stays as it is.

Every row of the copy is compared with its checksum before the file gets its
name. It never replaces another file.

  robandit backup http://localhost:8000 monday.db
  robandit backup robandit.db monday.db

The key of a service may do `admin`, for all bandits. A database is backed up by
its own tools; docs/how-to/in-production.md says how."""


def _backup_options(parser: ArgumentParser) -> None:
    parser.add_argument("store", metavar="URL|FILE", help="The address of a service, or a store that none has open.")
    parser.add_argument("out", type=Path, help="Write the copy to this file.")
    about = "Read the service's key from this file (default: the variable ROBANDIT_KEY of the environment)."
    parser.add_argument("--key-file", type=Path, metavar="FILE", help=about)


def _backup(options: Namespace) -> None:
    from robandit.service.files.copies import back_up_file, back_up_service
    from robandit.service.stores import StoreError

    store: str = options.store
    try:
        if store.startswith(("http://", "https://")):
            found = back_up_service(store, _service_key(options.key_file), options.out)
        else:
            found = back_up_file(_existing(store), options.out)
    except StoreError as error:
        raise OSError(str(error)) from None
    size = options.out.stat().st_size
    print(f"{options.out}: {found.bandits} bandits, {found.events} events, {size:,} bytes; every checksum is right.")


def _service_key(path: Path | None) -> str | None:
    """The key, from a file or the environment: whoever lists processes sees what stands in a command."""
    return os.environ.get("ROBANDIT_KEY") if path is None else path.read_text(encoding="utf-8").strip()


def _existing(store: str) -> Path:
    """The path of a store in a file."""
    _refuse_database(store)
    if not Path(store).is_file():
        raise FileNotFoundError(2, "no such file", store)
    return Path(store)


def _refuse_database(store: str) -> None:
    if "://" in store:
        raise ConfigError(
            "a database has tools of its own, pg_dump and pg_restore; docs/how-to/in-production.md says how"
        )


BACKUP = Command("backup", "Copy a store, even while it is in use.", _BACKUP, _backup_options, _backup, "serve")

# restore

_RESTORE = """\
Make a new store of a backup. All rows are compared with their checksums, every
log is folded again from where it begins, as `robandit check` does, and a backup
of an older format gets the present one. Only then the store gets its name; it
never replaces another file, and the backup stays as it is.

  robandit restore monday.db robandit.db
  robandit serve --store robandit.db"""


def _restore_options(parser: ArgumentParser) -> None:
    parser.add_argument("backup", type=Path, help="A file that `robandit backup` wrote.")
    parser.add_argument("store", metavar="FILE", help="Make this store.")


def _restore(options: Namespace) -> None:
    from robandit.service.files.copies import restore
    from robandit.service.stores import StoreError

    _refuse_database(options.store)
    try:
        restore(_existing(str(options.backup)), Path(options.store), _tell)
    except StoreError as error:
        raise OSError(str(error)) from None
    print(f"{options.store} holds what {options.backup} does. Nothing is damaged.")


RESTORE = Command("restore", "Make a new store of a backup.", _RESTORE, _restore_options, _restore, "serve")

# shrink

_SHRINK = """\
Give the free room of a store back to the disk. A store that this release has
made does that by itself when events go; one that an older release has made
does so from then on. No service may have it open, and the disk needs room for
a second copy.

  robandit shrink robandit.db"""


def _shrink_options(parser: ArgumentParser) -> None:
    parser.add_argument("store", metavar="FILE", help="A store that no service has open.")


def _shrink(options: Namespace) -> None:
    from robandit.service.stores import StoreError
    from robandit.service.stores.sqlite import SQLiteStore

    path = _existing(options.store)
    before = path.stat().st_size
    try:
        with closing(SQLiteStore(path)) as store:
            store.shrink()
    except StoreError as error:
        raise OSError(str(error)) from None
    print(f"{path} had {before:,} bytes, and has {path.stat().st_size:,}.")


SHRINK = Command("shrink", "Give the free room of a store back.", _SHRINK, _shrink_options, _shrink, "serve")
