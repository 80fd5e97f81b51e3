"""Look after a store: `robandit check`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import closing
from pathlib import Path

from robandit.cli.command import Command

_CHECK = """\
Read everything that a store holds, and say whether it is whole. Every row has
a checksum; every log is folded again from its first event, and compared with
the snapshot. A file must not be open in a service; a database may be.
The exit code is 1 if anything is damaged.

  robandit check robandit.db"""


def _check_options(parser: ArgumentParser) -> None:
    about = "The file, or the database postgresql://USER@HOST/DATABASE."
    parser.add_argument("store", metavar="FILE|URL", help=about)


def _check(options: Namespace) -> None:
    from robandit.service.check import check_bandits
    from robandit.service.stores import StoreError, open_store

    if "://" not in options.store and not Path(options.store).is_file():
        raise FileNotFoundError(2, "no such file", options.store)
    try:
        with closing(open_store(options.store)) as store:
            faults = store.faults()
            for found in check_bandits(store):
                print(f"{found.name}: {found.events} events, {'damaged' if found.faults else 'whole'}", flush=True)
                faults += found.faults
    except StoreError as error:
        raise OSError(str(error)) from None
    if faults:
        raise OSError("\n".join(["the store is damaged:", *faults]))
    print("Nothing is damaged.")


CHECK = Command("check", "Check that nothing in a store is damaged.", _CHECK, _check_options, _check, "serve")
